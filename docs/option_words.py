"""Docstrings of parts as Markdown, and the sentences in them that explain an option."""

from __future__ import annotations

import inspect
import re
from typing import Any

EQUATION = re.compile(r"<-|->|^[A-Za-z]\S* = |  <|^h_|Task loss \+")
OPTION = re.compile(r"(?:^|(?<=\.) )(?=``\w+``: )")
SENTENCE = re.compile(r"(?<=[.])\s+(?=[A-Z`])")


def equation_and_prose(docstring: str) -> str:
    """A docstring as Markdown; a first paragraph that is an equation stands by itself, as it was typed."""
    first, *rest = docstring.strip().split("\n\n")
    lines = first.splitlines()
    if EQUATION.search(lines[0]):
        head = ["```text\n" + re.sub(r"(?<=\S)\.$", "", lines[0].replace("``", "").replace(",  ", "\n")) + "\n```"]
        body = ["\n".join(lines[1:])] if lines[1:] else []
    else:
        head, body = [], [first]
    return "\n\n".join(head + [listed(part) for part in body + rest if part.strip()])


def listed(text: str) -> str:
    """A paragraph of a docstring as Markdown; one that goes through several options (``name``: …) as a list of them."""
    pieces = OPTION.split(" ".join(text.split()))
    if len(pieces) < 3:
        return prose(text)
    marked = [f"- {prose(piece)}" if piece.startswith("``") else prose(piece) + "\n" for piece in pieces if piece]
    return "\n".join(marked)


def prose(text: str) -> str:
    """A paragraph of a docstring as Markdown: names of code in backticks, signs of formulas as they are."""
    pieces = re.split(r"(``.+?``)", " ".join(text.split()))
    return "".join(f"`{piece[2:-2]}`" if piece.startswith("``") else escaped(piece) for piece in pieces)


def escaped(text: str) -> str:
    """Text outside code: roles of Sphinx become names, and signs that Markdown would read are kept."""
    text = re.sub(r":\w+:`~?([\w.]*?)(\w+)`", r"\2", text)
    return re.sub(r"([*_|<\[\]])", r"\\\1", text)


def meaning(part: type[Any], option: str) -> str:
    """The sentence that explains an option, from the docstring of the part or of a class that it extends."""
    for kind in part.__mro__[:-1]:
        sentences = SENTENCE.split(" ".join((inspect.getdoc(kind) or "").split()))
        for mark in (f"``{option}``", rf"\b{option}\b"):
            found = [each for each in sentences if (mark in each if "`" in mark else re.search(mark, each))]
            if found:
                return prose(found[0].removeprefix(f"``{option}``: "))
    raise LookupError(f"No docstring of {part.__name__} has a word on its option {option}; add one.")

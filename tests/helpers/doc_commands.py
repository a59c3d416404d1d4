"""Commands that pages show: lines of their blocks of shell, and those with options that stand within a sentence.

Variables of the page are filled in; in a page of an example ``EX`` is the folder that the page lies in.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(?:sh|bash)\n(.*?)^```", re.DOTALL | re.MULTILINE)
EXAMPLES = sorted((ROOT / "examples").rglob("README.md"))
ANY_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`((?:isthmus|python) [^`]*? --[^`]*)`")
VARIABLE = re.compile(r"([A-Z]+)=(.+)")


@dataclass(frozen=True)
class Shown:
    """One command as a page shows it: its words, without what sets variables of the environment in front of it."""

    page: str
    words: tuple[str, ...]

    @property
    def line(self) -> str:
        """The command as one line."""
        return " ".join(self.words)


def pages() -> list[Path]:
    """All pages that show commands."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")), *EXAMPLES]


def shown() -> list[Shown]:
    """Every command of every page, each once."""
    found = [command for page in pages() for command in _of(page)]
    return list(dict.fromkeys(found))


def _of(page: Path) -> list[Shown]:
    found, variables = list[Shown](), dict[str, str]()
    for line in _lines(page):
        words = shlex.split(line, comments=True)
        if len(words) == 1 and (setting := VARIABLE.fullmatch(words[0])):
            variables[setting[1]] = _filled(setting[2], variables)
        elif words:
            found += _split(_filled(line, variables), str(page.relative_to(ROOT)))
    return found


def _lines(page: Path) -> list[str]:
    """Lines of a page that are commands, or set variables for those below them."""
    text = page.read_text()
    if page in EXAMPLES:
        text = re.sub(r"\bEX/", f"{page.parent.relative_to(ROOT)}/", text)
    blocks = [re.sub(r"\\?\n +", " ", block.replace("\\\n", " ")).splitlines() for block in BLOCK.findall(text)]
    within = [" ".join(command.split()) for command in INLINE.findall(re.sub(ANY_BLOCK, "", text))]
    return [*(line for block in blocks for line in block), *within]


def _filled(text: str, variables: dict[str, str]) -> str:
    """The text with ``$X`` replaced by the variables of the page."""
    return re.sub(r"\$([A-Z]+)", lambda match: variables[match[1]], text)


def _split(line: str, page: str) -> list[Shown]:
    """The commands of a line, which may stand behind each other (``&&``), without where their output goes."""
    found, words = list[Shown](), list[str]()
    for word in [*shlex.split(line.removesuffix(" &"), comments=True), "&&"]:
        if word != "&&":
            words.append(word)
            continue
        kept = words[: words.index(">")] if ">" in words else words
        while kept and re.fullmatch(r"[A-Z_]+=\S*", kept[0]):
            kept = kept[1:]
        found, words = [*found, Shown(page, tuple(kept))], []
    return found

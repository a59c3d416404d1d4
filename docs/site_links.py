"""Hooks of mkdocs: links from pages to files outside docs/ work in the site, and no page asks other sites for anything.

A Markdown file of the repository becomes a page as it stands, a notebook its cells and what they printed, any other
text file a listing, and a folder its README or a list of its files. What does not exist the strict build refuses.
The one script that the theme would fetch, for the search of pages opened from a folder, lies beside them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\]\()([^)#\s]*)(#[^)\s]*)?\)")
ELSEWHERE = re.compile(r"[a-z]+:")  # addresses of other sites, and pictures that are written out
LANGUAGES = {".py": "python", ".toml": "toml", ".sh": "sh", ".service": "ini"}
FETCHED, OURS = "https://unpkg.com/iframe-worker/shim", "search-worker.js"
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"  # listings of code would drown pages that explain it
FIRST = ("glossary.md", "faq.md", "choosing.md", "what-the-server-sees.md")  # found before others
WHOLE = ("CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff", "LICENSE")


def on_files(files: Files, config: Any) -> Files:
    """Add a page for every file of the repository that a page links to, and for those that the navigation has."""
    docs = Path(config["docs_dir"])
    pages = [docs / file.src_uri for file in files.documentation_pages()]
    for path in sorted(reached([*pages, ROOT / "examples", *(ROOT / name for name in WHOLE)])):
        if not path.is_relative_to(docs) and files.get_file_from_path(page_of(path)) is None:
            inclusion = InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, page_of(path), content=shown(path), inclusion=inclusion))
    return files


def reached(begin: list[Path]) -> set[Path]:
    """Files and folders that one comes to along links; from a folder to all of its files."""
    found, todo = set(begin), list(begin)
    while todo:
        path = todo.pop()
        if path.is_dir():
            more = {each for each in path.iterdir() if each.is_file()}
        else:
            more = set(targets(path.parent, path.read_text())) if path.suffix == ".md" and path.is_file() else set()
        todo += more - found
        found |= more
    return found


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links that lead out of docs/ to the pages that stand for their targets."""
    docs = Path(config["docs_dir"])
    if page.file.src_uri in FIRST:
        page.meta["search"] = {"boost": 2}
    source = docs / page.file.src_uri
    outside = page.file.generated_by is not None or not source.is_file()
    home = ROOT / page.file.src_uri if outside else source
    return rewritten(markdown, home.parent, docs, up="../" * page.file.src_uri.count("/"))


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Take the theme's script for the search from beside the pages."""
    return output.replace(FETCHED, "../" * page.file.dest_uri.count("/") + OURS)


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """Do the same in pages that are made of no Markdown, such as 404.html."""
    return output_content.replace(FETCHED, OURS)


def rewritten(markdown: str, folder: Path, docs: Path, up: str) -> str:
    """The text with each relative link of a file in ``folder`` as one within the site; ``up`` leads to its root."""

    def place(match: re.Match[str]) -> str:
        if not match[2] or ELSEWHERE.match(match[2]):
            return match[0]
        target = (folder / match[2]).resolve()
        if not target.exists():
            return match[0]
        if target.is_relative_to(docs) and target != docs:
            return f"{match[1]}{up}{target.relative_to(docs)}{match[3] or ''})"
        return f"{match[1]}{up}{page_of(target)}{match[3] or ''})"

    return LINK.sub(place, markdown)


def targets(folder: Path, markdown: str) -> list[Path]:
    """Files and folders of the repository that the text of a file in ``folder`` links to."""
    links = [match[2] for match in LINK.finditer(markdown) if match[2] and not ELSEWHERE.match(match[2])]
    return [path for link in links if (path := (folder / link).resolve()).exists() and path.is_relative_to(ROOT)]


def page_of(path: Path) -> str:
    """Where the page of a file of the repository lies in the site."""
    inside = path.relative_to(ROOT)
    if path.is_dir():
        return f"{inside}/{'README' if (path / 'README.md').is_file() else 'index'}.md"
    return str(inside) if path.suffix == ".md" else f"{inside}.md"


def shown(path: Path) -> str:
    """The page of a file or folder, as Markdown."""
    if path.is_dir() and (path / "README.md").is_file():
        path = path / "README.md"
    if path.suffix == ".md":
        return path.read_text()
    title = f"{UNSEARCHED}# {path.relative_to(ROOT)}\n\n"
    if path.is_dir():
        names = sorted(each.name for each in path.iterdir() if each.is_file())
        return title + "\n".join(f"- [`{name}`]({name})" for name in names)
    if path.suffix == ".ipynb":
        return "\n\n".join(cell_text(cell) for cell in json.loads(path.read_text())["cells"])
    try:
        code = path.read_text().rstrip()
    except UnicodeDecodeError:
        return f"{title}This file is no text; it lies in the repository.\n"
    return f"{title}````{LANGUAGES.get(path.suffix, 'text')}\n{code}\n````\n"


def cell_text(cell: dict[str, Any]) -> str:
    """A cell of a notebook as Markdown: its text, or its code and what it printed and drew."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    parts = [f"```python\n{source}\n```"]
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            parts.append(f"![What the cell above draws](data:image/png;base64,{''.join(data['image/png']).strip()})")
        elif text := "".join(output.get("text", data.get("text/plain", ""))).rstrip():
            parts.append(f"```text\n{text}\n```")
    return "\n\n".join(parts)

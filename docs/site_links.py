"""Hooks of mkdocs: links from pages to files outside docs/ work in the site, and no page asks other sites for anything.

A Markdown file of the repository becomes a page as it stands, a notebook its cells and what they printed, any other
text file a listing, and a folder a list of its files. What does not exist is left alone: the strict build refuses it.
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
    wanted = {ROOT / name for name in WHOLE} | {path for path in (ROOT / "examples").iterdir() if path.is_file()}
    for file in files.documentation_pages():
        source = docs / file.src_uri
        if source.is_file():
            wanted |= set(targets(source.parent, source.read_text()).values())
    wanted |= {
        path for each in list(wanted) if each.suffix == ".md" for path in targets(ROOT, each.read_text()).values()
    }
    for path in sorted(wanted):
        if not path.is_relative_to(docs) and files.get_file_from_path(page_of(path)) is None:
            files.append(
                File.generated(config, page_of(path), content=shown(path), inclusion=InclusionLevel.NOT_IN_NAV)
            )
    return files


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


def targets(folder: Path, markdown: str) -> dict[str, Path]:
    """Files of the repository that the text of a file in ``folder`` links to, by the link."""
    links = [match[2] for match in LINK.finditer(markdown) if match[2] and not ELSEWHERE.match(match[2])]
    found = {link: (folder / link).resolve() for link in links}
    return {link: path for link, path in found.items() if path.exists() and path.is_relative_to(ROOT)}


def page_of(path: Path) -> str:
    """Where the page of a file of the repository lies in the site."""
    inside = path.relative_to(ROOT)
    if path.is_dir():
        return f"{inside}/index.md"
    return str(inside) if path.suffix == ".md" else f"{inside}.md"


def shown(path: Path) -> str:
    """The page of a file or folder, as Markdown."""
    if path.suffix == ".md":
        return path.read_text()
    title = f"{UNSEARCHED}# {path.relative_to(ROOT)}\n\n"
    if path.is_dir():
        names = sorted(each.name for each in path.iterdir() if each.is_file())
        return title + "\n".join(f"- [`{name}`]({name}.md)" for name in names)
    if path.suffix == ".ipynb":
        return "\n\n".join(cell_text(cell) for cell in json.loads(path.read_text())["cells"])
    return f"{title}````{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text().rstrip()}\n````\n"


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

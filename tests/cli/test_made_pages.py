"""Pages on methods say what the code does: they are made from it, and made again here.

What is not up to date is made anew by ``make generated``.
"""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))

import make_choosing  # noqa: E402
import make_facts  # noqa: E402
import make_methods  # noqa: E402

from isthmus.methods import catalogue  # noqa: E402


@pytest.fixture(autouse=True)
def own_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's own methods, whatever other tests have registered."""
    own = {name: make for name, make in catalogue._CATALOGUE.items() if make.__module__ == catalogue.__name__}
    monkeypatch.setattr(catalogue, "_CATALOGUE", own)


@pytest.mark.parametrize("name", make_methods.tried())
def test_a_method_does_what_its_page_was_made_of(name: str) -> None:
    """It is trained with all that it is asked to go with; refusals and the ledger are as written down."""
    assert make_facts.of_method(name) == make_methods.tried()[name]


def test_every_method_has_a_page_and_no_page_is_left_over() -> None:
    assert list(make_methods.tried()) == catalogue.names()
    made = make_methods.pages()
    assert {f"methods/{path.name}" for path in (DOCS / "methods").iterdir()} == set(made)
    assert [path for path, text in made.items() if (DOCS / path).read_text() != text] == []
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [path for path in made if f" {path}\n" not in navigation] == []


@pytest.mark.parametrize("page", make_choosing.PAGES)
def test_tables_over_the_catalogue_are_up_to_date(page: str) -> None:
    written = (DOCS / page).read_text()
    assert written == make_choosing.page(page)
    assert all(name in written for name in catalogue.names())


def test_equalities_name_tests_that_exist() -> None:
    said = {name: make_methods.words()[name] for name in catalogue.names()}
    named = [test.split("::") for each in said.values() for _, test in each.get("equals", ())]
    assert len(named) > 20
    assert [test for path, test in named if f"def {test}(" not in (ROOT / path).read_text()] == []


def test_words_are_of_methods_papers_and_options_that_exist() -> None:
    words = make_methods.words()
    methods = [catalogue.get(name) for name in catalogue.names()]
    parts = [part for method in methods for _, _, part in make_methods.chosen(method)]
    options = {f"{type(part).__name__}.{key}" for part in parts for key in make_methods.part_options(part)}
    assert set(words) - {"papers", "options"} == set(catalogue.names())
    assert set(words["papers"]) == {method.paper for method in methods if method.paper}
    assert set(words["options"]) - options == set()

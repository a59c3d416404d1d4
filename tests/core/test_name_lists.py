"""Sentences stay short, however many silos they are about."""

import pytest

from isthmus.core.name_lists import some_of
from tests.helpers.small import open_method, owners, small_graph


def test_long_lists_of_names_are_cut() -> None:
    names = [f"silo-{i}" for i in range(9)]
    assert some_of(names[:8]) == "silo-0, silo-1, silo-2, silo-3, silo-4, silo-5, silo-6, silo-7"
    assert some_of(names) == "silo-0, silo-1, silo-2, silo-3, silo-4, silo-5, silo-6 and 2 others"


@pytest.mark.parametrize("method", ["local", "fed-pub"])
def test_notes_of_sixty_silos_fit_a_line(method: str) -> None:
    graph = small_graph(70, 200)
    training = open_method(method, graph, owners(60, graph.n), 60)
    assert any("others have no labelled valid nodes" in note for note in training.federation.notes)
    assert all(len(note) < 200 for note in training.federation.notes if "silo-" in note)

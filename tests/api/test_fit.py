"""What ``fit`` and ``split`` take, and what they refuse instead of guessing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import isthmus
from isthmus import kernels
from isthmus.core.errors import IsthmusError
from isthmus.graph.cut import split_graph
from isthmus.graph.differing_edges import differing_edges
from isthmus.graph.silo import Silo
from isthmus.methods.sync.fedavg import FedAvg
from isthmus.train.progress import Progress
from isthmus.train.watcher import Watcher
from tests.helpers.small import losses, small_graph

GRAPH, THREE = small_graph(30, 140), torch.arange(30) % 3
FEW = {"train.epochs": 3, "model.hidden": 8}


@pytest.mark.parametrize("method", ["fedgnn-g", "llcg-every-step", "swift-fedgnn", "centralised"])
def test_the_order_of_silos_changes_nothing(method: str) -> None:
    silos = split_graph(GRAPH, THREE, 3)
    one, other = (isthmus.fit(each, method, dtype="float64", settings=FEW) for each in (silos, silos[::-1]))
    assert losses(one) == losses(other) and one.test.as_dict() == other.test.as_dict()


def test_silos_that_are_not_those_of_a_split_are_refused() -> None:
    silos = split_graph(GRAPH, THREE, 3)
    with pytest.raises(IsthmusError, match=r"numbers \[0, 2\]"):
        isthmus.fit([silos[0], silos[2]], settings=FEW)
    with pytest.raises(IsthmusError, match=r"numbers \[0, 0, 1\]"):
        isthmus.fit([silos[0], silos[0], silos[1]], settings=FEW)
    with pytest.raises(IsthmusError, match=r"numbers \[\]"):
        isthmus.fit([], settings=FEW)


@pytest.mark.parametrize(
    ("owner", "says"),
    [
        ([0, 1.9] * 15, r"owner\[1\] is 1.9, which is no whole number \(15 such\)"),
        (torch.full((30,), torch.nan), r"owner\[0\] is nan"),
        (THREE[:, None], r"the shape \[30, 1\]"),
        (THREE * 10**7, "names silo 20,000,000 for 30 nodes; number silos from 0 on"),
        (["bank-a"] * 30, "owner .*whole numbers"),
        ([0] * 29, "29 entries for 30 nodes"),
        ([-1] * 30, "Owners lie in -1..-1"),
    ],
)
def test_owners_are_whole_numbers(owner: Any, says: str) -> None:
    with pytest.raises(IsthmusError, match=says):
        isthmus.split(GRAPH, owner)
    assert len(isthmus.split(GRAPH, [0.0, 1.0] * 15)) == 2


# ---- cross edges that two silos describe differently


def changed(silo: Silo, **by: float) -> Silo:
    """The silo with other values for its first cross edge."""
    edge = int(silo.crosses.nonzero()[0])
    fields: dict[str, Any] = {}
    for name, amount in by.items():
        values = getattr(silo, name).clone()
        values[edge] += amount
        fields[name] = values
    return replace(silo, **fields)


@pytest.mark.parametrize("by", [{"edge_attr": 1.0}, {"edge_time": 100}])
def test_cross_edges_that_differ_are_counted(by: dict[str, float]) -> None:
    ring = torch.stack([torch.arange(30), (torch.arange(30) + 1) % 30])  # without parallel edges
    graph = replace(GRAPH, edge_index=ring, edge_attr=GRAPH.edge_attr[:30], edge_time=GRAPH.edge_time[:30])
    silos = split_graph(graph, THREE, 3)
    assert differing_edges(silos) == []
    silos[1] = changed(silos[1], **by)
    [told] = differing_edges(silos)
    assert told.startswith("1 cross edges have other times or features") and "silo-1" in told
    for method in ("fedavg", "centralised"):
        assert told in isthmus.fit(silos, method, settings=FEW).training.federation.notes


@pytest.mark.parametrize("key", ["data.silos", "data.split", "data.name", "data.nodes", "system.hosts"])
def test_settings_that_fit_could_not_follow_are_refused(key: str) -> None:
    silos = split_graph(GRAPH, THREE, 3)
    with pytest.raises(IsthmusError, match=f"{key} means nothing to fit"):
        isthmus.fit(silos, settings={**FEW, key: 2})
    with pytest.raises(IsthmusError, match="data.silos means nothing"):
        isthmus.fit(silos, settings={"data": {"silos": 9, "scale": "none"}})
    assert isthmus.fit(silos, settings={**FEW, "data.scale": "none", "data.edges": "claimed"}).test.as_dict()


def test_a_graph_is_no_list_of_silos() -> None:
    with pytest.raises(IsthmusError, match="as isthmus.split makes them"):
        isthmus.fit(GRAPH)  # type: ignore[arg-type]


def test_what_is_split_is_checked_first() -> None:
    with pytest.raises(IsthmusError, match="NaN or infinite"):
        isthmus.split(replace(GRAPH, x=torch.full((30, 3), torch.nan)), THREE)
    with pytest.raises(IsthmusError, match=r"split holds \[9\]; allowed are 0 \(unused\) to 3"):
        isthmus.split(replace(GRAPH, split=torch.full((30,), 9, dtype=torch.int8)), THREE)
    with pytest.raises(IsthmusError, match="silos is 2.5"):
        isthmus.split(GRAPH, "random", 2.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["fedavg", "local"])
def test_only_silos_that_there_are_have_a_model_to_save(method: str, tmp_path: Path) -> None:
    result = isthmus.fit(split_graph(GRAPH, THREE, 3), method, settings=FEW)
    for silo in (3, 99, -5, True, "0"):
        with pytest.raises(IsthmusError, match=f"silo is {silo!r}; the run has 3, numbered from 0 to 2"):
            isthmus.save(result, tmp_path / "model.safetensors", silo=silo)  # type: ignore[arg-type]
    with pytest.raises(IsthmusError, match="there is no folder '.*nowhere'"):
        isthmus.save(result, tmp_path / "nowhere" / "model.safetensors")
    with pytest.raises(IsthmusError, match="that is a folder"):
        isthmus.save(result, tmp_path)
    assert not list(tmp_path.iterdir())
    isthmus.save(result, tmp_path / "model.safetensors", silo=2)
    assert (tmp_path / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"method": None}, "method is None; give the name"),
        ({"settings": {"method": "local"}}, r"method is an argument of fit and no setting; .* fit\(silos, method="),
        ({"settings": {"seed": 5}}, "seed is an argument of fit"),
        ({"settings": ["train.epochs"]}, r"settings is \['train.epochs'\]; give keys and values"),
        ({"settings": {3: 4}}, "settings is {3: 4}; give keys and values"),
        ({"protect": ["int8"]}, r"protect is \['int8'\]; give names in one text"),
        ({"protect": None}, "protect is None"),
        ({"exchange": None}, "exchange is None; give the name of a part, or a part of the kind Exchange"),
        ({"exchange": FedAvg()}, r"exchange is FedAvg\(.*give the name of a part"),
        ({"sync": FedAvg}, "sync is <class"),
        ({"score": None}, "score is None"),
        ({"halo": "nothing"}, "Unknown part 'halo'"),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(IsthmusError, match=says):
        isthmus.fit(split_graph(GRAPH, THREE, 3), **{"settings": FEW, **given})
    with pytest.raises(IsthmusError, match="fit takes a list of silos"):
        isthmus.fit(3)  # type: ignore[arg-type]


def test_no_gpu_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(IsthmusError, match="PyTorch sees no GPU here"):
        isthmus.fit(split_graph(GRAPH, THREE, 3), settings={**FEW, "system.device": "cuda"})


class Noting(Watcher):
    """Notes how the process is set up at the last epoch."""

    seen: tuple[int, str] = (0, "")

    def on_epoch(self, progress: Progress, lines: list[dict[str, Any]]) -> None:
        """Note threads and kernels."""
        self.seen = torch.get_num_threads(), kernels.chosen()


def test_threads_and_kernels_are_those_asked_for_while_it_trains() -> None:
    before, noting = (torch.get_num_threads(), kernels.chosen()), Noting()
    silos, asked = split_graph(GRAPH, THREE, 3), {"system.threads": before[0] + 1, "system.kernels": "plain"}
    isthmus.fit(silos, settings={**FEW, **asked}, watcher=noting)
    assert noting.seen == (before[0] + 1, "plain")
    assert (torch.get_num_threads(), kernels.chosen()) == before
    isthmus.fit(silos, settings={**FEW, "system.threads": 0}, watcher=noting)
    assert noting.seen == (before[0], "auto")

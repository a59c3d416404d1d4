"""Whatever crosses leaves by one function: a policy that refuses there refuses every method."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from isthmus.core.kinds import ROWS, SERVER, Kind
from isthmus.core.parcel import Parcel
from isthmus.methods import catalogue
from isthmus.wire.door import Door
from isthmus.wire.local import LocalWire
from isthmus.wire.policy import Policy, Refused
from tests.helpers.small import owners, run_method, small_graph

METHODS = [name for name in catalogue.names() if name != "centralised"]


def run(name: str, **options: object) -> None:
    model = "gcn" if name == "fedgcn" else "mlp" if name == "local-mlp" else "sage"
    some = {"phase": {"pretrain": {"epochs": 1}}} if name == "pretrained-fedavg" else {}
    run_method(name, small_graph(30, 140), owners(3), 3, model, options=some, epochs=2, **options)


@pytest.mark.parametrize("name", METHODS)
def test_nothing_crosses_where_leave_refuses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    crossed: list[str] = []

    def refuse(*given: object) -> None:
        raise Refused("nothing leaves here")

    monkeypatch.setattr(Door, "leave", refuse)
    for primitive in ("_deliver", "_swap", "_sizes", "_sum_hosts"):
        monkeypatch.setattr(LocalWire, primitive, lambda *given, name=primitive: crossed.append(name))
    with pytest.raises(Refused, match="nothing leaves here"):
        run(name)
    assert crossed == []


@pytest.mark.parametrize("name", METHODS)
def test_transport_is_reached_through_leave_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the handshake to the final scores, no primitive is called outside of ``Door.leave``."""
    inside, within, around = [False], set[str](), set[str]()
    leave = Door.leave

    def watched(self: Door, *given: Any, **named: Any) -> Any:
        inside[0] = True
        try:
            return leave(self, *given, **named)
        finally:
            inside[0] = False

    monkeypatch.setattr(Door, "leave", watched)
    for primitive in ("_deliver", "_swap", "_sizes", "_sum_hosts"):
        known = getattr(LocalWire, primitive)

        def noted(*given: Any, known: Any = known, primitive: str = primitive, **named: Any) -> Any:
            (within if inside[0] else around).add(primitive)
            return known(*given, **named)

        monkeypatch.setattr(LocalWire, primitive, noted)
    run(name)
    assert "_deliver" in within and around == set()


@dataclass(frozen=True)
class Without(Policy):
    """Lets everything leave but one kind."""

    kind: Kind = Kind.EMBEDDINGS

    def refusal(self, parcel: Parcel) -> str:
        return f"the rules of this party keep {parcel.kind} at home" if parcel.kind == self.kind else ""


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fedavg", Kind.PARAMETERS),
        ("sync-sgd", Kind.GRADIENTS),
        ("sync-sgd+fwd-bwd-le", Kind.EMBEDDINGS),
        ("sync-sgd+fwd-bwd-le", Kind.ADJOINTS),
        ("fedgcn", Kind.AGGREGATES),
        ("swift-fedgnn", Kind.PARTIALS),
        ("llcg-every-step", Kind.FEATURES),
        ("local", Kind.METRICS),
    ],
)
def test_a_policy_is_asked_before_anything_of_a_kind_leaves(name: str, kind: Kind) -> None:
    wire = LocalWire(3)
    wire.policy = Without(kind)
    with pytest.raises(Refused, match=f"keep {kind} at home"):
        run(name, wire=wire)
    assert kind.value not in wire.ledger.by_kind()


def test_of_letters_that_leave_together_none_is_sealed_before_all_are_allowed() -> None:
    wire = LocalWire(2)
    asked: list[tuple[int, int]] = []

    class Second(Policy):
        def refusal(self, parcel: Parcel) -> str:
            asked.append((int(parcel.traffic.sender[0]), int(parcel.traffic.receiver[0])))
            return "not to the second" if parcel.traffic.receiver[0] == 1 else ""

    wire.policy = Second()
    with pytest.raises(Refused):
        wire.post(Kind.METRICS, {(SERVER, 0): torch.ones(2), (SERVER, 1): torch.ones(2)})
    assert asked == [(SERVER, 0), (SERVER, 1)] and wire.ledger.by_kind() == {}


def test_sums_name_everybody_who_is_inside() -> None:
    """Partial aggregates carry the rows that they were made of, each once for every sum that it is in."""
    seen: dict[Kind, int] = {}

    class Watching(Policy):
        def refusal(self, parcel: Parcel) -> str:
            if parcel.of_nodes and len(parcel.rows):
                inside = parcel.origin.row if parcel.origin.parts is None else parcel.origin.parts
                assert len(parcel.origin.silo) == len(parcel.origin.row) == len(parcel.rows)
                seen[parcel.kind] = seen.get(parcel.kind, 0) + len(inside)
            return ""

    wire = LocalWire(3)
    wire.policy = Watching()
    run("fedgnn-g", wire=wire)
    assert set(seen) <= set(ROWS) and seen[Kind.PARTIALS] > 0
    counted = sum(int(table.sum()) for name, table in wire.releases.state.items() if name.startswith("counts/partials"))
    assert counted == seen[Kind.PARTIALS]

"""Truths of every wire: functions that every host of a federation calls with its wire, and that assert what it sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from isthmus.core.kinds import SERVER, Kind
from isthmus.engine.layout import Layout, lay_out
from isthmus.federation.boundary import make_route
from isthmus.federation.federation import open_federation
from isthmus.sample.order import rule_of
from isthmus.testing.runs import small_silos
from isthmus.wire.relay import Column, open_relay
from isthmus.wire.route import Route
from isthmus.wire.wire import Wire

WIDTH = 3
NUMBERS = 8  # bytes of one


def _value(silo: int) -> Tensor:
    """Numbers of a silo whose sum depends on the order in which silos are added."""
    return torch.tensor([[1e16, 1.0, -1e16, 1.0][silo % 4], 0.1 * silo, silo**2], dtype=torch.float64)


def _mine(wire: Wire) -> Tensor:
    return torch.stack([_value(silo) for silo in wire.mine]) if wire.mine else torch.zeros(0, WIDTH).double()


def _every(wire: Wire) -> Tensor:
    return torch.stack([_value(silo) for silo in range(wire.silos)])


def a_total_is_the_sum_in_silo_order(wire: Wire) -> None:
    """Totals equal sums in silo order: plain, weighted, and of sums that hosts have made of their own silos."""
    every, weights = _every(wire), torch.linspace(0.5, 2, wire.silos, dtype=torch.float64)
    _equal(wire.total(Kind.METRICS, _mine(wire)), every.sum(0), "a total")
    weighted = wire.total(Kind.METRICS, _mine(wire), weights[list(wire.mine)])
    _equal(weighted, (every * weights[:, None]).sum(0), "a weighted total")
    whole = torch.arange(wire.silos, dtype=torch.float64)
    _equal(wire.total_of_hosts(Kind.METRICS, whole[list(wire.mine)].sum()[None]), whole.sum()[None], "a sum of sums")


def a_total_has_an_adjoint(wire: Wire) -> None:
    """Each silo's loss is <total, its own numbers>, so that every silo's derivative is the sum of all numbers."""
    x = _mine(wire).requires_grad_()
    numbers = torch.arange(wire.silos, dtype=torch.float64)[:, None].expand(-1, WIDTH)
    total = wire.total(Kind.STATISTICS, x)
    wire.close((total * numbers[list(wire.mine)].sum(0)).sum()).backward()
    _equal(x.grad, numbers.sum(0).expand(len(x), -1), "the derivative by a total")


def shared_rows_are_known_to_all(wire: Wire) -> None:
    """Rows that silos share arrive on every host, as real and as whole numbers."""
    _equal(wire.share(Kind.METRICS, _mine(wire)), _every(wire), "shared rows")
    _equal(wire.share(Kind.STATISTICS, _mine(wire).long()), _every(wire).long(), "shared whole numbers")


def the_server_alone_judges(wire: Wire) -> int:
    """``settle`` and ``consult`` call their judge at the server only; returns how often it was called on this host."""
    judged = 0

    def heard(said: dict[int, Tensor]) -> list[Tensor]:
        nonlocal judged
        judged += 1
        assert wire.houses(SERVER) and list(said) == list(range(wire.silos)), f"heard {list(said)}, not all in order"
        return list(said.values())

    said = {silo: torch.full((silo + 1,), float(silo)).double() for silo in wire.mine}
    verdict = wire.settle(Kind.METRICS, said, lambda each: torch.cat(heard(each)))
    expected = torch.cat([torch.full((silo + 1,), float(silo)).double() for silo in range(wire.silos)])
    _equal(verdict, expected, "the verdict")
    answers = wire.consult(Kind.ORDER, said, lambda each: {i: 10 * words for i, words in enumerate(heard(each))})
    assert sorted(answers) == sorted(wire.mine), f"answers came for {sorted(answers)}; mine are {list(wire.mine)}"
    for silo, answer in answers.items():
        _equal(answer, 10 * said[silo], f"the answer to silo {silo}")
    return judged


def a_letter_is_a_copy(wire: Wire) -> None:
    """Letters of different sizes, to the next silo and to the server, do not change when their sender's tensor does."""
    sent = {silo: torch.full((silo + 2, 2), float(silo)) for silo in wire.mine}
    following = {(silo, (silo + 1) % wire.silos): x for silo, x in sent.items()}
    got = wire.post(Kind.FEATURES, following | {(silo, SERVER): x for silo, x in sent.items()})
    due = {(silo, to) for silo in range(wire.silos) for to in ((silo + 1) % wire.silos, SERVER) if wire.houses(to)}
    assert set(got) == due and list(got) == sorted(got), f"letters {list(got)} came, and {sorted(due)} were due"
    for x in sent.values():
        x.fill_(-1)
    for (sender, receiver), x in got.items():
        what = f"the letter of {sender} to {receiver}, after its sender or another receiver has written into his,"
        _equal(x, torch.full((sender + 2, 2), float(sender)), what)
        x.fill_(-2)
    assert all(bool((x == -1).all()) for x in sent.values()), "a receiver writes into what its sender holds"


def _laid_out(wire: Wire) -> Layout:
    """A federation of small silos."""
    silos = small_silos(wire.silos, 6 * wire.silos)
    federation = open_federation(wire, [silos[i] for i in wire.mine])
    layout = lay_out(federation, "halo", rule_of("local"), False, torch.device("cpu"), torch.float64)
    wire.releases.open(layout.stack.rows)
    return layout


def _route(wire: Wire, layout: Layout) -> Route:
    """The route of all halo rows, which owners are asked for."""
    asked = wire.ask(layout.boundary, layout.boundary.halo)
    own = layout.stack.owned.nonzero().flatten()
    return make_route([asked], own, torch.arange(layout.stack.rows), wire)


def _of(keys: Tensor) -> Tensor:
    """Numbers of nodes that follow from their public keys: [n, width]."""
    return torch.sin((keys % 9973)[:, None] * torch.arange(1, WIDTH + 1, dtype=torch.float64))


def rows_arrive_where_they_are_held(wire: Wire) -> None:
    """Halo rows become those of their owners, as constants or with adjoints; own rows stay."""
    layout = _laid_out(wire)
    route = _route(wire, layout)
    stack, boundary = layout.stack, layout.boundary
    h = _of(stack.keys[stack.owned]).requires_grad_()
    for adjoint in (True, False):
        got = wire.linear(h, route, Kind.EMBEDDINGS, adjoint)
        _equal(got.detach(), _of(stack.keys), "a row that crossed")
        wire.close(got.sum())
    offered = wire.offer(boundary, torch.arange(len(boundary.served)))
    _equal(offered.halo.sort().values, boundary.halo.sort().values, "the list of offered rows")
    _equal(route.send.row.sort().values, boundary.served.sort().values, "the list of asked rows")


def the_way_back_is_the_transpose(wire: Wire) -> None:
    """The sum of <A x, y> over hosts equals that of <x, A' y>, and rows have crossed."""
    layout = _laid_out(wire)
    route = _route(wire, layout)
    generator = torch.Generator().manual_seed(wire.host)
    x = _of(layout.stack.keys[layout.stack.owned]).requires_grad_()
    y = torch.randn(route.size, WIDTH, generator=generator, dtype=torch.float64)
    left = (wire.linear(x, route, Kind.EMBEDDINGS, adjoint=True) * y).sum()
    wire.close(left).backward()
    assert x.grad is not None
    crossed = torch.tensor(float(len(route.fill.at)))
    both = torch.stack([left.detach(), (x.detach() * x.grad).sum(), crossed.double()])
    there, back, rows = wire.total_of_hosts(Kind.METRICS, both).tolist()
    assert (rows > 0) == (wire.silos > 1), f"{rows} rows have crossed between {wire.silos} silos"
    assert abs(there - back) <= 1e-10 * abs(there), f"<Ax, y> is {there}, <x, A'y> is {back}"


def partials_are_merged_by_the_server(wire: Wire) -> None:
    """Each silo has a slot, and every silo a partial for it: two columns are summed, of one the largest counts."""
    n, mine = wire.silos, torch.tensor(wire.mine, dtype=torch.int64)
    wire.releases.open(n * len(mine))
    sender, slot = mine.repeat_interleave(n), torch.arange(n).repeat(len(mine))
    place = torch.arange(len(sender))
    labels = torch.stack([slot, torch.zeros_like(slot), torch.ones_like(slot)], 1)
    slots = mine, torch.arange(len(mine))
    relay = open_relay(wire, (sender, place, place), labels, slots, torch.full_like(mine, n), 1)
    every = _of(torch.arange(n * n)).reshape(n, n, WIDTH)  # [sender, slot]
    x = every[list(wire.mine)].reshape(-1, WIDTH).requires_grad_()
    columns = [Column("sum", 2), Column("amax", 1)]
    got = wire.merge(x, relay, columns, 0)
    expected = torch.cat([every[..., :2].sum(0), every[..., 2:].amax(0)], 1)[list(wire.mine)]
    torch.testing.assert_close(got.detach(), expected, rtol=1e-12, atol=1e-12)
    wire.close(got.sum()).backward()
    largest = every[..., 2:] == every[..., 2:].amax(0)
    derivative = torch.cat([torch.ones_like(every[..., :2]), largest.double()], 2)[list(wire.mine)]
    _equal(x.grad, derivative.reshape(-1, WIDTH), "the derivative by a partial")


def bytes_and_their_expectation(wire: Wire) -> tuple[dict[str, int], dict[str, int]]:
    """What this host's ledger has of some calls, and what all of them together must have: bytes by kind."""
    layout = _laid_out(wire)
    n, before = wire.silos, wire.ledger.by_kind()
    wire.post(Kind.FEATURES, {(silo, (silo + 1) % n): torch.zeros(silo + 1, 2).double() for silo in wire.mine})
    wire.total(Kind.GRADIENTS, _mine(wire))
    wire.share(Kind.LABELS, _mine(wire))
    x = _of(layout.stack.keys[layout.stack.owned]).requires_grad_()
    wire.close(wire.linear(x, _route(wire, layout), Kind.EMBEDDINGS, True).sum()).backward()
    told = {kind: size - before.get(kind, 0) for kind, size in wire.ledger.by_kind().items()}
    halo, row = sum(silo.h for silo in small_silos(n, 6 * n)), WIDTH * NUMBERS
    expected = {
        Kind.FEATURES: sum(range(1, n + 1)) * 2 * NUMBERS,
        Kind.GRADIENTS: 2 * n * row,  # up and down
        Kind.LABELS: n * row + n * n * row,  # each tells one row, and is told all
        Kind.IDS: halo * NUMBERS,
        Kind.EMBEDDINGS: halo * row,
        Kind.ADJOINTS: halo * row,
    }
    return {kind: size for kind, size in told.items() if size}, {kind.value: size for kind, size in expected.items()}


TRUTHS: tuple[Callable[[Wire], Any], ...] = (
    a_total_is_the_sum_in_silo_order,
    a_total_has_an_adjoint,
    shared_rows_are_known_to_all,
    the_server_alone_judges,
    a_letter_is_a_copy,
    rows_arrive_where_they_are_held,
    the_way_back_is_the_transpose,
    partials_are_merged_by_the_server,
    bytes_and_their_expectation,
)


def _equal(found: Tensor | None, expected: Tensor, what: str) -> None:
    assert found is not None and torch.equal(found, expected), f"{what} is {found}, and should be {expected}"

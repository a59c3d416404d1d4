"""FedPerGNN: what it equals without noise and pseudo items, which rows these fill, and what leaves a silo."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor

import isthmus
from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.core.parcel import Parcel
from isthmus.graph.graph import TEST, TRAIN
from isthmus.graph.silo import Silo
from isthmus.launch.release_files import BY_SEED, notes_on_noise
from isthmus.methods.exchange.fwd_bwd_le import LayerWise
from isthmus.methods.method import Method
from isthmus.methods.sync.base import Sync
from isthmus.methods.sync.fedpergnn import PseudoItems, feature_tables, pseudo_items
from isthmus.methods.sync.sync_sgd import SyncSGD
from isthmus.protect.laplace import Laplace
from isthmus.protect.secrets import Noise, secrets_from_seed
from isthmus.testing.runs import losses, method_of, open_of, resumed, small_silos, walk
from isthmus.train.loop import train
from isthmus.train.training import Training
from isthmus.wire.policy import Policy
from isthmus.wire.wire import Wire
from tests.helpers.hosts import on_hosts, on_wire
from tests.helpers.small import assert_same, numbers

SETTINGS = ({}, {"batch": 3, "fanout": (2,)})


def silos() -> list[Silo]:
    """Three silos; no node of the first has the features 1 and 3, none of the second has feature 0."""
    made = small_silos()
    for silo, absent in zip(made, ([1, 3], [0], []), strict=True):
        assert isinstance(silo.x, Tensor)
        silo.x[:, absent] = 0
    return made


UNEVEN = list(zip(small_silos(), (6, 4, 2), strict=True))


def fedpergnn(items: int = 1000, protect: Laplace | None = None, **sync: Any) -> Method:
    return method_of(sync=PseudoItems(items=items, **sync), protect=(protect,) if protect else ())


@dataclass(frozen=True)
class Listener(Policy):
    """Lets everything leave, and keeps the gradients that silos send, before they are protected."""

    heard: list[Tensor] = field(default_factory=list)

    def refusal(self, parcel: Parcel) -> str:
        if parcel.kind == Kind.GRADIENTS and not parcel.by_server:
            self.heard.append(parcel.rows.clone())
        return ""


def first_gradients(method: Method, **options: Any) -> tuple[Training, Tensor]:
    """A run of one step, and the gradients [silos, numbers] that left at it."""
    training = open_of(method, silos(), "gcn", steps=1, **options)
    training.wire.policy = Listener()
    train(training)
    return training, training.wire.policy.heard[0]


# ---- what it equals


@pytest.mark.parametrize("given", SETTINGS)
@pytest.mark.parametrize("weights", ["silos", "nodes", "seeds"])
def test_without_noise_and_pseudo_items_it_is_sync_sgd(given: dict[str, Any], weights: str) -> None:
    options: dict[str, Any] = {"batches": "local", "epochs": 4, **given}
    for protect in (None, Laplace()):
        ours = train(open_of(fedpergnn(0, protect, weights=weights), silos(), "gcn", **options))
        theirs = train(open_of(method_of(sync=SyncSGD(weights=weights)), silos(), "gcn", **options))
        assert_same(ours, theirs)
        assert ours.training.wire.noise.draws == 0


def test_noise_and_pseudo_items_each_change_what_is_learnt() -> None:
    runs = [fedpergnn(0), fedpergnn(2), fedpergnn(0, Laplace(0.1, 0.2)), fedpergnn(0, Laplace(bound=0.01))]
    assert len({tuple(losses(train(open_of(method, silos(), "gcn")))) for method in runs}) == 4


# ---- what leaves


def test_each_silo_sends_the_gradient_of_its_own_mean_loss() -> None:
    """Not weighed: as if it trained alone. Bounds and noise then mean the same however many silos there are."""
    _, sent = first_gradients(fedpergnn(0))
    alone = open_of(method_of(sync=Sync()), silos(), "gcn", steps=1)
    train(alone)
    own = alone.learner.classifier.sets.flat_gradients()
    torch.testing.assert_close(sent, own, rtol=1e-12, atol=1e-14)


def test_the_mean_is_one_of_bounded_gradients() -> None:
    """Each number within the bound before silos are weighed: the gradient that all step by is the mean of these."""
    _, sent = first_gradients(fedpergnn(0))
    bounded, _ = first_gradients(fedpergnn(0, Laplace(bound=0.003)))
    stepped = bounded.learner.classifier.sets.flat_gradients()
    torch.testing.assert_close(stepped[0], sent.clamp(-0.003, 0.003).mean(0), rtol=1e-12, atol=1e-15)
    assert float(sent.abs().max()) > 0.01 and torch.equal(stepped[0], stepped[2])


def test_only_silos_with_a_batch_count_at_a_step() -> None:
    """Silos have 6, 4 and 2 training nodes: after a step of all, one of two, and one of the first alone."""
    parts = [replace(silo, split=torch.tensor([TRAIN] * n + [TEST] * (6 - n), dtype=torch.int8)) for silo, n in UNEVEN]
    training = open_of(fedpergnn(0, Laplace(bound=0.003)), parts, "gcn", batches="local", batch=2, fanout=(3,))
    training.wire.policy = listener = Listener()
    for step, _ in enumerate(walk(training)):
        active = 3 - step % 3
        wanted = listener.heard[step].clamp(-0.003, 0.003)[:active].mean(0)
        torch.testing.assert_close(training.learner.classifier.sets.flat_gradients()[0], wanted, rtol=1e-12, atol=1e-15)
    assert step == 8


@pytest.mark.parametrize("options", [{}, {"embed": False}, {"embed": False, "directed": True}])
def test_pseudo_items_fill_rows_of_features_that_a_silo_does_not_have_and_no_others(options: dict[str, Any]) -> None:
    _, plain = first_gradients(fedpergnn(0), model_options=options)
    training, sent = first_gradients(fedpergnn(1000), model_options=options)
    sets = training.learner.classifier.sets
    tables = feature_tables(training.learner.classifier, training.stage.site)
    assert tables and all(name.startswith("layers.0." if options else "enter.") for name in tables)
    at = 0
    for name, p in sets.parameters.items():
        before, after = (each[:, at : at + p[0].numel()].reshape(p.shape) for each in (plain, sent))
        at += p[0].numel()
        if name not in tables:
            assert torch.equal(before, after), name
            continue
        for silo, absent in enumerate(([1, 3], [0], [])):
            rows, filled = before[silo].movedim(-2, 0), after[silo].movedim(-2, 0)
            zero = [i for i in range(5) if not bool(rows[i].any())]
            assert zero == absent and bool(filled.flatten(1).any(1).all())
            kept = [i for i in range(5) if i not in absent]
            assert torch.equal(rows[kept], filled[kept])


def rows_of_a_gradient() -> Tensor:
    """60 rows, of which 20 are not 0: normal, with a mean and covariance of their own."""
    generator = torch.Generator().manual_seed(4)
    mix = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    rows = torch.zeros(60, 3, dtype=torch.float64)
    rows[::3] = torch.randn(20, 3, generator=generator, dtype=torch.float64) @ mix + torch.tensor([1.0, -2.0, 0.5])
    return rows


def noise(draws: int = 0, seed: int = 0) -> Noise:
    found = Noise(secrets_from_seed(seed, (0, 1)))
    found.draws = draws
    return found


def test_pseudo_items_have_the_mean_and_covariance_of_the_real_ones() -> None:
    rows = rows_of_a_gradient()
    items = torch.cat([pseudo_items(rows, 40, 0, noise(draws))[1] for draws in range(500)])
    real = rows[::3]
    spread = real.std(0, correction=0)
    assert bool(((items.mean(0) - real.mean(0)).abs() < 0.05 * spread).all())
    torch.testing.assert_close(torch.cov(items.T), torch.cov(real.T, correction=0), rtol=0.05, atol=0.05)


def test_pseudo_items_are_drawn_among_empty_rows_by_a_silo_s_secret() -> None:
    rows = rows_of_a_gradient()
    at, items = pseudo_items(rows, 10, 0, noise())
    assert len(set(at.tolist())) == 10 and not bool((at % 3 == 0).any()) and items.shape == (10, 3)
    again = pseudo_items(rows, 10, 0, noise())
    assert torch.equal(again[0], at) and torch.equal(again[1], items)
    for other in (pseudo_items(rows, 10, 1, noise()), pseudo_items(rows, 10, 0, noise(1))):
        assert other[0].tolist() != at.tolist()
    assert len(pseudo_items(rows, 100, 0, noise())[0]) == 40
    chosen = torch.cat([pseudo_items(rows, 10, 0, noise(draws))[0] for draws in range(400)])
    often = torch.bincount(chosen, minlength=60)[rows.any(1).logical_not()]
    assert 60 < int(often.min()) and int(often.max()) < 140  # 100 each


@pytest.mark.parametrize("real", [0, 1, 2])
def test_few_or_no_real_rows_are_no_trouble(real: int) -> None:
    rows = torch.zeros(6, 4)
    rows[:real] = torch.arange(1.0, 5)
    at, items = pseudo_items(rows, 3, 0, noise())
    assert len(at) == (3 if real else 0) and items.dtype == rows.dtype
    torch.testing.assert_close(items, torch.arange(1.0, 5).repeat(len(at), 1))


def test_pseudo_items_need_secrets_also_without_noise_and_a_simulation_says_so() -> None:
    result = isthmus.fit(silos(), fedpergnn(3), "gcn", settings={"train": {"epochs": 2}})
    assert result.training.wire.noise.secrets and result.training.wire.noise.draws == 2
    assert notes_on_noise(result.training.wire) == [BY_SEED]


def test_a_resumed_run_is_the_same_to_the_last_bit() -> None:
    def opened() -> Training:
        method = fedpergnn(3, Laplace(0.1, 0.05))
        return open_of(method, silos(), "gcn", epochs=3, batches="local", batch=3, fanout=(2,))

    whole, again = resumed(opened, (1, 2))
    for each in again.values():
        assert losses(each) == losses(whole)[-len(losses(each)) :]


def outcome(wire: Wire | None = None) -> tuple[list[float], int]:
    """Losses of a run whose pseudo items and noise are drawn from silos' secrets, and its draws."""
    method = fedpergnn(3, Laplace(0.1, 0.05))
    result = train(open_of(method, silos(), "gcn", epochs=4, wire=wire))
    return losses(result), result.training.wire.noise.draws


@pytest.mark.hosts
def test_a_server_and_silos_in_processes_of_their_own_change_nothing() -> None:
    wanted, draws = outcome()
    for found, drawn in on_hosts(4, on_wire, 3, outcome):
        torch.testing.assert_close(numbers(found), numbers(wanted), rtol=1e-11, atol=0)
        assert drawn == draws


# ---- what it refuses


def test_joint_batches_and_rows_of_far_ends_are_refused() -> None:
    with pytest.raises(IsthmusError, match="train.batches=local"):
        open_of(fedpergnn(weights="seeds"), silos(), batches="joint")
    with pytest.raises(IsthmusError, match="needs train.batches=local"):
        open_of(fedpergnn(weights="silos"), silos(), batches="joint")
    crossing = replace(fedpergnn(), phases=method_of(sync=PseudoItems(), exchange=LayerWise()).phases)
    with pytest.raises(IsthmusError, match="sync=fedpergnn reads the gradient of each silo's own loss"):
        open_of(crossing, silos(), batches="local")


def test_fewer_than_no_items_are_refused() -> None:
    with pytest.raises(IsthmusError, match="sync.items is -1; it must be 0"):
        PseudoItems(items=-1)

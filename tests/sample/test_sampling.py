"""Neighbour sampling: the same for any placement, uniform, within the fanout."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from isthmus.graph.cut import split_graph
from isthmus.graph.stack import Stack, build_stack
from isthmus.sample.batcher import Batcher
from isthmus.sample.neighbours import Draws, Sample, Sampler, integer_runs
from isthmus.sample.order import Joint, Local, Pool, draw_batches, rule_of
from isthmus.wire.local import LocalWire
from tests.helpers.small import small_graph


def stack_of(graph, owner, silos: int, halo: str = "drop") -> Stack:
    return build_stack(split_graph(graph, owner, silos), halo, torch.float64, graph.schema)


def sampled_edges(stack: Stack, sample: Sample) -> dict[str, set[int]]:
    return {
        "in": set(stack.edge_keys[stack.incoming.edge[sample.incoming]].tolist()),
        "out": set(stack.edge_keys[stack.outgoing.edge[sample.outgoing]].tolist()),
    }


@given(seed=st.integers(0, 999), step=st.integers(0, 50), silos=st.integers(1, 6), fanout=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_the_same_sample_for_any_placement(seed: int, step: int, silos: int, fanout: int) -> None:
    owner = torch.randint(0, silos, (20,), generator=torch.Generator().manual_seed(seed))
    graph = small_graph(20, 80, seed, inner=owner)
    one, many = stack_of(graph, owner * 0, 1), stack_of(graph, owner, silos)
    keys = one.keys[:5]
    found = []
    for stack in (one, many):
        roots = torch.isin(stack.keys, keys).nonzero().flatten()
        sample = Sampler(stack, (fanout, fanout), Draws(seed), directed=True).sample(roots, step)
        depth = dict(zip(stack.keys[sample.rows].tolist(), sample.depth.tolist(), strict=True))
        found.append((sampled_edges(stack, sample), depth))
    assert found[0] == found[1]


def test_fanout_is_respected_and_all_edges_are_taken_where_it_suffices() -> None:
    graph = small_graph(20, 120)
    stack = stack_of(graph, torch.zeros(20, dtype=torch.int64), 1)
    roots = torch.arange(20)
    for fanout in (1, 3, -1):
        sample = Sampler(stack, (fanout,), Draws(0), directed=False).sample(roots, 0)
        taken = torch.bincount(stack.ends[1][stack.incoming.edge[sample.incoming]], minlength=20)
        limit = stack.incoming.degree if fanout < 0 else stack.incoming.degree.clamp(max=fanout)
        assert torch.equal(taken, limit)


def test_every_neighbour_is_equally_likely() -> None:
    graph = small_graph(20, 200)
    stack = stack_of(graph, torch.zeros(20, dtype=torch.int64), 1)
    hub = int(stack.incoming.degree.argmax())
    degree, counts = int(stack.incoming.degree[hub]), torch.zeros(stack.ends.shape[1])
    sampler = Sampler(stack, (3,), Draws(0), directed=False)
    for step in range(3000):
        counts[stack.incoming.edge[sampler.sample(torch.tensor([hub]), step).incoming]] += 1
    seen = counts[counts > 0]
    assert len(seen) == degree
    assert chisquare(seen.numpy()).pvalue > 1e-4


def test_neighbours_that_are_not_drawn_again_stay_the_same() -> None:
    stack = stack_of(small_graph(20, 200), torch.zeros(20, dtype=torch.int64), 1)
    roots = torch.arange(10)

    def drawn(anew: bool, fanout: int, step: int, purpose: str) -> set[int]:
        return set(
            Sampler(stack, (fanout,), Draws(0, anew), directed=False).sample(roots, step, purpose).incoming.tolist()
        )

    first = drawn(False, 3, 0, "train")
    assert first == drawn(False, 3, 7, "valid") and first < drawn(False, 5, 1, "train")
    assert first != drawn(True, 3, 0, "train") != drawn(True, 3, 1, "train")


@given(seed=st.integers(0, 99), silos=st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_blocks_of_full_neighbourhoods_hold_every_edge_into_their_targets(seed: int, silos: int) -> None:
    owner = torch.randint(0, silos, (15,), generator=torch.Generator().manual_seed(seed))
    stack = stack_of(small_graph(15, 50, seed), owner, silos, "placeholder")
    batcher = Batcher(stack, layers=2, directed=False, target="node", ego=False, reads_halo=False, degrees=True)
    pool = Pool(
        stack.owned.nonzero().flatten()[::3].contiguous(),
        stack.keys,
        tuple(stack.segments(stack.owned.nonzero().flatten()[::3].contiguous())),
        torch.tensor([1]),
    )
    sample = Sampler(stack, (-1, -1), Draws(seed), directed=False).sample(pool.index, 0)
    batch = batcher.sampled(pool.all(torch.ones(1)), sample, 0)
    for block in batch.blocks:
        assert torch.equal(block.count, block.dst_degree)
        assert bool((block.dst[1:] >= block.dst[:-1]).all())
    assert torch.equal(batch.blocks[-1].targets.keys[batch.ends[0]], stack.keys[pool.index])


def make_pool(counts: list[int]) -> Pool:
    keys = torch.arange(sum(counts)) * 11 + 5
    ptr = (0, *torch.tensor(counts).cumsum(0).tolist())
    return Pool(torch.arange(sum(counts)), keys, ptr, torch.tensor(counts))


@pytest.mark.parametrize("how", ["local", "joint"])
def test_an_epoch_visits_every_seed_once_in_batches_of_the_asked_size(how: str) -> None:
    pool = make_pool([7, 0, 12, 1])
    for epoch in range(3):
        drawn = list(draw_batches(pool, LocalWire(4), rule_of(how), 5, 0, "train", epoch))
        assert sorted(torch.cat([seeds.index for seeds in drawn]).tolist()) == list(range(20))
        assert [len(seeds.index) for seeds in drawn] == [seeds.count for seeds in drawn]
        assert all(int(seeds.slot.max()) < 5 for seeds in drawn)
    assert [seeds.count for seeds in drawn] == ([11, 7, 2] if how == "local" else [5, 5, 5, 5])


def test_joint_ranks_do_not_depend_on_who_owns_what() -> None:
    keys = torch.randperm(30)
    one = Pool(torch.arange(30), keys, (0, 30), torch.tensor([30]))
    many = Pool(torch.arange(30), keys, (0, 4, 4, 30), torch.tensor([4, 0, 26]))
    assert torch.equal(Joint().ranks(one, LocalWire(1), 99), Joint().ranks(many, LocalWire(3), 99))
    assert torch.equal(Joint().ranks(one, LocalWire(1), 99), Local().ranks(one, LocalWire(1), 99))


def test_spread_lists_ranges() -> None:
    assert integer_runs(torch.tensor([3, 9, 0]), torch.tensor([2, 0, 3])).tolist() == [3, 4, 0, 1, 2]


def test_what_a_seed_counts_in_a_shared_loss() -> None:
    """Joint batches: all seeds alike. Local ones: silos by their nodes, among those that have seeds left."""
    none = torch.zeros(0, dtype=torch.int64)
    pool = Pool(none, none, (0, 0), torch.tensor([10, 2, 0]))
    torch.testing.assert_close(Local().seed_weights(pool, 4, 0), torch.tensor([10 / 48, 2 / 24, 0]).double())
    torch.testing.assert_close(Local().seed_weights(pool, 4, 2), torch.tensor([1 / 2, 0, 0]).double())
    assert Joint().seed_weights(pool, 5, 2).tolist() == [1 / 2, 1 / 2, 1 / 2]

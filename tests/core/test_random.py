"""Counter-based randomness: a function of public things only."""

import numpy as np
import torch

from isthmus.core.random import combine, draw, keep_mask, keys_of, mix, order, stream

IDS = torch.arange(-500, 1500)


def test_a_draw_belongs_to_the_id_not_to_its_place() -> None:
    key = stream(7, "test", 3)
    shuffled = torch.randperm(len(IDS))
    assert torch.equal(draw(key, IDS)[shuffled], draw(key, IDS[shuffled]))


def test_streams_differ_by_seed_purpose_and_counter() -> None:
    keys = {stream(0, "a", 1), stream(1, "a", 1), stream(0, "b", 1), stream(0, "a", 2), stream(0, "a", 1, 0)}
    assert len(keys) == 5


def test_mix_is_splitmix64s_finaliser() -> None:
    def reference(x: int) -> int:
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
        return x ^ (x >> 31)

    values = [0, 1, 2**63 - 1, -(2**63), -1, 123456789]
    ours = mix(torch.tensor(values)).tolist()
    assert [v % 2**64 for v in ours] == [reference(v % 2**64) for v in values]


def test_draws_have_no_repeats_and_every_bit_is_fair() -> None:
    drawn = draw(stream(0, "bits"), torch.arange(20000))
    assert len(torch.unique(drawn)) == 20000
    for bit in range(64):
        share = float(((drawn >> bit) & 1).double().mean())
        assert abs(share - 0.5) < 0.02, bit  # five standard deviations


def test_text_ids_and_integer_ids_have_keys() -> None:
    assert keys_of(np.array([5, -3, 2**62])).tolist() == [5, -3, 2**62]
    text = keys_of(np.array(["5", "ä b", "", "5 "], dtype=object))
    assert len(set(text.tolist())) == 4
    assert torch.equal(text, keys_of(np.array(["5", "ä b", "", "5 "])))


def test_combining_keys_depends_on_the_order() -> None:
    a, b = torch.tensor([1]), torch.tensor([2])
    assert combine(a, b) != combine(b, a)


def test_shuffles_are_permutations_that_change_with_the_key() -> None:
    first, second = order(stream(0, "s", 0), IDS), order(stream(0, "s", 1), IDS)
    assert sorted(first.tolist()) == list(range(len(IDS)))
    assert not torch.equal(first, second)


def test_dropout_masks_have_the_asked_rate_in_every_column() -> None:
    mask = keep_mask(stream(0, "d"), torch.arange(20000), 7, 0.3)
    assert mask.shape == (20000, 7)
    assert torch.allclose(mask.double().mean(0), torch.tensor(0.7).double(), atol=0.02)
    assert bool(keep_mask(stream(0, "d"), torch.arange(50), 5, 0.0).all())

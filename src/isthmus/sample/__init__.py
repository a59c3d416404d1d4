"""Placement-invariant randomness, sampling and batches."""

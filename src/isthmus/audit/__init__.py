"""Attacks on what a run has released."""

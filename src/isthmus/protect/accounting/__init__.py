"""Privacy guarantees, computed from what a run has released."""

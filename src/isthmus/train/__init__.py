"""The one loop: steps, rounds, phases, validation, selection, checkpoints."""

"""Isthmus: one graph neural network across graphs that cannot be merged."""

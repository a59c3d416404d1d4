"""Graphs, how they are split between silos, what a silo holds, and the silos of one host as one graph."""

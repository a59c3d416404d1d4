"""Graphs, runs and hosts that tests share."""

"""Graphs, silos, splits and the handshake."""

"""Recorded loss curves, bytes and releases of every method: what a change that means no change must leave alone.

``python -m tests.goldens.record`` writes them anew. A change that moves a number on purpose does so in a commit of its
own, which says why and brings the new files.
"""

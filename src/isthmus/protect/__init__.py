"""Protect."""

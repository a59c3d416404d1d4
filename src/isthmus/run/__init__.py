"""Runs: configuration, hosts, run folders, reports."""

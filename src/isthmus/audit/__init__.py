"""Audits: attacks on the rows that a finished run has released."""

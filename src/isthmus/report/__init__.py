"""Pages, tables and drawings of finished runs."""

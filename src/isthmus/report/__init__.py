"""Reports of finished runs: pages, tables and drawings."""

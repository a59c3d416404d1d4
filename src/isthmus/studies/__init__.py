"""Studies: tables of papers, run again and compared with the published values."""

"""Starting hosts, and what a run leaves behind."""

"""A paper's tables again: its rows run here, its values beside ours."""

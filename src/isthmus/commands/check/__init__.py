"""``isthmus check``: all problems of data at once, and what a run would do with it."""

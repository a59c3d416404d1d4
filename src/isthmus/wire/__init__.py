"""The wire: everything that silos and the server send to each other, within one process or between several."""

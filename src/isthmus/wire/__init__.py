"""The one door between silos, in one process or between several."""

"""Plans: the bytes, time and privacy loss of a run, estimated before anything leaves."""

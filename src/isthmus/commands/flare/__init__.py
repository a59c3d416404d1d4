"""What ``isthmus flare`` does, and the two parts of a FLARE job: one for the sites, one for the server."""

"""What a run would send, wait for and give away, before anything leaves."""

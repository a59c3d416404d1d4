"""Which seeds a step learns from, the neighbours sampled around them, and the batches made of both."""

"""What crosses the boundary during training, and when."""

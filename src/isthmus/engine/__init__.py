"""What a training step needs on one host: layout of the graph, models that learn, forward passes."""

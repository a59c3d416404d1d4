"""How parameters agree between silos."""

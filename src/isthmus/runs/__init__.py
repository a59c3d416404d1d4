"""Runs as data: recipes, configurations, run folders, and facts and texts read from them."""

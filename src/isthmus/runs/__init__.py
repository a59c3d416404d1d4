"""Runs as data: recipes, configurations, run folders and what they tell."""

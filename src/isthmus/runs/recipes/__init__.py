"""Recipes that ship with the package."""

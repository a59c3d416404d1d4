"""The axes of a method and the catalogue of published ones."""

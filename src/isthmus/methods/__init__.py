"""The parts that methods are made of, and the catalogue of published methods."""

"""A party's own rules: read from its own disk, applied at its door, and an account of what it has given away."""

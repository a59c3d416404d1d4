"""What a silo minimises."""

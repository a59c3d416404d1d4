"""What is done to a payload before it leaves."""

"""What is done to a payload before it leaves a silo, and what its release costs in privacy."""

"""Protection: mechanisms that change a payload before it leaves a silo, and accounting of what its release tells."""

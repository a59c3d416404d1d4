"""From what was released to guarantees."""

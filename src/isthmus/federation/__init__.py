"""What silos settle with each other before training: handshake, boundary, statistics."""

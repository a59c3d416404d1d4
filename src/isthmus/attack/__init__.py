"""What an adversary can do with what crossed."""

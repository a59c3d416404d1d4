"""What everything else stands on: errors, kinds of messages, hash randomness, coercion, files."""

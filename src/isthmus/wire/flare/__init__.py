"""Letters between organisations: sealed from end to end by the parties; NVIDIA FLARE carries them and reads nothing."""

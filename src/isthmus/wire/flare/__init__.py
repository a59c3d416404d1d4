"""Letters between organisations: sealed from end to end by the parties, carried by NVIDIA FLARE, which reads nothing."""

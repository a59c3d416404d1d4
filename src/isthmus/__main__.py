"""``python -m isthmus`` is the command line; ``torchrun -m isthmus run ...`` starts one host of a cluster."""

from isthmus.cli import main

main()

"""The local page: runs while they train and when they have ended, on this machine alone."""

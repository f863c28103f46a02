"""One log directory as a whole: its owner, its lock, its checkpoint files, and the logs in it."""

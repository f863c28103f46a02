"""One log directory: its owner, its lock, its checkpoint files, and the logs in it. The first error
of the disk takes the whole directory offline.
"""

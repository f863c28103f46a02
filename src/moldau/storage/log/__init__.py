"""One partition's log: appending, reading, flushing, retention, recovery, and what happens when its
bytes are damaged.
"""

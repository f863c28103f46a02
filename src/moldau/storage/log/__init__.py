"""One partition's log: appending, reading, flushing, retention, recovery, and the handling of
damaged bytes. A log has one owning thread; only reads of files and syncs may run in others.
"""

"""The partitions that have a replica on this node, and the maintenance of their logs: flushing,
cleaning, retention, moves between directories. The event loop owns them; syncs run in threads.
"""

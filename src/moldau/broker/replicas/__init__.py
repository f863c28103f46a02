"""The partitions that have a replica on this node, and the upkeep of their logs: flushing,
cleaning, retention, moves between directories.
"""

"""Consumer groups and their offsets: one shard for each partition of __consumer_offsets.

Classic groups are here whole. Groups of later kinds are known by their records, listed, and kept.
"""

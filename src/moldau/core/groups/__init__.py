"""Consumer groups and their offsets: one shard for each partition of __consumer_offsets.

Classic groups are coordinated here. Groups of later kinds are only listed, and their records kept.
"""

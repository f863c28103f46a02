"""Group and transaction coordinators: each partition of their internal topics that is led here has
a shard, which is loaded from its log and performs what `core` decides.
"""

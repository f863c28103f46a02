"""Group and transaction coordinators: each partition of their internal topics that this broker
leads has a shard, which is loaded from its log and performs the decisions of `core`.
"""

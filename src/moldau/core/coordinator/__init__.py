"""What every coordinator has in common: a state machine per partition of its topic (a shard), that
decides on records, replays them, and asks for everything else by effects.
"""

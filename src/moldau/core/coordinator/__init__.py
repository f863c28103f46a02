"""The common base of all coordinators: one state machine (a shard) per partition of the
coordinator's topic. A shard decides on records, replays them, and requests everything else as
effects.
"""

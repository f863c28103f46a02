"""A consumer's decisions: group membership, positions, resets, fetch sessions and auto-commit.
Events go in, effects come out.
"""

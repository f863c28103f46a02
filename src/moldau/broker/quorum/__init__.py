"""Runs the quorum machine of `core.quorum` over the metadata log, and writes its snapshots. The
machine decides; this package owns the files, the order of effects, and the waiting callers.
"""

"""Runs the quorum machine of `core.quorum` over the metadata log, and writes its snapshots."""

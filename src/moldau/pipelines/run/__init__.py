"""Runs a pipeline: its session, its queries with their micro-batches and progress, and the files
that a run keeps.
"""

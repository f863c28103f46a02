"""A pipeline at work: its session, its queries, their micro-batches and progress, and what a run
keeps on disk.
"""

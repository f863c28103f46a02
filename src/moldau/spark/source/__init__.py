"""Reads topics in Spark, in batches and streams. The driver plans ranges of offsets, tasks read
them.
"""

"""Writes topics from Spark, at least once or exactly once. The driver owns transactions, tasks only
write in them.
"""

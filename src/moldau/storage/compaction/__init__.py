"""Compaction: the last value of each key stays. Start at cleaner.py."""

"""Compaction: a log keeps at least the last value of each key. Start at cleaner.py. The cleaner
runs in the thread that owns the logs; a pass works on sealed files only, in any thread.
"""

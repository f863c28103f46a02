"""Record batches, version 2: reading, building, checking and compressing them. A function here sees
bytes and values, never a log or a topic.
"""

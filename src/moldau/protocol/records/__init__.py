"""Record batches, version 2: reading, building, validating and compressing them. Functions here
work on bytes and values; they know neither logs nor topics.
"""

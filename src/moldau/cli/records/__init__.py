"""Commands about records: produce, consume, offsets, records. A command's module holds its options,
another one its work.
"""

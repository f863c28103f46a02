"""Commands about records: produce, consume, offsets, records."""

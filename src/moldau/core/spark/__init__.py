"""What the source and sink of Spark decide: options, offset ranges, filters, progress, and which
micro-batch is committed.
"""

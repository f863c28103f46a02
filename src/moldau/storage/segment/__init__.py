"""One segment of a log: its file of batches and its indexes. Indexes are caches and can always be
rebuilt from the batches.
"""

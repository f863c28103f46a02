"""The cluster's metadata: an immutable image, and deltas that records are replayed into. Replaying
is the only way to make a new image.
"""

"""KRaft consensus over the metadata log."""

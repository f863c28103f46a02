"""Writing topics from Spark, at least once or exactly once."""

"""Reading topics in Spark, in batches and streams."""

"""What the source and the sink of Spark decide, without Spark and without I/O."""

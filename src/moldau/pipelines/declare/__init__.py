"""What users write, in Python or YAML, as declarations with their place in the file. Nothing here
needs Spark.
"""

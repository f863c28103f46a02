"""A declared pipeline as plain data: its graph, its validation, and the progress of its queries.
Nothing here needs Spark.
"""

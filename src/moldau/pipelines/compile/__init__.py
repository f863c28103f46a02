"""A declared pipeline as Spark frames: sources, values, flows, expectations, queries. Nothing here
starts a query.
"""

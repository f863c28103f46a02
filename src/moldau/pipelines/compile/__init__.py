"""Turns a declared pipeline into Spark frames: sources, values, flows, expectations, queries.
Nothing here starts a query.
"""

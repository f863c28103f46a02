"""A declared pipeline as plain data: its graph, its validation, and the progress of a query."""

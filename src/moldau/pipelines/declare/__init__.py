"""Turns users' files, in Python or YAML, into declarations that know their line. Nothing here needs
Spark.
"""

"""Shared by sources and sinks in Spark's Python processes: connections, Java, errors. Nothing here
reads or writes records.
"""

"""Moldau: Apache Kafka's system in Python. Importing this package loads nothing heavy."""

__version__ = "0.2.0"

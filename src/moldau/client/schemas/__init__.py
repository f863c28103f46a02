"""Serializers and deserializers with a schema registry, in Confluent's wire format. The library of
each format is an extra, imported when it is first used.
"""

"""A small client for our own tools: metadata, producing, fetching, classic groups, administration.
It talks to Moldau and to Apache Kafka 3.0 or later.
"""

"""Logs on disk, in Kafka's file formats. Synchronous: no network, no asyncio, no clock."""

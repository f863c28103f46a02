"""The asyncio shell around the state machines: one broker or controller node. State machines
decide; this package reads requests, does the I/O and sends the responses.
"""

"""The blocking and the asyncio producer, over one session and one engine. `core.producer` decides
what to send and when.
"""

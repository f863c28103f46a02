"""The producers, blocking and asyncio, over one session and one engine. What to send and when is
decided in `core.producer`.
"""

"""The consumer: one engine, used by the asyncio client and, in a thread of its own, by the blocking
one. Decisions are in `core.consumer`.
"""

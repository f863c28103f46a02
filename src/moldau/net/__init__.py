"""The asyncio transport that broker and client share: clock, tasks, slices, frames, and the request
channel. Nothing here knows the meaning of a request.
"""

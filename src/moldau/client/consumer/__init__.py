"""The consumer: one engine, and its faces for asyncio and for threads."""

"""The consumer: one engine under two clients, for asyncio and for threads."""

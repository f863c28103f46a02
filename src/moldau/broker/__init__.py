"""The asyncio shell around the state machines: one node."""

"""The asyncio transport that broker and client share."""

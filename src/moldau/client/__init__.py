"""The producers, consumers and admin clients of `moldau` and `moldau.aio`, for Moldau and Apache
Kafka since 2.1. The command line and Spark use them too. Every client has an asyncio
implementation; the blocking ones run it in a thread of their own.
"""

"""Kafka's wire format: bytes <-> values. No I/O, no policy."""

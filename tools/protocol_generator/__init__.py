"""Turns the protocol facts into checked-in Python. Same facts, same output; nothing installed."""

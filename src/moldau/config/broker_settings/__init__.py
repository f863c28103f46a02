"""Declarations of the broker's settings by theme. `config/broker.py` combines them."""

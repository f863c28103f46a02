"""The broker's settings by theme. `config/broker.py` puts them together."""

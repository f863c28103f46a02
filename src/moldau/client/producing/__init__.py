"""The producer: `engine.py` does what `moldau.core.producer.sending` decides, the faces are in
`producer.py` and `aio_producer.py`.
"""

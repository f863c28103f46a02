"""A producer's decisions: partition and batch of each record, the requests to send, and the meaning
of each response. Bytes and values only; the client does the I/O.
"""

"""What a producer decides: which partition, which batch, what is sent when, and what each answer
means. Bytes and values only; the client sends them.
"""

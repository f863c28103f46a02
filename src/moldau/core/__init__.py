"""The decisions: synchronous state machines and functions without clock, randomness or I/O. Time
and chance come in as arguments; the shell carries out the effects.
"""

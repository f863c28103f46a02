"""Listeners, connections and dispatch: bytes in, handlers called, answers out in order. Nothing
here knows what a request means; every byte held for a client is counted here.
"""

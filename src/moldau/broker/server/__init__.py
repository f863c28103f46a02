"""Listeners, connections and dispatch: bytes in, handlers called, responses out in order. Nothing
here interprets a request's meaning; every byte held for a client is counted here.
"""

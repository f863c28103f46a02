"""Polls an HTTP address as a stream. `core.connectors` decides pages and cursors; here are requests
and files.
"""

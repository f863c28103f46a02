"""Shared by the handlers of Produce and Fetch: fetch sessions, waiting fetches, reads from a slow
disk, error responses. Nothing here blocks the event loop on a disk.
"""

"""What the handlers of Produce and Fetch share: fetch sessions, waiting fetches, reads from a slow
disk, refusals.
"""

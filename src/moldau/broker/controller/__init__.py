"""The active controller, and the channels to it: within one process, or over the network. All
metadata changes go through the controller, which answers when they are committed.
"""

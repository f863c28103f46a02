"""The active controller and the broker's channel to it within one process. All metadata changes go
through the controller, which answers when they are committed.
"""

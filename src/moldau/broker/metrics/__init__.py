"""A node's metrics, and their Prometheus endpoint. The hot path only increments plain numbers; text
is made on request.
"""

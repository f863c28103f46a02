"""Topics and the placement of their replicas: created, extended, described, deleted. A topic of a
request is decided on its own; a request's records are committed together.
"""

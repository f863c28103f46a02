"""The cluster as a client knows it: connections, metadata, leaders and coordinators, security. No
module here knows producers, consumers or admin calls.
"""

"""The cluster's decisions: brokers, topics, placement, leadership, settings, features. A decision
reads a context and returns records; only replaying those records changes the state.
"""

"""The cluster's decisions: brokers, topics, placement, leadership, settings, features."""

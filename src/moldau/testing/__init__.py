"""Shipped test support: the simulated disk."""

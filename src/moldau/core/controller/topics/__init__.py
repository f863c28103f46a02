"""Topics and the placement of their replicas: created, extended, described, deleted."""

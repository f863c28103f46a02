"""What a node counts, and how Prometheus reads it."""

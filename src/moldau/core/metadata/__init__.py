"""What the cluster is: an immutable image, and deltas that records make."""

"""What every coordinator shard has in common."""

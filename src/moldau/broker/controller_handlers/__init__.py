"""What a controller answers: one module per API."""

"""What a broker answers: one module per API."""

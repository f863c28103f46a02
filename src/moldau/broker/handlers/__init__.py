"""The requests that a broker's listener serves, one module per API."""

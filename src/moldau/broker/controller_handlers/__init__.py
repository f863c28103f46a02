"""The requests that a controller's listener serves, one module per API."""

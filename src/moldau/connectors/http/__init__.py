"""Polling an HTTP address as a stream. Pages and cursors are decided in `core.connectors`."""

"""Decisions that producers and consumers share: backoff after errors, and the SASL login."""

"""The error for a record of the metadata log that contradicts those before it."""

from moldau.protocol.errors import MoldauError


class MetadataReplayError(MoldauError):
    """The log is inconsistent. An image that misses a record must not be used."""

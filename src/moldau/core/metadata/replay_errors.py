"""What is raised when a record of the metadata log cannot follow those before it."""

from moldau.protocol.errors import MoldauError


class MetadataReplayError(MoldauError):
    """The log says something impossible. Nobody may go on with an image that misses a record."""

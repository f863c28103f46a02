"""ApiVersions on the controller's listener: the same response, listing the APIs served there."""

from moldau.broker.handlers.api_versions import handle_api_versions

__all__ = ["handle_api_versions"]

"""ACL requests on the controller's listener: the same responses as on the broker's."""

from moldau.broker.handlers.acls import handle_acls

__all__ = ["handle_acls"]

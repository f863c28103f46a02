"""Requests about ACLs on the controller's listener: the same answers as on the broker's."""

from moldau.broker.handlers.acls import handle_acls

__all__ = ["handle_acls"]

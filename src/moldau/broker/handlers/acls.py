"""DescribeAcls, CreateAcls and DeleteAcls: there is no authorizer, and the error messages are
Kafka's.
"""

from collections.abc import Iterable

from moldau.broker.server.context import AnyContext
from moldau.protocol.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import MalformedRequestError
from moldau.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from moldau.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from moldau.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

AclsRequest = DescribeAclsRequest | CreateAclsRequest | DeleteAclsRequest
AclsResponse = DescribeAclsResponse | CreateAclsResponse | DeleteAclsResponse

_DISABLED = ErrorCode.SECURITY_DISABLED
_NO_AUTHORIZER = "No Authorizer is configured."
_NO_AUTHORIZER_DESCRIBED = "No Authorizer is configured on the broker"


def handle_acls(_ctx: AnyContext, request: AclsRequest) -> AclsResponse:
    """Raises MalformedRequestError for UNKNOWN elements: Kafka closes the connection, too."""
    match request:
        case DescribeAclsRequest():
            _check_known([request])
            return DescribeAclsResponse(
                error_code=_DISABLED, error_message=_NO_AUTHORIZER_DESCRIBED
            )
        case CreateAclsRequest():
            _check_known(request.creations)
            refused = AclCreationResult(error_code=_DISABLED, error_message=_NO_AUTHORIZER)
            return CreateAclsResponse(results=[refused] * len(request.creations))
        case DeleteAclsRequest():
            _check_known(request.filters)
            none = DeleteAclsFilterResult(error_code=_DISABLED, error_message=_NO_AUTHORIZER)
            return DeleteAclsResponse(filter_results=[none] * len(request.filters))


def _check_known(elements: Iterable[DescribeAclsRequest | AclCreation | DeleteAclsFilter]) -> None:
    for each in elements:
        if isinstance(each, AclCreation):
            resource_type, pattern_type = each.resource_type, each.resource_pattern_type
        else:
            resource_type, pattern_type = each.resource_type_filter, each.pattern_type_filter
        if (
            resource_type == ResourceType.UNKNOWN
            or pattern_type == PatternType.UNKNOWN
            or each.operation == AclOperation.UNKNOWN
            or each.permission_type == AclPermissionType.UNKNOWN
        ):
            raise MalformedRequestError("a request about ACLs contains UNKNOWN elements")

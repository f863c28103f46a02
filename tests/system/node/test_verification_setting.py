"""transaction.partition.verification.enable, changed while the node runs."""

from collections.abc import Iterator

import pytest
from support.producer_talk import Conversation, wait_for_coordinator
from support.proofs import proves_change
from support.wire_client import WireClient

from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.testing import broker

SETTING = "transaction.partition.verification.enable"


@pytest.fixture
def address() -> Iterator[str]:
    with broker() as started:
        wait_for_coordinator(started.bootstrap)
        yield started.bootstrap


def switch(address: str, *, on: bool) -> None:
    change = AlterableConfig(name=SETTING, config_operation=0, value=str(on).lower())
    resource = AlterConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name="", configs=[change]
    )
    with WireClient(address) as client:
        request = IncrementalAlterConfigsRequest(resources=[resource])
        assert client.ask(request).responses[0].error_code == 0


@proves_change(SETTING)
def test_verification_can_be_switched_off_and_on_at_run_time(address: str) -> None:
    """Off, a partition accepts what old clients forgot to add, and it is never ended: as in
    Kafka.
    """
    conversation = Conversation(address)
    try:
        conversation.say("a inits")
        assert conversation.say("a writes t-0=x").endswith("TRANSACTION_ABORTABLE")
        switch(address, on=False)
        assert conversation.say("a writes t-0=x").endswith("NONE@0")
        assert conversation.say("a commits").endswith("INVALID_TXN_STATE")
        assert "open=0" in conversation.say("z looks t-0")
        switch(address, on=True)
        assert conversation.say("a writes t-1=x").endswith("TRANSACTION_ABORTABLE")
        assert conversation.say("a writes t-0=y").endswith("NONE@1"), "it is open here"
    finally:
        conversation.close()

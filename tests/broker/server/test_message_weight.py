"""The estimated size of a message is close to its real one."""

import tracemalloc
from collections.abc import Callable

import pytest

from moldau.broker.server.message_weight import weight_of
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.wire.schema import Message

COUNT = 20_000


def many_resources() -> Message:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=32, resource_name=f"g{number}")
            for number in range(COUNT)
        ]
    )


def many_topics() -> Message:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=f"topic-{number}") for number in range(COUNT)]
    )


def the_same_of_many() -> Message:
    settings = [
        DescribeConfigsResourceResult(name=f"setting.{n}", value=str(n)) for n in range(100)
    ]
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(resource_name=f"g{number}", configs=settings)
            for number in range(COUNT)
        ]
    )


@pytest.mark.parametrize("make", [many_resources, many_topics, the_same_of_many])
def test_a_message_weighs_about_its_size_in_memory(make: Callable[[], Message]) -> None:
    tracemalloc.start()
    try:
        message = make()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / 2 < weight_of(message) < taken * 4

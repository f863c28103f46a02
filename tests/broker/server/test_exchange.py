"""A request's share of the memory that connections share, from its frame to its response."""

from moldau.broker.server.dispatch import Begun, Route
from moldau.broker.server.exchange import Exchange
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

FRAME_BYTES = 100


def test_records_that_wait_for_other_answers_count() -> None:
    route = Route(ApiKey.FETCH, 12, 12, 2, FetchRequest)
    exchange = Exchange(Begun(route, 1, FetchRequest(), None), FRAME_BYTES, 0.0)
    before = exchange.bytes
    records = [bytes(70_000), memoryview(bytes(5_000)), None]
    exchange.answer = FetchResponse(
        responses=[
            FetchableTopicResponse(partitions=[PartitionData(records=each) for each in records]),
            FetchableTopicResponse(partitions=[PartitionData(records=bytes(11))]),
        ]
    )
    assert exchange.count_records() == 75_011
    assert exchange.bytes == before + 75_011

"""Patterns in ListTransactions match the same ids as Apache Kafka's RE2, and are refused in the
same cases.
"""

from collections.abc import Iterator

import pytest
from core.patterns.pattern_cases import PATTERNS, TEXTS, WRONG
from interop.apache import ApacheOracle
from interop.live_broker import LiveBroker
from support.wire_client import WireClient
from system.transactions.wire_producer import WireProducer

from moldau.core.patterns.matcher import Pattern
from moldau.core.patterns.syntax import PatternError
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.list_transactions import ListTransactionsRequest

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def client(apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireClient]:
    """A client of an Apache node that has a transactional id for each of the texts."""
    with LiveBroker(apache, tmp_path_factory.mktemp("apache")) as node:
        node.format()
        node.start()
        for text in TEXTS:
            with WireProducer(node.address, text) as producer:
                producer.init()
        with WireClient(node.address) as client:
            yield client


def test_patterns_match_the_same_ids(client: WireClient) -> None:
    differing = {}
    for pattern in PATTERNS:
        answer = client.ask(ListTransactionsRequest(transactional_id_pattern=pattern))
        theirs = {state.transactional_id for state in answer.transaction_states}
        ours = {text for text in TEXTS if Pattern(pattern).matches(text)}
        if (answer.error_code, theirs) != (0, ours):
            differing[pattern] = answer.error_code, theirs, ours
    assert differing == {}


def test_invalid_patterns_are_refused_by_both(client: WireClient) -> None:
    for pattern in WRONG:
        answer = client.ask(ListTransactionsRequest(transactional_id_pattern=pattern))
        assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION, pattern
        with pytest.raises(PatternError):
            Pattern(pattern)

"""Our consumer with Kafka 2.1.1: requests in the forms that it supports. It has no static members
and no topic ids, and its requests name one group at a time and one leaving member. The tests are
those of tests/client.
"""

from collections.abc import Iterator, Mapping

import pytest
from client.consumer.test_consumer import (  # noqa: F401 - the same tests, with another broker
    test_a_loop_commits_only_the_records_that_it_got,
    test_a_position_that_no_longer_exists_is_reset,
    test_each_partition_keeps_its_order,
    test_every_codec_is_read,
    test_paused_partitions_return_nothing_until_resumed,
    test_read_committed_omits_aborted_records,
    test_records_come_in_order_with_all_their_parts,
    test_seek_position_and_lag,
    test_times_are_found,
)
from client.consumer.test_consumer_groups import (  # noqa: F401
    test_a_member_that_polls_too_late_loses_its_partitions_and_rejoins,
    test_a_pattern_includes_later_topics,
    test_closing_leaves_the_group_at_once,
    test_commits_hold_offsets_and_metadata,
    test_cooperative_members_keep_what_stays_theirs,
    test_groups_are_shared_with_confluent_kafka,
    test_members_share_and_take_over,
    test_the_next_member_begins_where_the_last_one_ended,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from interop.apache import ApacheUnavailableError
from interop.missing import CACHE, give_up
from interop.old_broker import old_broker

pytestmark = pytest.mark.interop


class OldNode:
    """The interface to a broker that these tests use."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        topic = NewTopic(name, partitions, 1, config=dict(config or {}))
        for made in self._admin.create_topics([topic]).values():
            made.result(60)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldNode]:
    try:
        with old_broker(CACHE, tmp_path_factory.mktemp("old")) as address:
            yield OldNode(address)
    except ApacheUnavailableError as reason:
        give_up(reason)

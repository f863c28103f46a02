"""Elections on request: of the preferred replica, or of one that may lack records."""

from collections.abc import Iterable

from moldau.client.admin.topics import check_controller
from moldau.client.cluster.cluster import Cluster
from moldau.client.errors import check
from moldau.protocol.enums import ElectionType
from moldau.protocol.errors import KafkaError, error_code
from moldau.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from moldau.types import TopicPartition

_UNCLEAN_VERSION = 1


async def elect_leaders(
    cluster: Cluster, kind: ElectionType, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, KafkaError | None]:
    """Elects leaders of partitions; of all if `partitions` is None, and then the result contains
    only those that changed.
    """
    topics: dict[str, TopicPartitions] = {}
    for name, number in partitions or ():
        topics.setdefault(name, TopicPartitions(topic=name)).partitions.append(number)
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=None if partitions is None else list(topics.values()),
        timeout_ms=cluster.settings.request_timeout_ms,
    )
    oldest = _UNCLEAN_VERSION if kind is ElectionType.UNCLEAN else 0
    answer = await cluster.send_to_controller(request, ElectLeadersResponse, oldest=oldest)
    check(answer.error_code)
    rows = [row for topic in answer.replica_election_results for row in topic.partition_result]
    check_controller(row.error_code for row in rows)
    cluster.forget()
    return {
        TopicPartition(topic.topic, row.partition_id): (
            KafkaError(error_code(row.error_code), row.error_message or "")
            if row.error_code
            else None
        )
        for topic in answer.replica_election_results
        for row in topic.partition_result
    }

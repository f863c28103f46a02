"""The admin client for asyncio. What fails for one item is a value beside its siblings; what fails
as a whole is raised. Errors that may pass are tried again for default.api.timeout.ms.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from moldau.client.admin import (
    cluster,
    configs,
    features,
    group_members,
    groups,
    leaders,
    log_dirs,
    offsets,
    quorum,
    topic_descriptions,
    topics,
    transactions,
)
from moldau.client.admin.cluster import DescribedCluster
from moldau.client.admin.configs import ConfigChange, ConfigEntry, ConfigResource
from moldau.client.admin.features import DescribedFeatures, FeatureUpdate
from moldau.client.admin.group_members import Leaver
from moldau.client.admin.groups import Committed, Group, ListedGroup
from moldau.client.admin.log_dirs import LogDirectory
from moldau.client.admin.offsets import FoundOffset
from moldau.client.admin.quorum import DescribedQuorum
from moldau.client.admin.topics import CreatedTopic, NewTopic
from moldau.client.admin.transactions import (
    ListedTransaction,
    PartitionProducer,
    Transaction,
    TransactionFilter,
)
from moldau.client.arguments.admin import AdminArguments
from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.metadata import Topic
from moldau.client.cluster.node_connection import VersionRange
from moldau.client.cluster.settings import admin_settings
from moldau.client.config import client_config
from moldau.client.consumer.arguments import place_of
from moldau.client.errors import ClientError, ClosedError
from moldau.config.client_settings.admin import AdminConfig
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.enums import ConfigResourceType, ElectionType, IsolationLevel
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.types import TopicPartition, Uuid

Result = TypeVar("Result")
Item = TypeVar("Item")


class Admin:
    """One event loop owns it; its tasks may call it at the same time.

    >>> import asyncio
    >>> from moldau.admin import NewTopic
    >>> from moldau.testing import broker
    >>> async def make(bootstrap):
    ...     async with Admin(bootstrap) as admin:
    ...         orders = NewTopic(name="orders", partitions=3)
    ...         made = await admin.create_topics([orders, "bad name"])
    ...         return made["orders"].partitions, made["bad name"].code.name
    >>> with broker() as b:
    ...     asyncio.run(make(b.bootstrap))
    (3, 'INVALID_TOPIC_EXCEPTION')
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[AdminArguments],
    ) -> None:
        """Raises ConfigError. Nothing is connected to before the first call."""
        given = {**settings, "bootstrap_servers": bootstrap_servers}
        self.config = client_config(AdminConfig, config, given)
        self._cluster = Cluster(admin_settings(self.config))
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closing twice is fine."""
        if not self._is_closed:
            self._is_closed = True
            await self._cluster.__aexit__(None, None, None)

    async def _patiently(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        self._check_open()
        return await self._cluster.with_patience(attempt)

    async def _each(
        self, items: Iterable[Item], attempt: Callable[[Item], Awaitable[Result]]
    ) -> dict[Item, Result | KafkaError]:
        """What a broker refuses for one item says nothing about the next."""
        self._check_open()
        done: dict[Item, Result | KafkaError] = {}
        for item in dict.fromkeys(_several(items)):
            try:
                done[item] = await attempt(item)
            except KafkaError as error:
                done[item] = error
        return done

    async def _known(self, attempt: Callable[[], Awaitable[Result]]) -> Result | KafkaError:
        """Patiently, except that a topic which is not there will not come."""

        async def once() -> Result | KafkaError:
            try:
                return await attempt()
            except KafkaError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                return error

        return await self._cluster.with_patience(once)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("this admin client is closed")
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if loop is not self._loop:
            raise ClientError("an admin client belongs to the event loop it was first used in")

    # Topics and their records.

    async def list_topics(self, *, internal: bool = False) -> dict[str, Topic]:
        """All topics that may be seen; Kafka's own ones only if `internal`."""
        found = await self._patiently(lambda: self._cluster.metadata(None, is_lenient=True))
        return {
            name: topic
            for name, topic in sorted(found.topics.items())
            if internal or not topic.is_internal
        }

    async def describe_topics(self, names: Iterable[str]) -> dict[str, Topic | MoldauError]:
        """Partitions, leaders, replicas."""
        wanted = list(dict.fromkeys(_several(names)))
        return await self._patiently(
            lambda: topic_descriptions.describe_topics(self._cluster, wanted)
        )

    async def create_topics(
        self, new_topics: Iterable[NewTopic | str], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | KafkaError]:
        """A name alone is a topic with the broker's numbers. When it returns, leaders are known."""
        wanted = [
            NewTopic(name=one) if isinstance(one, str) else one for one in _several(new_topics)
        ]
        return await self._patiently(
            lambda: topics.create_topics(self._cluster, wanted, validate_only=validate_only)
        )

    async def delete_topics(self, names: Collection[str]) -> dict[str, KafkaError | None]:
        """With all their records. UNKNOWN_TOPIC_OR_PARTITION if there is none of a name."""
        wanted = _several(names)
        return await self._patiently(lambda: topics.delete_topics(self._cluster, wanted))

    async def delete_topics_by_id(
        self, topic_ids: Collection[Uuid]
    ) -> dict[Uuid, KafkaError | None]:
        """As `delete_topics`, but no topic that was made again under the same name."""
        return await self._patiently(lambda: topics.delete_topics_by_id(self._cluster, topic_ids))

    async def create_partitions(
        self, totals: Mapping[str, int], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Topic -> how many partitions it has then."""

        async def add(name: str) -> KafkaError | None:
            return await self._known(
                lambda: topics.add_partitions(
                    self._cluster, name, totals[name], validate_only=validate_only
                )
            )

        return await self._each(totals, add)

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | MoldauError]:
        """Below these offsets; -1 means all that is there. Gives the first offset that is left."""
        self._check_open()
        wanted = {place_of(one): offset for one, offset in before.items()}
        return await offsets.delete_records(self._cluster, wanted)

    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, FoundOffset | MoldauError]:
        """Partition -> a time in ms, or one of ListOffsetsTimestamp (EARLIEST, LATEST, …)."""
        self._check_open()
        places = {place_of(one): time for one, time in wanted.items()}
        return await offsets.list_offsets_each(self._cluster, places, isolation)

    async def elect_leaders(
        self,
        partitions: Collection[TopicPartition] | None,
        *,
        kind: ElectionType = ElectionType.PREFERRED,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Of some partitions, or of all if that is None."""
        return await self._patiently(lambda: leaders.elect_leaders(self._cluster, kind, partitions))

    # Settings.

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Collection[str] | None = None,
        documentation: bool = False,
    ) -> dict[ConfigResource, list[ConfigEntry] | KafkaError]:
        """Of topics, brokers, groups, loggers; some settings, or all if `names` is None."""

        async def describe(resource: ConfigResource) -> list[ConfigEntry] | KafkaError:
            return await self._known(
                lambda: configs.describe_configs(
                    self._cluster, resource, names=names, documentation=documentation
                )
            )

        return await self._each(resources, describe)

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> dict[ConfigResource, KafkaError | None]:
        """What is not named stays as it is. All changes of a resource happen, or none."""

        async def alter(resource: ConfigResource) -> KafkaError | None:
            return await self._known(
                lambda: configs.alter_configs(
                    self._cluster, resource, changes[resource], validate_only=validate_only
                )
            )

        return await self._each(changes, alter)

    async def list_config_resources(self, kind: ConfigResourceType) -> list[str]:
        """Names of what has settings of that kind."""
        return await self._patiently(lambda: configs.list_config_resources(self._cluster, kind))

    # Groups.

    async def list_groups(
        self, *, states: Collection[str] = (), kinds: Collection[str] = ()
    ) -> list[ListedGroup]:
        """Groups of all kinds, of all brokers; only those in one of these `states` and of one of
        these `kinds` ("classic", "consumer", …) if any are given.
        """
        self._check_open()
        return await groups.list_groups(self._cluster, states=states, kinds=kinds)

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, Group | KafkaError]:
        """State, members and what they have; GROUP_ID_NOT_FOUND if there is none."""

        async def describe(group_id: str) -> Group:
            found = await groups.describe_group(self._cluster, group_id)
            if found is None:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group '{group_id}'")
            return found

        return await self._each(group_ids, describe)

    async def list_group_offsets(
        self, group_ids: Iterable[str]
    ) -> dict[str, dict[TopicPartition, Committed] | KafkaError]:
        """All that each has committed."""

        async def committed(group_id: str) -> dict[TopicPartition, Committed]:
            return await groups.committed_offsets(self._cluster, group_id)

        return await self._each(group_ids, committed)

    async def alter_group_offsets(
        self, group_id: str, wanted: Mapping[TopicPartition, Committed | int]
    ) -> dict[TopicPartition, KafkaError | None]:
        """For a group without members."""
        self._check_open()
        given = {
            place_of(partition): one if isinstance(one, Committed) else Committed(one)
            for partition, one in wanted.items()
        }
        return await groups.commit_each(self._cluster, group_id, given)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Of topics that no member is subscribed to."""
        self._check_open()
        return await groups.delete_offsets(self._cluster, group_id, partitions)

    async def delete_groups(self, group_ids: Collection[str]) -> dict[str, KafkaError | None]:
        """Groups without members, with all that they have committed."""
        self._check_open()
        return await groups.delete_groups(self._cluster, _several(group_ids))

    async def remove_members(
        self, group_id: str, members: Collection[Leaver] | None = None, *, reason: str = ""
    ) -> dict[Leaver, KafkaError | None]:
        """Some members of a classic group, or all if that is None."""
        self._check_open()
        return await group_members.remove_members(self._cluster, group_id, members, reason)

    # Transactions and producers.

    async def list_transactions(
        self, wanted: TransactionFilter | None = None
    ) -> list[ListedTransaction]:
        """Transactional ids that their coordinators know, or those that `wanted` lets through."""
        self._check_open()
        found, unknown = await transactions.list_transactions(self._cluster, wanted)
        if unknown:
            raise ClientError(f"no state of a transaction: {', '.join(unknown)}")
        return found

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, Transaction | KafkaError]:
        """State, producer and partitions of each; TRANSACTIONAL_ID_NOT_FOUND if there is none."""

        async def describe(name: str) -> Transaction:
            found = (await transactions.describe_transactions(self._cluster, [name]))[name]
            if found is None:
                raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"'{name}'")
            return found

        return await self._each(transactional_ids, describe)

    async def describe_producers(
        self, partitions: Collection[TopicPartition], *, broker_id: int | None = None
    ) -> list[PartitionProducer]:
        """As the leaders know them, or one broker that has replicas."""
        self._check_open()
        return await transactions.describe_producers(self._cluster, partitions, broker_id)

    async def find_hanging_transactions(
        self, partitions: Collection[TopicPartition], *, longer_than_ms: int
    ) -> list[PartitionProducer]:
        """Open for longer than any transaction may be, and no coordinator will end them."""
        self._check_open()
        return await transactions.find_hanging(
            self._cluster, partitions, longer_than_ms=longer_than_ms
        )

    async def abort_transaction(self, producer: PartitionProducer) -> None:
        """Ends on one partition what hangs there."""
        self._check_open()
        await transactions.abort_open(self._cluster, producer)

    async def fence_producers(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, KafkaError | None]:
        """What they have open is aborted; whoever uses the ids must stop."""

        async def fence(name: str) -> None:
            await transactions.force_terminate(self._cluster, name)

        return await self._each(transactional_ids, fence)

    # The cluster and its brokers.

    async def describe_cluster(self) -> DescribedCluster:
        """The cluster's id, its controller and its brokers."""
        return await self._patiently(lambda: cluster.describe_cluster(self._cluster))

    async def describe_quorum(self) -> DescribedQuorum:
        """Who leads the metadata quorum, who votes and who observes, and how far each is."""
        return await self._patiently(lambda: quorum.describe_quorum(self._cluster))

    async def describe_features(self, *, broker_id: int | None = None) -> DescribedFeatures:
        """The feature levels in force, and what brokers, or one of them, support."""
        return await self._patiently(lambda: features.describe_features(self._cluster, broker_id))

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Feature -> its new level. `validate_only` says what would happen."""
        return await self._patiently(
            lambda: features.update_features(self._cluster, updates, validate_only=validate_only)
        )

    async def served_versions(self, *, broker_id: int | None = None) -> dict[str, VersionRange]:
        """API -> the versions of it that a broker serves."""
        served = await self._patiently(lambda: cluster.served_versions(self._cluster, broker_id))
        names = {int(key): key.name for key in ApiKey}
        return {
            names.get(one.api_key, str(one.api_key)): VersionRange(one.min_version, one.max_version)
            for one in served.api_keys
        }

    async def unregister_broker(self, broker_id: int) -> None:
        """For a broker that is gone for good."""
        await self._patiently(lambda: cluster.unregister_broker(self._cluster, broker_id))

    async def describe_log_dirs(
        self, broker_ids: Collection[int] | None = None
    ) -> list[LogDirectory]:
        """Of some brokers, or of all if that is None."""

        async def describe() -> list[LogDirectory]:
            nodes = await self._cluster.brokers() if broker_ids is None else broker_ids
            return await log_dirs.describe_log_dirs(self._cluster, nodes)

        return await self._patiently(describe)

    async def alter_replica_log_dirs(
        self, broker_id: int, moves: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Partition -> the directory of that broker that its replica should lie in."""
        return await self._patiently(
            lambda: log_dirs.alter_replica_log_dirs(self._cluster, broker_id, moves)
        )


def _several(given: Iterable[Item]) -> list[Item]:
    """A text alone would be taken for the names of its letters."""
    if isinstance(given, str):
        raise ClientError(f"give a list of names, ['{given}'], not one of them")
    return list(given)

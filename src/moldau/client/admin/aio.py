"""The admin client for asyncio. An error of one item is a value in the result, beside the results
of the others; an error of the whole call is raised. Retriable errors are retried for
default.api.timeout.ms.
"""

from collections.abc import Collection, Mapping

from moldau.client.admin import cluster, features, log_dirs, quorum
from moldau.client.admin.cluster import DescribedCluster
from moldau.client.admin.features import DescribedFeatures, FeatureUpdate
from moldau.client.admin.group_methods import GroupMethods
from moldau.client.admin.log_dirs import LogDirectory
from moldau.client.admin.quorum import DescribedQuorum
from moldau.client.admin.topic_methods import TopicMethods
from moldau.client.cluster.node_connection import VersionRange
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.errors import KafkaError
from moldau.types import TopicPartition


class Admin(TopicMethods, GroupMethods):
    """Administers a cluster: topics, settings, groups, transactions, brokers.

    It belongs to one event loop, whose tasks may use it at the same time. An error that concerns
    one item is a value in the result of the call. An error of the whole call is raised: KafkaError
    if a broker reports it, ClientError otherwise. Retriable errors are retried for
    default.api.timeout.ms.

    Examples:
        >>> import asyncio
        >>> from moldau.admin import NewTopic
        >>> from moldau.testing import broker
        >>> async def create(bootstrap):
        ...     async with Admin(bootstrap) as admin:
        ...         orders = NewTopic(name="orders", partitions=3)
        ...         created = await admin.create_topics([orders, "bad name"])
        ...         return created["orders"].partitions, created["bad name"].code.name
        >>> with broker() as b:
        ...     asyncio.run(create(b.bootstrap))
        (3, 'INVALID_TOPIC_EXCEPTION')
    """

    async def describe_cluster(self) -> DescribedCluster:
        """Describes the cluster.

        Returns:
            Its id, its controller and its brokers.
        """
        return await self._with_retries(lambda: cluster.describe_cluster(self._cluster))

    async def describe_quorum(self) -> DescribedQuorum:
        """Describes the controllers' metadata quorum.

        Returns:
            Its leader, voters and observers, and how far each has replicated the metadata log.
        """
        return await self._with_retries(lambda: quorum.describe_quorum(self._cluster))

    async def describe_features(self, *, broker_id: int | None = None) -> DescribedFeatures:
        """Describes the features of the cluster, such as `metadata.version`.

        Args:
            broker_id: The broker to query; None for any.

        Returns:
            The levels that the broker supports, and those that the cluster has finalized.
        """
        return await self._with_retries(
            lambda: features.describe_features(self._cluster, broker_id)
        )

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Raises or lowers the finalized levels of features.

        Args:
            updates: The new level of each feature.
            validate_only: Whether to check the request without changing anything.

        Returns:
            For each feature, None if it has its new level, or the error.
        """
        return await self._with_retries(
            lambda: features.update_features(self._cluster, updates, validate_only=validate_only)
        )

    async def served_versions(self, *, broker_id: int | None = None) -> dict[str, VersionRange]:
        """Lists the requests that a broker serves.

        Args:
            broker_id: The broker to query; None for any.

        Returns:
            The oldest and newest version of each API, by its name.
        """
        served = await self._with_retries(lambda: cluster.served_versions(self._cluster, broker_id))
        names = {int(key): key.name for key in ApiKey}
        return {
            names.get(api.api_key, str(api.api_key)): VersionRange(api.min_version, api.max_version)
            for api in served.api_keys
        }

    async def unregister_broker(self, broker_id: int) -> None:
        """Removes a broker that will not come back from the cluster's metadata.

        Args:
            broker_id: Id of the broker, which must be shut down.

        Raises:
            KafkaError: The controller refused it.
        """
        await self._with_retries(lambda: cluster.unregister_broker(self._cluster, broker_id))

    async def describe_log_dirs(
        self, broker_ids: Collection[int] | None = None
    ) -> list[LogDirectory]:
        """Describes the log directories of brokers.

        Args:
            broker_ids: Ids of the brokers; None for all.

        Returns:
            The directories, each with its replicas and their sizes.
        """

        async def describe() -> list[LogDirectory]:
            nodes = await self._cluster.brokers() if broker_ids is None else broker_ids
            return await log_dirs.describe_log_dirs(self._cluster, nodes)

        return await self._with_retries(describe)

    async def alter_replica_log_dirs(
        self, broker_id: int, moves: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Moves replicas between the log directories of one broker.

        Args:
            broker_id: Id of the broker.
            moves: For each partition, the path of the directory to move its replica to.

        Returns:
            For each partition, None if the move was accepted, or the error. The move itself takes
            longer; `describe_log_dirs` shows it as a future replica.
        """
        return await self._with_retries(
            lambda: log_dirs.alter_replica_log_dirs(self._cluster, broker_id, moves)
        )

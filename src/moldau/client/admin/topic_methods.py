"""Methods of the asyncio admin client for topics, their records and settings."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from moldau.client.admin import configs, leaders, offsets, topic_descriptions, topics
from moldau.client.admin.configs import ConfigChange, ConfigEntry, ConfigResource
from moldau.client.admin.offsets import FoundOffset
from moldau.client.admin.session import AdminSession, item_list
from moldau.client.admin.topics import CreatedTopic, NewTopic
from moldau.client.cluster.metadata import Topic
from moldau.client.consumer.arguments import partition_of
from moldau.protocol.enums import ConfigResourceType, ElectionType, IsolationLevel
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.types import TopicPartition, Uuid


class TopicMethods(AdminSession):
    """Topics, their records and settings."""

    async def list_topics(self, *, internal: bool = False) -> dict[str, Topic]:
        """Lists the topics that this client may describe.

        Args:
            internal: Whether to include Kafka's internal topics, such as `__consumer_offsets`.

        Returns:
            Each topic by its name, sorted.
        """
        found = await self._with_retries(lambda: self._cluster.metadata(None, is_lenient=True))
        return {
            name: topic
            for name, topic in sorted(found.topics.items())
            if internal or not topic.is_internal
        }

    async def describe_topics(self, names: Iterable[str]) -> dict[str, Topic | MoldauError]:
        """Describes topics with their partitions, leaders and replicas.

        Args:
            names: Names of the topics.

        Returns:
            For each name, its topic, or the error: UnknownTopicError if it does not exist.
        """
        unique = list(dict.fromkeys(item_list(names)))
        return await self._with_retries(
            lambda: topic_descriptions.describe_topics(self._cluster, unique)
        )

    async def create_topics(
        self, new_topics: Iterable[NewTopic | str], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Creates topics, and waits until their partitions have leaders.

        Args:
            new_topics: The topics. A name alone is a topic with the broker's default number of
                partitions and replicas.
            validate_only: Whether to check the request without creating anything.

        Returns:
            For each name, the created topic, or the error that the controller reported.
        """
        wanted = [
            NewTopic(name=topic) if isinstance(topic, str) else topic
            for topic in item_list(new_topics)
        ]
        return await self._with_retries(
            lambda: topics.create_topics(self._cluster, wanted, validate_only=validate_only)
        )

    async def delete_topics(self, names: Collection[str]) -> dict[str, KafkaError | None]:
        """Deletes topics with all their records.

        Args:
            names: Names of the topics.

        Returns:
            For each name, None if it was deleted, or the error: UNKNOWN_TOPIC_OR_PARTITION if the
            topic does not exist.
        """
        wanted = item_list(names)
        return await self._with_retries(lambda: topics.delete_topics(self._cluster, wanted))

    async def delete_topics_by_id(
        self, topic_ids: Collection[Uuid]
    ) -> dict[Uuid, KafkaError | None]:
        """Deletes topics by their ids, and so never a newer topic of the same name.

        Args:
            topic_ids: Ids of the topics, as in `Topic.topic_id`.

        Returns:
            For each id, None if the topic was deleted, or the error.
        """
        return await self._with_retries(
            lambda: topics.delete_topics_by_id(self._cluster, topic_ids)
        )

    async def create_partitions(
        self, totals: Mapping[str, int], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Adds partitions to topics.

        Args:
            totals: The new total number of partitions of each topic.
            validate_only: Whether to check the request without changing anything.

        Returns:
            For each topic, None if it was changed, or the error.
        """

        async def add(name: str) -> KafkaError | None:
            return await self._with_retries_unless_missing(
                lambda: topics.add_partitions(
                    self._cluster, name, totals[name], validate_only=validate_only
                )
            )

        return await self._each(totals, add)

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | MoldauError]:
        """Deletes the oldest records of partitions.

        Args:
            before: For each partition, the offset before which everything is deleted; -1 deletes
                all committed records.

        Returns:
            For each partition, the offset of its first remaining record, or the error.
        """
        self._check_open()
        wanted = {partition_of(key): offset for key, offset in before.items()}
        return await offsets.delete_records(self._cluster, wanted)

    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, FoundOffset | MoldauError]:
        """Looks up offsets of partitions: the first, the last, or by time.

        Args:
            wanted: For each partition, a time in milliseconds since 1970, which finds the first
                record that is not older, or a `ListOffsetsTimestamp` (EARLIEST, LATEST, …).
            isolation: Whether LATEST is the high watermark, or with READ_COMMITTED the last stable
                offset.

        Returns:
            For each partition, what was found, or the error. The offset is -1 if no record matches.
        """
        self._check_open()
        times = {partition_of(key): time for key, time in wanted.items()}
        return await offsets.list_offsets_each(self._cluster, times, isolation)

    async def elect_leaders(
        self,
        partitions: Collection[TopicPartition] | None,
        *,
        kind: ElectionType = ElectionType.PREFERRED,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elects leaders of partitions.

        Args:
            partitions: The partitions; None for all of the cluster.
            kind: PREFERRED moves leadership back to the first replica. UNCLEAN may elect a replica
                that lacks records, if no other one is alive.

        Returns:
            For each partition, None if it has a new leader, or the error. With `partitions=None`
            only those that changed.
        """
        return await self._with_retries(
            lambda: leaders.elect_leaders(self._cluster, kind, partitions)
        )

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Collection[str] | None = None,
        documentation: bool = False,
    ) -> dict[ConfigResource, list[ConfigEntry] | KafkaError]:
        """Describes the settings of topics, brokers, groups or loggers.

        Args:
            resources: The resources.
            names: Names of the settings; None for all.
            documentation: Whether to include the text that describes each setting.

        Returns:
            For each resource, its settings sorted by name, or the error.
        """

        async def describe(resource: ConfigResource) -> list[ConfigEntry] | KafkaError:
            return await self._with_retries_unless_missing(
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
        """Changes settings of topics, brokers, groups or loggers.

        Settings that are not named keep their values. The changes of one resource are made
        together, or not at all.

        Args:
            changes: The changes of each resource.
            validate_only: Whether to check the request without changing anything.

        Returns:
            For each resource, None if it was changed, or the error.
        """

        async def alter(resource: ConfigResource) -> KafkaError | None:
            return await self._with_retries_unless_missing(
                lambda: configs.alter_configs(
                    self._cluster, resource, changes[resource], validate_only=validate_only
                )
            )

        return await self._each(changes, alter)

    async def list_config_resources(self, kind: ConfigResourceType) -> list[str]:
        """Lists the resources of one kind that have settings.

        Args:
            kind: The kind of resource.

        Returns:
            Their names, sorted.
        """
        return await self._with_retries(lambda: configs.list_config_resources(self._cluster, kind))

"""Methods of the asyncio admin client for groups, transactions and producers."""

from collections.abc import Collection, Iterable, Mapping

from moldau.client.admin import group_members, groups, transactions
from moldau.client.admin.group_members import Leaver
from moldau.client.admin.groups import Committed, Group, ListedGroup
from moldau.client.admin.session import AdminSession, item_list
from moldau.client.admin.transactions import (
    ListedTransaction,
    PartitionProducer,
    Transaction,
    TransactionFilter,
)
from moldau.client.consumer.arguments import partition_of
from moldau.client.errors import ClientError
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.types import TopicPartition


class GroupMethods(AdminSession):
    """Groups of consumers, transactions and producers."""

    async def list_groups(
        self, *, states: Collection[str] = (), kinds: Collection[str] = ()
    ) -> list[ListedGroup]:
        """Lists the groups of all brokers.

        Args:
            states: Only groups in one of these states ("Stable", "Empty", …); empty for all.
            kinds: Only groups of one of these kinds ("classic", "consumer", …); empty for all.

        Returns:
            The groups, sorted by id.
        """
        self._check_open()
        return await groups.list_groups(self._cluster, states=states, kinds=kinds)

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, Group | KafkaError]:
        """Describes groups with their members and the partitions of each member.

        Args:
            group_ids: Ids of the groups.

        Returns:
            For each id, its group, or the error: GROUP_ID_NOT_FOUND if it does not exist.
        """

        async def describe(group_id: str) -> Group:
            group = await groups.describe_group(self._cluster, group_id)
            if group is None:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group '{group_id}'")
            return group

        return await self._each(group_ids, describe)

    async def list_group_offsets(
        self, group_ids: Iterable[str]
    ) -> dict[str, dict[TopicPartition, Committed] | KafkaError]:
        """Lists the committed offsets of groups.

        Args:
            group_ids: Ids of the groups.

        Returns:
            For each id, the committed offset of each partition, or the error.
        """

        async def committed(group_id: str) -> dict[TopicPartition, Committed]:
            return await groups.committed_offsets(self._cluster, group_id)

        return await self._each(group_ids, committed)

    async def alter_group_offsets(
        self, group_id: str, wanted: Mapping[TopicPartition, Committed | int]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commits offsets for a group that has no active members.

        Args:
            group_id: Id of the group.
            wanted: The new committed offset of each partition, alone or with its metadata.

        Returns:
            For each partition, None if its offset was committed, or the error: UNKNOWN_MEMBER_ID if
            the group has members.
        """
        self._check_open()
        offsets = {
            partition_of(key): at if isinstance(at, Committed) else Committed(at)
            for key, at in wanted.items()
        }
        return await groups.commit_each(self._cluster, group_id, offsets)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Deletes committed offsets of topics that no member is subscribed to.

        Args:
            group_id: Id of the group.
            partitions: The partitions.

        Returns:
            For each partition, None if its offset was deleted, or the error.
        """
        self._check_open()
        return await groups.delete_offsets(self._cluster, group_id, partitions)

    async def delete_groups(self, group_ids: Collection[str]) -> dict[str, KafkaError | None]:
        """Deletes groups without members, together with their committed offsets.

        Args:
            group_ids: Ids of the groups.

        Returns:
            For each id, None if the group was deleted, or the error: NON_EMPTY_GROUP if it has
            members, GROUP_ID_NOT_FOUND if it does not exist.
        """
        self._check_open()
        return await groups.delete_groups(self._cluster, item_list(group_ids))

    async def remove_members(
        self, group_id: str, members: Collection[Leaver] | None = None, *, reason: str = ""
    ) -> dict[Leaver, KafkaError | None]:
        """Removes members from a classic group. A consumer that still runs joins it again.

        Args:
            group_id: Id of the group.
            members: The members; None for all.
            reason: Reported to the coordinator, which logs it.

        Returns:
            For each member, None if it was removed, or the error.

        Raises:
            ClientError: `members` is None and the group does not exist.
        """
        self._check_open()
        return await group_members.remove_members(self._cluster, group_id, members, reason)

    async def list_transactions(
        self, wanted: TransactionFilter | None = None
    ) -> list[ListedTransaction]:
        """Lists the transactional ids that the coordinators know.

        Args:
            wanted: Which of them to list; None for all.

        Returns:
            The transactional ids with their states, sorted.

        Raises:
            ClientError: A state in the filter does not exist.
        """
        self._check_open()
        listed, unknown = await transactions.list_transactions(self._cluster, wanted)
        if unknown:
            raise ClientError(f"unknown transaction state: {', '.join(unknown)}")
        return listed

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, Transaction | KafkaError]:
        """Describes transactions with their state, producer and partitions.

        Args:
            transactional_ids: The transactional ids.

        Returns:
            For each id, its transaction, or the error: TRANSACTIONAL_ID_NOT_FOUND if no coordinator
            knows it.
        """

        async def describe(name: str) -> Transaction:
            transaction = (await transactions.describe_transactions(self._cluster, [name]))[name]
            if transaction is None:
                raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"'{name}'")
            return transaction

        return await self._each(transactional_ids, describe)

    async def describe_producers(
        self, partitions: Collection[TopicPartition], *, broker_id: int | None = None
    ) -> list[PartitionProducer]:
        """Describes the active producers of partitions.

        Args:
            partitions: The partitions.
            broker_id: The replica to query; None for the leader of each partition.

        Returns:
            The producers, sorted by partition.

        Raises:
            KafkaError: A partition could not be described.
        """
        self._check_open()
        return await transactions.describe_producers(self._cluster, partitions, broker_id)

    async def find_hanging_transactions(
        self, partitions: Collection[TopicPartition], *, longer_than_ms: int
    ) -> list[PartitionProducer]:
        """Finds open transactions that no coordinator will ever end.

        They hold back readers with read_committed; `abort_transaction` ends them.

        Args:
            partitions: The partitions to search.
            longer_than_ms: How long a transaction must be open to count. Give more than
                transaction.max.timeout.ms of the brokers.

        Returns:
            The producers whose transactions hang, each with its partition.
        """
        self._check_open()
        return await transactions.find_hanging(
            self._cluster, partitions, longer_than_ms=longer_than_ms
        )

    async def abort_transaction(self, producer: PartitionProducer) -> None:
        """Aborts a hanging transaction on one partition.

        Args:
            producer: The producer, as `find_hanging_transactions` returned it.

        Raises:
            KafkaError: The leader refused to abort it.
        """
        self._check_open()
        await transactions.abort_open(self._cluster, producer)

    async def fence_producers(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, KafkaError | None]:
        """Fences the producers of transactional ids, and aborts their open transactions.

        Args:
            transactional_ids: The transactional ids.

        Returns:
            For each id, None if its producer was fenced, or the error.
        """

        async def fence(name: str) -> None:
            await transactions.force_terminate(self._cluster, name)

        return await self._each(transactional_ids, fence)

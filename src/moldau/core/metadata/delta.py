"""From one image to the next: records are replayed into a delta, which makes the new image and
reports the differences. The only writer of metadata.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.core.metadata.cluster_changes import ClusterChanges
from moldau.core.metadata.draft import Draft
from moldau.core.metadata.image import (
    EMPTY_IMAGE,
    KRAFT_VERSION,
    METADATA_VERSION,
    AclImage,
    ConfigResource,
    DelegationToken,
    MetadataImage,
    QuotaEntity,
    ScramCredential,
    ScramUser,
)
from moldau.core.metadata.levels import check_level
from moldau.core.metadata.replay_errors import MetadataReplayError
from moldau.core.metadata.topic_changes import TopicChanges
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.wire.schema import Message
from moldau.types import Uuid, uuid_text

if TYPE_CHECKING:
    from moldau.protocol.log_records import (
        AccessControlEntryRecord,
        ClientQuotaRecord,
        ConfigRecord,
        DelegationTokenRecord,
        FeatureLevelRecord,
        ProducerIdsRecord,
        RemoveAccessControlEntryRecord,
        RemoveDelegationTokenRecord,
        RemoveTopicRecord,
        RemoveUserScramCredentialRecord,
        UserScramCredentialRecord,
    )


class MetadataDelta:
    """Replay any number of records, then call `finish` once. Begin and End of a transaction have no
    effect here: the loader holds back open transactions.
    """

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.before = image
        self._topics = TopicChanges(image)
        self._cluster = ClusterChanges(image)
        self._features = Draft(image.features)
        self._configs = Draft(image.configs)
        self._quotas = Draft(image.client_quotas)
        self._acls = Draft(image.acls)
        self._scram = Draft(image.scram_credentials)
        self._tokens = Draft(image.delegation_tokens)
        self._next_producer_id = image.next_producer_id

    def replay(self, record: Message) -> None:
        """Raises MetadataReplayError if the record contradicts those before it."""
        _REPLAY[type(record).__name__](self, record)

    def finish(self, offset: int, epoch: int, timestamp_ms: int) -> MetadataImage:
        """The image with everything up to and including `offset`."""
        return MetadataImage(
            offset=offset,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            features=self._features.mapping,
            brokers=self._cluster.brokers.mapping,
            controllers=self._cluster.controllers.mapping,
            topics=self._topics.topics,
            topics_by_id=self._topics.topics_by_id,
            configs=self._configs.mapping,
            client_quotas=self._quotas.mapping,
            next_producer_id=self._next_producer_id,
            acls=self._acls.mapping,
            scram_credentials=self._scram.mapping,
            delegation_tokens=self._tokens.mapping,
        )

    @classmethod
    def between(cls, before: MetadataImage, after: MetadataImage) -> "MetadataDelta":
        """The differences between any two images, for a loaded snapshot."""
        delta = cls(before)
        delta._topics.become(after)
        delta._cluster.brokers.become(after.brokers)
        delta._cluster.controllers.become(after.controllers)
        delta._features.become(after.features)
        delta._configs.become(after.configs)
        delta._quotas.become(after.client_quotas)
        delta._acls.become(after.acls)
        delta._scram.become(after.scram_credentials)
        delta._tokens.become(after.delegation_tokens)
        delta._next_producer_id = after.next_producer_id
        return delta

    # Differences, without objects that were both added and removed within the delta.

    @property
    def changed_topics(self) -> set[str]:
        """New topics and those with changed partitions; not deleted ones."""
        return self._topics.changed

    @property
    def deleted_topics(self) -> Mapping[str, Uuid]:
        """A topic that was created again is also in `changed_topics`, with its new id."""
        return self._topics.deleted

    @property
    def changed_configs(self) -> set[ConfigResource]:
        return self._configs.changed

    @property
    def changed_brokers(self) -> set[int]:
        """Including unregistered brokers."""
        return self._cluster.brokers.changed

    @property
    def changed_controllers(self) -> set[int]:
        return self._cluster.controllers.changed

    @property
    def features_changed(self) -> bool:
        return bool(self._features.changed)

    @property
    def changed_quotas(self) -> set[QuotaEntity]:
        return self._quotas.changed

    @property
    def changed_acls(self) -> set[Uuid]:
        return self._acls.changed

    @property
    def changed_scram_users(self) -> set[ScramUser]:
        return self._scram.changed

    @property
    def changed_tokens(self) -> set[str]:
        return self._tokens.changed

    # One method per kind of record that does not concern topics or nodes.

    def _remove_topic(self, record: "RemoveTopicRecord") -> None:
        name = self._topics.replay_remove(record)
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        if self._configs.get(resource) is not None:
            self._configs.drop(resource)

    def _feature(self, record: "FeatureLevelRecord") -> None:
        if record.name == METADATA_VERSION:
            check_level(record.feature_level)
        if record.name == KRAFT_VERSION:
            # Its level is in control records; Kafka once wrote it here by mistake (KAFKA-18979).
            return
        if record.feature_level == 0:
            self._features.drop(record.name)
        else:
            self._features.put(record.name, record.feature_level)

    def _config(self, record: "ConfigRecord") -> None:
        resource = ConfigResource(_config_kind(record.resource_type), record.resource_name)
        values = dict(self._configs.get(resource) or {})
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        _put_or_drop(self._configs, resource, values)

    def _quota(self, record: "ClientQuotaRecord") -> None:
        entity = tuple(
            sorted({each.entity_type: each.entity_name for each in record.entity}.items())
        )
        values = dict(self._quotas.get(entity) or {})
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        _put_or_drop(self._quotas, entity, values)

    def _producer_ids(self, record: "ProducerIdsRecord") -> None:
        self._next_producer_id = record.next_producer_id

    def _acl(self, record: "AccessControlEntryRecord") -> None:
        acl = AclImage(
            resource_type=record.resource_type,
            resource_name=record.resource_name,
            pattern_type=record.pattern_type,
            principal=record.principal,
            host=record.host,
            operation=record.operation,
            permission_type=record.permission_type,
        )
        self._acls.put(record.id, acl)

    def _remove_acl(self, record: "RemoveAccessControlEntryRecord") -> None:
        if self._acls.drop(record.id) is None:
            raise MetadataReplayError(
                f"ACL {uuid_text(record.id)} is removed by a record, but does not exist"
            )

    def _scram_credential(self, record: "UserScramCredentialRecord") -> None:
        credential = ScramCredential(
            salt=bytes(record.salt),
            stored_key=bytes(record.stored_key),
            server_key=bytes(record.server_key),
            iterations=record.iterations,
        )
        self._scram.put(ScramUser(record.name, record.mechanism), credential)

    def _remove_scram_credential(self, record: "RemoveUserScramCredentialRecord") -> None:
        self._scram.drop(ScramUser(record.name, record.mechanism))

    def _token(self, record: "DelegationTokenRecord") -> None:
        token = DelegationToken(
            token_id=record.token_id,
            owner=record.owner,
            requester=record.requester,
            renewers=tuple(record.renewers),
            issue_timestamp_ms=record.issue_timestamp,
            max_timestamp_ms=record.max_timestamp,
            expiration_timestamp_ms=record.expiration_timestamp,
        )
        self._tokens.put(record.token_id, token)

    def _remove_token(self, record: "RemoveDelegationTokenRecord") -> None:
        self._tokens.drop(record.token_id)


def _config_kind(number: int) -> ConfigResourceType:
    return ConfigResourceType(number) if number in _CONFIG_KINDS else ConfigResourceType.UNKNOWN


_CONFIG_KINDS = frozenset(ConfigResourceType)

K = TypeVar("K")
V = TypeVar("V")


def _put_or_drop(draft: Draft[K, Mapping[str, V]], key: K, values: Mapping[str, V]) -> None:
    """A key without values is dropped."""
    if values:
        draft.put(key, values)
    else:
        draft.drop(key)


def _nothing(_delta: MetadataDelta, _record: Any) -> None:
    pass


def _refuse_abort(_delta: MetadataDelta, _record: Any) -> None:
    raise MetadataReplayError("a transaction is aborted, but its records are already in the delta")


# By class name: most kinds are rare, and their modules are imported with the first record.
_REPLAY: dict[str, Callable[[MetadataDelta, Any], None]] = {
    "RegisterBrokerRecord": lambda d, r: d._cluster.replay_register_broker(r),
    "UnregisterBrokerRecord": lambda d, r: d._cluster.replay_unregister_broker(r),
    "FenceBrokerRecord": lambda d, r: d._cluster.replay_fence(r),
    "UnfenceBrokerRecord": lambda d, r: d._cluster.replay_unfence(r),
    "BrokerRegistrationChangeRecord": (lambda d, r: d._cluster.replay_registration_change(r)),
    "RegisterControllerRecord": (lambda d, r: d._cluster.replay_register_controller(r)),
    "TopicRecord": lambda d, r: d._topics.replay_topic(r),
    "PartitionRecord": lambda d, r: d._topics.replay_partition(r),
    "PartitionChangeRecord": lambda d, r: d._topics.replay_partition_change(r),
    "ClearElrRecord": lambda d, r: d._topics.replay_clear_elr(r),
    "RemoveTopicRecord": MetadataDelta._remove_topic,
    "FeatureLevelRecord": MetadataDelta._feature,
    "ConfigRecord": MetadataDelta._config,
    "ClientQuotaRecord": MetadataDelta._quota,
    "ProducerIdsRecord": MetadataDelta._producer_ids,
    "AccessControlEntryRecord": MetadataDelta._acl,
    "RemoveAccessControlEntryRecord": MetadataDelta._remove_acl,
    "UserScramCredentialRecord": MetadataDelta._scram_credential,
    "RemoveUserScramCredentialRecord": MetadataDelta._remove_scram_credential,
    "DelegationTokenRecord": MetadataDelta._token,
    "RemoveDelegationTokenRecord": MetadataDelta._remove_token,
    "BeginTransactionRecord": _nothing,
    "EndTransactionRecord": _nothing,
    "AbortTransactionRecord": _refuse_abort,
    "NoOpRecord": _nothing,
    # Clusters that were migrated from ZooKeeper still have this record.
    "ZkMigrationStateRecord": _nothing,
}

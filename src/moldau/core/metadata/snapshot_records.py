"""The content of a snapshot: the records that make up an image, in Kafka's order and versions."""

from collections.abc import Iterator, Sequence

from moldau.core.metadata.image import (
    METADATA_VERSION,
    BrokerImage,
    ControllerImage,
    MetadataImage,
    PartitionImage,
)
from moldau.core.metadata.levels import (
    CONTROLLER_REGISTRATION_FROM,
    CORDONED_DIRECTORIES_FROM,
    DELEGATION_TOKENS_FROM,
    DIRECTORIES_FROM,
    ELR_FROM,
    OLDEST_LEVEL,
    SCRAM_FROM,
    ZK_MIGRATION_FROM,
)
from moldau.protocol.log_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from moldau.protocol.log_records.client_quota_record import EntityData
from moldau.protocol.log_records.register_broker_record import BrokerEndpoint, BrokerFeature
from moldau.protocol.log_records.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
)
from moldau.protocol.wire.schema import Message
from moldau.types import NO_NODE, Uuid


def snapshot_records(image: MetadataImage) -> Iterator[Message]:
    """Replaying them into an empty image gives this one. The level of metadata.version comes first,
    because it determines the versions of the rest; fields above the level are left out.
    """
    level = OLDEST_LEVEL
    if image.metadata_version is not None:
        level = image.metadata_version
        yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)
    for name, feature_level in image.features.items():
        if name != METADATA_VERSION:
            yield FeatureLevelRecord(name=name, feature_level=feature_level)
    for broker in image.brokers.values():
        yield _broker_record(broker, level)
    if level >= CONTROLLER_REGISTRATION_FROM:
        for controller in image.controllers.values():
            yield _controller_record(controller)
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for index, partition in topic.partitions.items():
            yield _partition_record(topic.topic_id, index, partition, level)
    yield from _config_records(image)
    yield from _quota_records(image)
    if image.next_producer_id > 0:
        yield ProducerIdsRecord(
            broker_id=NO_NODE, broker_epoch=-1, next_producer_id=image.next_producer_id
        )
    yield from _security_records(image, level)


def _broker_record(broker: BrokerImage, level: int) -> RegisterBrokerRecord:
    cordoned = broker.cordoned_log_directories
    if level < CORDONED_DIRECTORIES_FROM:
        cordoned = None
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker and level >= ZK_MIGRATION_FROM,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(
                name=each.name,
                host=each.host,
                port=each.port,
                security_protocol=each.security_protocol,
            )
            for each in broker.endpoints.values()
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_directories) if level >= DIRECTORIES_FROM else [],
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
    )


def _controller_record(controller: ControllerImage) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            ControllerEndpoint(
                name=each.name,
                host=each.host,
                port=each.port,
                security_protocol=each.security_protocol,
            )
            for each in controller.endpoints.values()
        ],
        features=[
            ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in controller.features.items()
        ],
    )


def _partition_record(
    topic_id: Uuid, index: int, partition: PartitionImage, level: int
) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories) if level >= DIRECTORIES_FROM else [],
        eligible_leader_replicas=_if_any(partition.eligible_leader_replicas, level),
        last_known_elr=_if_any(partition.last_known_elr, level),
    )


def _if_any(replicas: Sequence[int], level: int) -> list[int] | None:
    """None for no replicas: a tagged field is omitted instead of written empty."""
    return list(replicas) if replicas and level >= ELR_FROM else None


def _config_records(image: MetadataImage) -> Iterator[Message]:
    for resource, values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(
                resource_type=resource.kind, resource_name=resource.name, name=name, value=value
            )


def _quota_records(image: MetadataImage) -> Iterator[Message]:
    for entity, quotas in image.client_quotas.items():
        for key, value in quotas.items():
            entries = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
            yield ClientQuotaRecord(entity=entries, key=key, value=value)


def _security_records(image: MetadataImage, level: int) -> Iterator[Message]:
    for acl_id, acl in image.acls.items():
        yield AccessControlEntryRecord(id=acl_id, **acl._asdict())
    if level >= SCRAM_FROM:
        for user, credential in image.scram_credentials.items():
            yield UserScramCredentialRecord(
                name=user.name,
                mechanism=user.mechanism,
                salt=credential.salt,
                stored_key=credential.stored_key,
                server_key=credential.server_key,
                iterations=credential.iterations,
            )
    if level >= DELEGATION_TOKENS_FROM:
        for token in image.delegation_tokens.values():
            yield DelegationTokenRecord(
                owner=token.owner,
                requester=token.requester,
                renewers=list(token.renewers),
                issue_timestamp=token.issue_timestamp_ms,
                max_timestamp=token.max_timestamp_ms,
                expiration_timestamp=token.expiration_timestamp_ms,
                token_id=token.token_id,
            )

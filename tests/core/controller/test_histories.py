"""For any requests in any order: the image equals the state of the records, every record can be
written at the finalized level, and the invariants of partitions hold.
"""

from typing import Any

from core.controller.cluster import Cluster, registration, uuid_of
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from moldau.core.controller.partitions.leadership import (
    preferred_leader_records,
    unclean_leader_records,
)
from moldau.core.decision import Decision
from moldau.core.metadata.levels import encode_records
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest
from moldau.protocol.wire.schema import Message
from moldau.types import NO_LEADER

BROKERS = st.integers(1, 4)
NAMES = st.sampled_from(["a", "b.c", "b_c", "d"])
LEVELS = st.sampled_from([11, 17, 22, 23, 30])


class Histories(RuleBasedStateMachine):
    cluster: Cluster

    @initialize(level=LEVELS, eligible=st.booleans())
    def begin(self, level: int, *, eligible: bool) -> None:
        self.level = level
        self.cluster = Cluster(level=level, eligible_replicas=eligible and level >= 23)
        self.written = 0
        self.incarnation = 0

    def send(self, request: Message) -> Any:
        try:
            return self.cluster.send(request)
        except KafkaError:
            return None

    @rule(broker_id=BROKERS, clean=st.booleans(), restarts=st.booleans())
    def register(self, broker_id: int, *, clean: bool, restarts: bool) -> None:
        self.incarnation += restarts
        request = registration(broker_id)
        request.incarnation_id = uuid_of(self.incarnation % 200)
        known = self.cluster.image.brokers.get(broker_id)
        if clean and known is not None:
            request.previous_broker_epoch = known.epoch
        self.send(request)

    @rule(
        broker_id=BROKERS,
        behind=st.integers(0, 3),
        wants=st.sampled_from(["run", "run", "run", "fence", "stop", "stop and fence"]),
        offline=st.booleans(),
    )
    def heartbeat(self, broker_id: int, behind: int, wants: str, *, offline: bool) -> None:
        broker = self.cluster.image.brokers.get(broker_id)
        if broker is not None:
            self.send(
                BrokerHeartbeatRequest(
                    broker_id=broker_id,
                    broker_epoch=broker.epoch,
                    current_metadata_offset=self.cluster.image.offset - behind,
                    want_fence="fence" in wants,
                    want_shut_down="stop" in wants,
                    offline_log_dirs=list(broker.log_directories[:1]) if offline else [],
                )
            )

    @rule(elapsed_ms=st.integers(1, 10_000))
    def time_passes(self, elapsed_ms: int) -> None:
        self.cluster.now_ms += elapsed_ms
        self.cluster.fence_stale()

    @rule(
        name=NAMES,
        partitions=st.integers(1, 3),
        factor=st.integers(1, 3),
        unclean=st.booleans(),
        min_isr=st.integers(1, 3),
    )
    def create(
        self, name: str, partitions: int, factor: int, min_isr: int, *, unclean: bool
    ) -> None:
        configs = {
            "unclean.leader.election.enable": str(unclean).lower(),
            "min.insync.replicas": str(min_isr),
        }
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            configs=[CreatableTopicConfig(name=n, value=v) for n, v in configs.items()],
        )
        self.send(CreateTopicsRequest(topics=[topic]))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.send(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]))

    @rule(name=NAMES, count=st.integers(1, 5))
    def grow(self, name: str, count: int) -> None:
        more = CreatePartitionsTopic(name=name, count=count, assignments=None)
        self.send(CreatePartitionsRequest(topics=[more]))

    @rule(kind=st.sampled_from([0, 1]))
    def elect(self, kind: int) -> None:
        self.send(ElectLeadersRequest(election_type=kind, topic_partitions=None))

    @rule(broker_id=BROKERS)
    def unregister(self, broker_id: int) -> None:
        self.send(UnregisterBrokerRequest(broker_id=broker_id))

    @rule()
    def elect_leaders_periodically(self) -> None:
        for records_of in (preferred_leader_records, unclean_leader_records):
            self.cluster.do(Decision(None, records_of(self.cluster.context)))

    @invariant()
    def new_records_can_be_written(self) -> None:
        encode_records(self.cluster.log[self.written :], self.level)
        self.written = len(self.cluster.log)

    @invariant()
    def invariants_of_partitions_hold(self) -> None:
        image = self.cluster.image
        for topic in image.topics.values():
            for partition in topic.partitions.values():
                members = (*partition.isr, *partition.eligible_leader_replicas)
                assert len(set(members)) == len(members)
                assert set(members) <= set(partition.replicas)
                assert len(partition.directories) == len(partition.replicas)
                if partition.leader == NO_LEADER:
                    continue
                leader = image.brokers[partition.leader]
                assert partition.leader in partition.isr
                assert not leader.is_fenced
                assert not leader.in_controlled_shutdown

    @invariant()
    def the_image_equals_the_records(self) -> None:
        self.cluster.check()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

"""Apache's admin client: the calls that no tool makes; each is answered as Apache Kafka does."""

import pytest
from interop.peers.java_tools import JavaTools

pytestmark = pytest.mark.interop

# The program's output against Apache Kafka 4.3.1.
ANSWERS = """\
validated creation: 3 partitions, 1 replicas, id true, retention 7200000 DYNAMIC_TOPIC_CONFIG
not there yet: !UnknownTopicOrPartitionException
creation: 3 partitions, 1 replicas, id true, retention 7200000 DYNAMIC_TOPIC_CONFIG
creation again: !TopicExistsException
creation with wrong replicas: !InvalidReplicaAssignmentException
creation without partitions: !InvalidPartitionsException
by id: false [0/1/1/1, 1/1/1/1, 2/1/1/1]
by unknown id: !UnknownTopicIdException
in pages: false [0/1/1/1, 1/1/1/1, 2/1/1/1]
with operations: [READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS]
listed: false
validated growth: null
growth: null
growth to too many assignments: !InvalidReplicaAssignmentException
partitions: 4
election: !ElectionNotNeededException
election of all: 0
producers: [0/9/OptionalInt.empty/OptionalLong.empty]
producers of nothing: !TimeoutException
deleted records: 2
too many deleted: !OffsetOutOfRangeException
offset, earliest: 2 at -1 in Optional[0]
offset, earliest local: 2 at -1 in Optional[0]
offset, earliest pending upload: -1 at -1 in Optional.empty
offset, latest: 10 at -1 in Optional[0]
offset, latest tiered: -1 at -1 in Optional.empty
offset, max timestamp: 5 at 1700000001000 in Optional[0]
offset, time of none: -1 at -1 in Optional.empty
offset, time of the eighth: 5 at 1700000001000 in Optional[0]
offset, time of the sixth: 5 at 1700000001000 in Optional[0]
offset of nothing: !UnknownTopicOrPartitionException
set: null
append: null
appended: compact,delete DYNAMIC_TOPIC_CONFIG
subtract: null
subtracted: delete DYNAMIC_TOPIC_CONFIG
append to a number: !InvalidConfigurationException
wrong value: !InvalidConfigurationException
unknown name: !InvalidConfigurationException
delete: null
deleted: delete DEFAULT_CONFIG
of no topic: !UnknownTopicOrPartitionException
of no broker: !TimeoutException
documented: 0 without a word, true false LONG
resources: true true
directories: true true true 0 false
replica's directory: true
move to where it is: null
move to nowhere: !LogDirNotFoundException
move of nothing: !UnknownTopicOrPartitionException
offsets set: null
offsets of two groups: 4 note Optional[0] {NAME-topic-0=null}
offsets without a topic: !UnknownTopicOrPartitionException
listed: [Optional[Classic]  Optional[Empty]]
internal topics: true
members: Stable Classic range 1 Optional[station] observer /127.0.0.1 4 \
[READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS]
as classic group: Stable consumer range 1
offsets of members: !UnknownMemberIdException
deletion of members: !GroupNotEmptyException
removal of nobody: !UnknownMemberIdException
removal: null
left: Empty
offsets deleted: null
groups deleted: !GroupIdNotFoundException
no group: !GroupIdNotFoundException
no classic group: !GroupIdNotFoundException
cluster: 1 1 22 [CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, \
IDEMPOTENT_WRITE]
quorum: 1 1 [] [1] true
features: FinalizedVersionRange[min_version_level:30, max_version_level:30] \
SupportedVersionRange[min_version:7, max_version:30] true
feature trial: !InvalidUpdateVersionException
feature upgrade that is none: !InvalidUpdateVersionException
feature without a name: !InvalidUpdateVersionException
no such broker: !BrokerIdNotRegisteredException
deletion by id: null
deletion by id again: !UnknownTopicIdException
deletion of nothing: !UnknownTopicOrPartitionException
gone: false
"""


def test_every_admin_call_is_answered_as_by_apache(tools: JavaTools, name: str) -> None:
    if tools.server.node is None:
        pytest.skip("the log directory is only known for a node that this run started")
    folder = str(tools.server.node.log_folder)
    output = tools.run_alone("AdminCalls", tools.server.address, name, folder)
    assert output.replace(name, "NAME").splitlines() == ANSWERS.splitlines()

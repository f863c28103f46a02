"""The types of arguments and results of `moldau.Admin` and `moldau.aio.Admin`."""

from moldau.client.admin.cluster import DescribedBroker, DescribedCluster
from moldau.client.admin.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigType,
    Operation,
    Synonym,
)
from moldau.client.admin.features import (
    DescribedFeatures,
    FeatureUpdate,
    LevelRange,
    UpgradeType,
)
from moldau.client.admin.group_members import Leaver
from moldau.client.admin.groups import Committed, Group, ListedGroup, Member
from moldau.client.admin.log_dirs import LogDirectory, Replica
from moldau.client.admin.offsets import FoundOffset
from moldau.client.admin.quorum import DescribedQuorum, QuorumListener, QuorumReplica
from moldau.client.admin.topics import CreatedTopic, NewTopic
from moldau.client.admin.transactions import (
    ListedTransaction,
    PartitionProducer,
    Transaction,
    TransactionFilter,
)
from moldau.client.cluster.metadata import Broker, Partition, Topic
from moldau.protocol.enums import (
    ConfigResourceType,
    ElectionType,
    IsolationLevel,
    ListOffsetsTimestamp,
)

__all__ = [
    "Broker",
    "Committed",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigType",
    "CreatedTopic",
    "DescribedBroker",
    "DescribedCluster",
    "DescribedFeatures",
    "DescribedQuorum",
    "ElectionType",
    "FeatureUpdate",
    "FoundOffset",
    "Group",
    "IsolationLevel",
    "Leaver",
    "LevelRange",
    "ListOffsetsTimestamp",
    "ListedGroup",
    "ListedTransaction",
    "LogDirectory",
    "Member",
    "NewTopic",
    "Operation",
    "Partition",
    "PartitionProducer",
    "QuorumListener",
    "QuorumReplica",
    "Replica",
    "Synonym",
    "Topic",
    "Transaction",
    "TransactionFilter",
    "UpgradeType",
]

"""Tests that pass on Apache Kafka and need features that Moldau does not serve yet: one table.

A row is (suite, test, required feature). Nothing else may be left out of a suite that is run;
`test_librdkafka.py` lists those of librdkafka with their reasons. Remove a row together with
the introduction of its feature; tests that pass accidentally without it need no row.
"""

CONSUMER_GROUPS = "groups of the consumer protocol (KIP-848)"
SHARE_GROUPS = "share groups"
STREAMS_GROUPS = "streams groups"
SECURITY = "authentication, access control and quotas"
REPLICATION = "followers that fetch from leaders"

LATER: tuple[tuple[str, str, str], ...] = (
    ("franz-go", "TestTxnEtl/range/848", CONSUMER_GROUPS),
    ("franz-go", "TestTxnEtl/sticky/848", CONSUMER_GROUPS),
    ("franz-go", "TestTxnEtl/sticky/848/static", CONSUMER_GROUPS),
    ("franz-go", "TestGroupETL/range/848", CONSUMER_GROUPS),
    ("franz-go", "TestGroupETL/sticky/848", CONSUMER_GROUPS),
    ("franz-go", "TestGroupETL/sticky/848/static", CONSUMER_GROUPS),
    ("franz-go", "Test848RegexBrokerResolves", CONSUMER_GROUPS),
    ("franz-go", "TestGroupSimple/848", CONSUMER_GROUPS),
    ("franz-go", "TestConsumeRegexShareSkipsInternal", SHARE_GROUPS),
    ("franz-go", "TestShareGroup", SHARE_GROUPS),
    ("franz-go", "TestShareGroupETL", SHARE_GROUPS),
    ("franz-go", "TestShareGroupAckOnClose", SHARE_GROUPS),
    ("franz-go", "TestShareGroupOffsetsAdmin", SHARE_GROUPS),
    ("here", "test_a_consumer_of_the_new_protocol_reads", CONSUMER_GROUPS),
    ("here", "test_a_share_group_is_listed_and_its_offsets_reset", SHARE_GROUPS),
    ("here", "test_quotas_and_credentials_of_users_change", SECURITY),
    # APIs that are not served yet are not announced either.
    ("api", "CreateDelegationToken(38)", SECURITY),
    ("api", "RenewDelegationToken(39)", SECURITY),
    ("api", "ExpireDelegationToken(40)", SECURITY),
    ("api", "DescribeDelegationToken(41)", SECURITY),
    ("api", "DescribeClientQuotas(48)", SECURITY),
    ("api", "AlterClientQuotas(49)", SECURITY),
    ("api", "DescribeUserScramCredentials(50)", SECURITY),
    ("api", "AlterUserScramCredentials(51)", SECURITY),
    ("api", "ConsumerGroupHeartbeat(68)", CONSUMER_GROUPS),
    ("api", "ConsumerGroupDescribe(69)", CONSUMER_GROUPS),
    ("api", "ShareGroupHeartbeat(76)", SHARE_GROUPS),
    ("api", "ShareGroupDescribe(77)", SHARE_GROUPS),
    ("api", "ShareFetch(78)", SHARE_GROUPS),
    ("api", "ShareAcknowledge(79)", SHARE_GROUPS),
    ("api", "InitializeShareGroupState(83)", SHARE_GROUPS),
    ("api", "ReadShareGroupState(84)", SHARE_GROUPS),
    ("api", "WriteShareGroupState(85)", SHARE_GROUPS),
    ("api", "DeleteShareGroupState(86)", SHARE_GROUPS),
    ("api", "ReadShareGroupStateSummary(87)", SHARE_GROUPS),
    ("api", "DescribeShareGroupOffsets(90)", SHARE_GROUPS),
    ("api", "AlterShareGroupOffsets(91)", SHARE_GROUPS),
    ("api", "DeleteShareGroupOffsets(92)", SHARE_GROUPS),
    ("api", "StreamsGroupHeartbeat(88)", STREAMS_GROUPS),
    ("api", "StreamsGroupDescribe(89)", STREAMS_GROUPS),
)

_REASONS = {(suite, test): reason for suite, test, reason in LATER}


def reason_to_wait(suite: str, test: str) -> str | None:
    """The missing feature that a test needs; None if the test must pass."""
    return _REASONS.get((suite, test))


def waiting(suite: str) -> set[str]:
    """The tests of a suite that wait for a feature."""
    return {test for kind, test, _ in LATER if kind == suite}

"""librdkafka's own integration tests: each that needs a broker is run, or left out for a reason."""

import re
import subprocess
from pathlib import Path

import pytest
from interop.apache import ApacheUnavailableError
from interop.missing import CACHE, give_up
from interop.peers.later import REPLICATION, SECURITY, SHARE_GROUPS, waiting
from interop.peers.servers import Server
from interop.peers.toolchains import clean_environment, librdkafka_tests

pytestmark = pytest.mark.interop

RUN_TIMEOUT_S = 600
KAFKA_VERSION = "4.3.1"
QUICK = ("-p5", "-Q", "-E", "-L")
SLOW = ("-p5", "-E", "-L")
CORE = (
    "0001_multiobj",
    "0002_unkpart",
    "0003_msgmaxsize",
    "0005_order",
    "0007_autotopic",
    "0008_reqacks",
    "0011_produce_batch",
    "0012_produce_consume",
    "0013_null_msgs",
    "0015_offsets_seek",
    "0017_compression",
    "0018_cgrp_term",
    "0019_list_groups",
    "0022_consume_batch",
    "0029_assign_offset",
    "0031_get_offsets",
    "0036_partial_fetch",
    "0039_event_dr",
    "0041_fetch_max_bytes",
    "0044_partition_cnt",
    "0050_subscribe_adds",
    "0054_offset_time",
    "0059_bsearch",
    "0061_consumer_lag",
    "0067_empty_topic",
    "0070_null_empty",
    "0073_headers",
    "0085_headers",
    "0090_idempotence",
    "0099_commit_metadata",
    "0112_assign_unknown_part",
    "0129_fetch_aborted_msgs",
    "0130_store_offsets",
    "0140_commit_metadata",
)


MORE = (
    "0014_reconsume_191",
    "0016_client_swname",
    "0020_destroy_hang",
    "0021_rkt_destroy",
    "0030_offset_commit",
    "0033_regex_subscribe",
    "0034_offset_reset",
    "0035_api_version",
    "0038_performance",
    "0040_io_event",
    "0042_many_topics",
    "0045_resubscribe_with_regex",
    "0045_subscribe_many_updates",
    "0045_subscribe_update",
    "0048_partitioner",
    "0051_assign_adds",
    "0055_producer_latency",
    "0056_balanced_group_mt",
    "0057_invalid_topic",
    "0060_op_prio",
    "0063_clusterid",
    "0064_interceptors",
    "0065_yield",
    "0069_consumer_add_parts",
    "0083_cb_event",
    "0084_destroy_flags",
    "0086_purge_remote",
    "0089_max_poll_interval",
    "0091_max_poll_interval_timeout",
    "0093_holb_consumer",
    "0102_static_group_rebalance",
    "0113_cooperative_rebalance",
    "0114_sticky_partitioning",
    "0118_commit_rebalance",
    "0123_connections_max_idle",
    "0125_immediate_flush",
    "0127_fetch_queue_backoff",
    "0137_barrier_batch_consume",
)
# These skip themselves in a quick run.
LONG = (
    "0026_consume_pause",
    "0082_fetch_max_bytes",
    "0103_transactions",
    "0122_buffer_cleaning_after_rebalance",
    "0132_strategy_ordering",
)

_SCRIPTS = "it runs Apache Kafka's shell scripts"
_NO_AUTO_CREATION = "it needs a server that does not create topics automatically"
_RAPIDJSON = "it skips itself without rapidjson"
_MOCK = "it runs against librdkafka's own mock cluster"
LEFT_OUT: dict[str, str] = {
    "0045_subscribe_update_non_exist_and_partchange": _NO_AUTO_CREATION,
    "0045_subscribe_update_topic_remove": _NO_AUTO_CREATION,
    "0052_msg_timestamps": _SCRIPTS,
    "0053_stats": _RAPIDJSON,
    "0077_compaction": _SCRIPTS,
    "0081_admin": f"it creates ACLs: {SECURITY}",
    "0092_mixed_msgver": "it skips itself: Kafka 4.0 has removed the format of its messages",
    "0097_ssl_verify": SECURITY,
    "0098_consumer_txn": _RAPIDJSON,
    "0101_fetch_from_follower": REPLICATION,
    "0107_topic_recreate": _NO_AUTO_CREATION,
    "0109_auto_create_topics": _SCRIPTS,
    "0110_batch_size": _RAPIDJSON,
    "0111_delay_create_topics": _NO_AUTO_CREATION,
    "0115_producer_auth": SECURITY,
    "0119_consumer_auth": SECURITY,
    "0126_oauthbearer_oidc": SECURITY,
    "0135_sasl_credentials": SECURITY,
    "0139_offset_validation_mock": _MOCK,
    "0142_reauthentication": SECURITY,
    "0150_telemetry_mock": _MOCK,
    "0170_share_consumer_subscription": SHARE_GROUPS,
    "0171_share_consumer_consume": SHARE_GROUPS,
    "0172_share_consumer_acknowledge": SHARE_GROUPS,
    "0173_share_consumer_commit_async": SHARE_GROUPS,
    "0174_share_consumer_concurrency": SHARE_GROUPS,
    "0175_share_consumer_groups": SHARE_GROUPS,
    "0176_share_consumer_commit_sync": SHARE_GROUPS,
    "0177_share_consumer_transactions": SHARE_GROUPS,
    "0178_share_consumer_close": SHARE_GROUPS,
    "0179_share_consumer_destroy": SHARE_GROUPS,
    "0180_share_consumer_config": SHARE_GROUPS,
    "0181_share_consumer_topic_delete": SHARE_GROUPS,
    "0184_share_consumer_topic_recreate": SHARE_GROUPS,
    "0185_share_consumer_max_poll_interval": SHARE_GROUPS,
}
# Tests with one of these flags need no broker, or sockets that librdkafka breaks, or a person, or
# fail everywhere. The flags of known issues on other systems mean nothing here.
_NOT_FOR_A_BROKER = re.compile(r"TEST_F_(?:LOCAL|SOCKEM|MANUAL|KNOWN_ISSUE\b)")


@pytest.fixture(scope="module")
def suite() -> Path:
    try:
        return librdkafka_tests(CACHE)
    except ApacheUnavailableError as reason:
        give_up(reason, "librdkafka's tests need npm and a C++ compiler")


def test_every_test_that_needs_a_broker_is_run_or_left_out_for_a_reason(suite: Path) -> None:
    table = (suite / "tests" / "test.c").read_text().partition("struct test tests[] = {")[2]
    rows = re.findall(r"_TEST\((\w+),\s*([\w| ]+?)[,)]", table.partition("{NULL}")[0])
    assert len(rows) > 150, "the table has another form now"
    wanted = [name for name, flags in rows if not _NOT_FOR_A_BROKER.search(flags)]
    assert sorted([*CORE, *MORE, *LONG, *LEFT_OUT]) == sorted(wanted)


@pytest.mark.parametrize(
    ("tests", "options"),
    [(CORE, QUICK), (MORE, QUICK), (LONG, SLOW)],
    ids=["core", "more", "long"],
)
def test_librdkafkas_tests_pass(
    suite: Path,
    patient_server: Server,
    tmp_path: Path,
    tests: tuple[str, ...],
    options: tuple[str, ...],
) -> None:
    """Runs five at a time: they mostly wait. Some rely on members that join in quick succession
    getting their partitions together.
    """
    left_out = waiting("librdkafka") if patient_server.is_moldau else set()
    wanted = [test for test in tests if test not in left_out]
    settings = tmp_path / "test.conf"
    settings.write_text(f"bootstrap.servers={patient_server.address}\nbroker.address.family=v4\n")
    variables = {
        "TESTS": ",".join(test[:4] for test in wanted),
        "RDKAFKA_TEST_CONF": str(settings),
        "TEST_KAFKA_VERSION": KAFKA_VERSION,
        "LD_LIBRARY_PATH": f"{suite / 'src'}:{suite / 'src-cpp'}",
    }
    log = tmp_path / "tests.log"
    with log.open("wb") as output:
        subprocess.run(
            [suite / "tests" / "test-runner", *options],
            cwd=tmp_path,
            env=clean_environment(**variables),
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
    text = log.read_text(errors="replace")
    passed = set(re.findall(r"Test (\d{4}_\w+) PASSED", text))
    missing = sorted(set(wanted) - passed)
    assert missing == [], _last_words(text, missing)


def _last_words(text: str, tests: list[str]) -> str:
    """The end of each failed test's output."""
    lines = text.splitlines()
    output = []
    for test in tests:
        about = [n for n, line in enumerate(lines) if f"[{test}" in line or f'"{test}"' in line]
        output += [line for n in about[-12:] for line in lines[n : n + 2]]
    return "\n".join(output)

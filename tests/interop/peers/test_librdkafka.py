"""librdkafka's own integration tests, chosen by name: those that need neither broken sockets, nor a
cluster, nor security, and that end within minutes.
"""

import re
import subprocess
from pathlib import Path

import pytest
from interop.apache import ApacheUnavailableError
from interop.missing import CACHE, give_up
from interop.peers.later import waiting
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
    "0040_io_event",
    "0042_many_topics",
    "0048_partitioner",
    "0051_assign_adds",
    "0055_producer_latency",
    "0056_balanced_group_mt",
    "0057_invalid_topic",
    "0060_op_prio",
    "0063_clusterid",
    "0065_yield",
    "0069_consumer_add_parts",
    "0083_cb_event",
    "0084_destroy_flags",
    "0086_purge_remote",
    "0093_holb_consumer",
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


@pytest.fixture(scope="module")
def suite() -> Path:
    try:
        return librdkafka_tests(CACHE)
    except ApacheUnavailableError as reason:
        give_up(reason, "librdkafka's tests need npm and a C++ compiler")


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

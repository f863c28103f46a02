"""franz-go's own tests of its client, `pkg/kgo`."""

import re
import subprocess
from pathlib import Path

import pytest
from interop.apache import ApacheUnavailableError
from interop.missing import CACHE, give_up
from interop.peers.later import waiting
from interop.peers.servers import Server
from interop.peers.toolchains import clean_environment, franz_go_tests

pytestmark = pytest.mark.interop

RUN_TIMEOUT_S = 600
RECORDS = 10_000
# These need a listener with SASL, or a broker from before 2016; they skip on Apache Kafka as well.
SKIP_EVERYWHERE = {
    "TestIssueProduceBrokerTooOldFailsRecords",
    "TestSCRAMAuth",
    "TestSCRAMAuthBadCredentials",
}
TESTS_MIN = 140


@pytest.fixture(scope="module")
def suite() -> Path:
    try:
        return franz_go_tests(CACHE)
    except ApacheUnavailableError as reason:
        give_up(reason, "franz-go's tests need Go")


def test_franz_gos_tests_pass(suite: Path, server: Server, tmp_path: Path) -> None:
    left_out = waiting("franz-go") if server.is_moldau else set()
    variables = {
        "KGO_SEEDS": server.address,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(RECORDS),
        "KGO_LOG_LEVEL": "none",
    }
    command = [str(suite / "kgo.test"), "-test.v", f"-test.timeout={RUN_TIMEOUT_S - 30}s"]
    whole = sorted(test for test in left_out if "/" not in test)
    if whole:
        command.append(f"-test.skip=^({'|'.join(whole)})$")
    log = tmp_path / "tests.log"
    with log.open("wb") as output:
        subprocess.run(
            command,
            cwd=suite,
            env=clean_environment(**variables),
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
    text = log.read_text(errors="replace")
    results = _results(text)
    failed = sorted(test for test, result in results.items() if result == "FAIL")
    assert failed == [], text[-6000:]
    skipped = {test for test, result in results.items() if result == "SKIP"}
    assert skipped == SKIP_EVERYWHERE | {test for test in left_out if "/" in test}
    passed = [test for test, result in results.items() if result == "PASS" and "/" not in test]
    assert len(passed) >= TESTS_MIN - len(whole), text[-3000:]


def _results(text: str) -> dict[str, str]:
    lines = re.findall(r"^ *--- (PASS|FAIL|SKIP): (\S+)", text, re.MULTILINE)
    return {test: result for result, test in lines}

"""The pytest fixtures, used by a separate pytest run as a user's would."""

import pytest

pytest_plugins = ["pytester"]

MEDDLING = """
    import time
    import pytest
    from moldau import Admin, Producer

    HOUR_MS = 3_600_000

    @pytest.fixture(scope="session")
    def producer(moldau_broker):
        with Producer(moldau_broker.bootstrap) as made:
            yield made

    def test_meddles(moldau_broker, producer, moldau_topic):
        moldau_broker.fail_next("Produce", "INVALID_RECORD", times=100)
        moldau_broker.delay("Metadata", ms=HOUR_MS)
        moldau_broker.clock.advance(ms=HOUR_MS)

    def test_finds_no_fault_and_no_delay(producer):
        assert producer.send("orders", b"a").result(timeout=30).offset == 0

    def test_finds_the_real_time(moldau_broker, producer, moldau_topic):
        moldau_broker.create_topic("stamped", config={"message.timestamp.type": "LogAppendTime"})
        stamped_ms = producer.send("stamped", b"a").result(timeout=30).timestamp
        assert stamped_ms < time.time() * 1000 + HOUR_MS / 2

    def test_leaves_a_request_waiting(moldau_broker, producer):
        moldau_broker.delay("Produce", ms=HOUR_MS)
        test_leaves_a_request_waiting.sent = producer.send("orders", b"b")
        producer.metrics()

    def test_gets_the_answer():
        assert test_leaves_a_request_waiting.sent.result(timeout=30).offset == 1

    def test_stops_it(request):
        request.getfixturevalue("moldau_broker").stop()

    def test_finds_topics_and_records(moldau_broker, producer):
        assert producer.send("orders", b"c").result(timeout=30).offset == 2
        with Admin(moldau_broker.bootstrap) as admin:
            assert "orders" in admin.list_topics()
"""


def test_effects_of_a_test_on_the_broker_end_with_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MEDDLING)
    pytester.runpytest_subprocess("-q", "-x", "-p", "no:cacheprovider").assert_outcomes(passed=7)


def test_tests_without_a_broker_start_none(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_is_light():
            assert "moldau.broker.node.node" not in sys.modules
    """)
    pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider").assert_outcomes(passed=1)

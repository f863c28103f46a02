"""The admin client against Moldau, and how it is misused."""

import pytest
from client.admin_cases import *  # noqa: F403 - these are the tests

import moldau
import moldau.aio
from moldau.errors import ClosedError, ConfigError, NoBrokerError
from moldau.testing import ThreadBroker


@pytest.fixture
def bootstrap(node: ThreadBroker) -> str:
    return node.bootstrap


def test_errors_that_pass_are_not_seen(node: ThreadBroker) -> None:
    with moldau.Admin(node.bootstrap, retry_backoff_ms=1) as admin:
        node.fail_next("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=3)
        assert admin.list_group_offsets(["some-group"]) == {"some-group": {}}
        for _ in range(3):
            node.drop_connections()
            assert admin.describe_cluster().brokers


async def test_a_closed_client_says_so(node: ThreadBroker) -> None:
    admin = moldau.Admin(node.bootstrap)
    admin.close()
    admin.close()
    with pytest.raises(ClosedError, match="this client is closed"):
        admin.list_topics()
    other = moldau.aio.Admin(node.bootstrap)
    await other.close()
    await other.close()
    with pytest.raises(ClosedError, match="this admin client is closed"):
        await other.list_topics()


def test_nobody_there_is_an_error_at_once() -> None:
    with (
        moldau.Admin("127.0.0.1:1") as admin,
        pytest.raises(NoBrokerError, match="nothing listens there"),
    ):
        admin.list_topics()


def test_wrong_settings_are_said_before_anything_is_done() -> None:
    with pytest.raises(ConfigError, match="did you mean request_timeout_ms"):
        moldau.Admin("127.0.0.1:1", requst_timeout_ms=5)

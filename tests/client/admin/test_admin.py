"""The admin client against Moldau, and its errors for wrong use."""

import pytest
from client.admin_cases import *  # noqa: F403 - these are the tests
from support.waiting import wait_for

import moldau
import moldau.aio
from moldau.admin import FeatureUpdate, UpgradeType
from moldau.errors import ClosedError, ConfigError, NoBrokerError
from moldau.testing import ThreadBroker


@pytest.fixture
def bootstrap(node: ThreadBroker) -> str:
    return node.bootstrap


def test_retriable_errors_are_not_raised(node: ThreadBroker) -> None:
    with moldau.Admin(node.bootstrap, retry_backoff_ms=1) as admin:
        node.fail_next("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=3)
        assert admin.list_group_offsets(["some-group"]) == {"some-group": {}}
        for _ in range(3):
            node.drop_connections()
            assert admin.describe_cluster().brokers


async def test_a_closed_client_raises_closed_error(node: ThreadBroker) -> None:
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


def test_an_unreachable_cluster_is_an_error_at_once() -> None:
    with (
        moldau.Admin("127.0.0.1:1") as admin,
        pytest.raises(NoBrokerError, match="nothing listens there"),
    ):
        admin.list_topics()


def test_wrong_settings_raise_before_anything_is_done() -> None:
    with pytest.raises(ConfigError, match="did you mean request_timeout_ms"):
        moldau.Admin("127.0.0.1:1", requst_timeout_ms=5)  # type: ignore[call-arg]


def test_a_changed_level_is_seen_on_the_same_connection(node: ThreadBroker) -> None:
    feature = "group.version"

    def level(admin: moldau.Admin) -> int:
        found = admin.describe_features().finalized.get(feature)
        return found.newest if found else 0

    with moldau.Admin(node.bootstrap) as admin:
        before = level(admin)
        ways = [UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE]
        for wanted, way in [(1 - before, ways[before]), (before, ways[1 - before])]:
            assert admin.update_features({feature: FeatureUpdate(wanted, way)}) == {feature: None}
            wait_for(lambda wanted=wanted: level(admin) == wanted, "the new level")  # type: ignore[misc]

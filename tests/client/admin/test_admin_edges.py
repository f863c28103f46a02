"""Arguments of an admin client that could be misunderstood."""

from typing import Any

import pytest
from client.clusters import fresh_topic

from moldau import Admin
from moldau.errors import ClientError
from moldau.testing import ThreadBroker


@pytest.mark.parametrize(
    "use",
    [
        lambda admin: admin.delete_topics("orders"),
        lambda admin: admin.create_topics("orders"),
        lambda admin: admin.describe_topics("orders"),
        lambda admin: admin.describe_groups("orders"),
        lambda admin: admin.delete_groups("orders"),
        lambda admin: admin.fence_producers("orders"),
    ],
)
def test_a_single_str_is_refused_as_a_list_of_names(node: ThreadBroker, use: Any) -> None:
    with Admin(node.bootstrap) as admin, pytest.raises(ClientError, match=r"\['orders'\]"):
        use(admin)


def test_partitions_may_be_plain_pairs(node: ThreadBroker) -> None:
    partition: Any = (fresh_topic(node), 0)
    with Admin(node.bootstrap) as admin:
        assert [at.offset for at in admin.list_offsets({partition: -1}).values()] == [0]  # type: ignore[union-attr]
        assert admin.delete_records({partition: 0}) == {partition: 0}
        assert admin.alter_group_offsets("admin-edges", {partition: 7}) == {partition: None}
        with pytest.raises(ClientError, match="expected a partition"):
            admin.delete_records({"orders": 5})  # type: ignore[dict-item]

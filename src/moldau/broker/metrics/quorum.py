"""The metrics of the metadata quorum: Kafka's raft-metrics, as this node sees them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from moldau.core.quorum.roles import Candidate, Leader, Resigned

if TYPE_CHECKING:
    from moldau.broker.quorum.measurements import Latency
    from moldau.broker.quorum.quorum_node import QuorumNode
    from moldau.core.quorum.roles import Role

_NO_VOTE = -1


def quorum_metrics(quorum: "QuorumNode") -> Iterator[Metric]:
    yield from _state(quorum)
    yield from _log(quorum)
    yield from _work(quorum)


def _state(quorum: "QuorumNode") -> Iterator[Metric]:
    role = quorum.parts.machine.role
    state = GaugeMetricFamily(
        "moldau_quorum_current_state",
        "1 for the state that this node has in the metadata quorum.",
        labels=["state"],
    )
    state.add_metric([_name_of(role, is_voter=quorum.is_voter)], 1)
    yield state
    yield GaugeMetricFamily(
        "moldau_quorum_current_leader",
        "Id of the quorum's leader, -1 if it is unknown.",
        value=quorum.leader_id,
    )
    yield GaugeMetricFamily(
        "moldau_quorum_current_epoch", "Epoch of the quorum.", value=quorum.leader_epoch
    )
    yield GaugeMetricFamily(
        "moldau_quorum_current_vote",
        "Id of the node that this node votes for in its epoch, -1 if there is none.",
        value=_vote_of(role, quorum.parts.machine.local.key.node_id),
    )
    yield GaugeMetricFamily(
        "moldau_quorum_voters",
        "Voters of the quorum, as this node knows them.",
        value=len(quorum.voters.by_id),
    )
    if isinstance(role, Leader):
        yield GaugeMetricFamily(
            "moldau_quorum_observers",
            "Nodes that fetch from this leader and are not voters.",
            value=len(role.observers),
        )
        yield GaugeMetricFamily(
            "moldau_quorum_uncommitted_voter_change",
            "1 while this leader adds or removes a voter.",
            value=role.change is not None,
        )


def _log(quorum: "QuorumNode") -> Iterator[Metric]:
    end, high_watermark = quorum.log.end, quorum.high_watermark
    yield GaugeMetricFamily(
        "moldau_quorum_high_watermark",
        "End of the committed metadata records, -1 if it is unknown.",
        value=high_watermark,
    )
    yield GaugeMetricFamily(
        "moldau_quorum_log_end_offset", "End of this node's metadata log.", value=end.offset
    )
    yield GaugeMetricFamily(
        "moldau_quorum_log_end_epoch",
        "Epoch of the last record of this node's metadata log.",
        value=end.epoch,
    )
    yield GaugeMetricFamily(
        "moldau_quorum_uncommitted_records",
        "Records of this node's metadata log that are not known to be committed.",
        value=end.offset - max(high_watermark, 0),
    )


def _work(quorum: "QuorumNode") -> Iterator[Metric]:
    measured = quorum.measurements
    yield CounterMetricFamily(
        "moldau_quorum_appended_records",
        "Metadata records that this node appended as the leader.",
        value=measured.records_appended,
    )
    yield CounterMetricFamily(
        "moldau_quorum_fetched_records",
        "Metadata records that this node fetched from leaders.",
        value=measured.records_fetched,
    )
    yield CounterMetricFamily(
        "moldau_quorum_delayed_writes",
        "Votes and truncations that were tried again because no file descriptor was free.",
        value=measured.delayed_writes,
    )
    yield CounterMetricFamily(
        "moldau_quorum_busy_seconds",
        "Time for which the quorum has held the event loop.",
        value=quorum.busy_ms / 1000,
    )
    yield SummaryMetricFamily(
        "moldau_quorum_commit_seconds",
        "Time from an append by this leader until a majority has it.",
        *_sums(measured.commits),
    )
    yield GaugeMetricFamily(
        "moldau_quorum_commit_max_seconds",
        "The longest time of a commit since the start.",
        value=measured.commits.max_ms / 1000,
    )
    yield SummaryMetricFamily(
        "moldau_quorum_election_seconds",
        "Time from standing for election until a leader is known.",
        *_sums(measured.elections),
    )
    yield GaugeMetricFamily(
        "moldau_quorum_election_max_seconds",
        "The longest election since the start.",
        value=measured.elections.max_ms / 1000,
    )


def _sums(latency: "Latency") -> tuple[int, float]:
    return latency.count, latency.total_ms / 1000


def _name_of(role: "Role", *, is_voter: bool) -> str:
    """Kafka's names."""
    match role.name:
        case "follower" if not is_voter:
            return "observer"
        case "unattached" | "prospective" if _vote_of(role, _NO_VOTE) != _NO_VOTE:
            return f"{role.name}-voted"
        case name:
            return name


def _vote_of(role: "Role", local_id: int) -> int:
    if isinstance(role, Leader | Candidate):
        return local_id
    if isinstance(role, Resigned) or role.voted_for is None:
        return _NO_VOTE
    return role.voted_for.node_id

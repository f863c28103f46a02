"""The settings of the quorum, in the form that its machine takes."""

from collections.abc import Sequence
from random import Random

from moldau.config.addresses import HostPort, host_and_port
from moldau.config.broker import BrokerConfig
from moldau.core.quorum.machine import QuorumMachine
from moldau.core.quorum.options import QuorumOptions
from moldau.core.quorum.positions import LogView
from moldau.core.quorum.rpc import Destination
from moldau.core.quorum.voters import Voter, VoterEndpoint, VoterKey, VoterSet
from moldau.storage.directory.directory import LogDirectory
from moldau.types import ZERO_UUID, BrokerId

_FIRST_BOOTSTRAP_ID = -2


def new_machine(config: BrokerConfig, local: Voter, log: LogView, chance: Random) -> QuorumMachine:
    options = quorum_options(config, local)
    return QuorumMachine(local, configured_voters(config), options, log, chance)


def local_voter(
    config: BrokerConfig, directory: LogDirectory, endpoints: Sequence[VoterEndpoint] | None
) -> Voter:
    """`endpoints` are those of the settings unless they are given."""
    key = VoterKey(BrokerId(config.node_id), directory.meta.directory_id or ZERO_UUID)
    if endpoints is None:
        endpoints = configured_endpoints(config)
    return Voter(key=key, endpoints=tuple(endpoints))


def quorum_options(config: BrokerConfig, local: Voter) -> QuorumOptions:
    return QuorumOptions(
        listener=config.controller_names[0],
        may_become_voter=config.is_controller,
        auto_join=config.controller_quorum_auto_join_enable,
        bootstrap=bootstrap_servers(config, local),
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
        fetch_snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
    )


def flush_settings(config: BrokerConfig) -> BrokerConfig:
    """Kafka's leader collects records for the linger time before it writes them. This node's leader
    writes at once: what it collects are syncs, and only under load.
    """
    interval_ms = str(config.controller_quorum_append_linger_ms)
    return BrokerConfig.parse({**config.given, "moldau.flush.interval.ms": interval_ms})


def bootstrap_servers(config: BrokerConfig, local: Voter) -> tuple[Destination, ...]:
    """Where to look for the quorum; by default at its fixed voters. Not at this node itself. As in
    Kafka, they have ids that no node has.
    """
    given = map(host_and_port, config.controller_quorum_bootstrap_servers)
    servers = [address for address in given if address is not None]
    if not servers:
        servers = [HostPort(voter.host, voter.port) for voter in config.voters]
    own = {(endpoint.host, endpoint.port) for endpoint in local.endpoints}
    return tuple(
        Destination(_FIRST_BOOTSTRAP_ID - number, host, port)
        for number, (host, port) in enumerate(servers)
        if (host, port) not in own
    )


def configured_endpoints(config: BrokerConfig) -> tuple[VoterEndpoint, ...]:
    return tuple(
        VoterEndpoint(listener.name, listener.host or "localhost", listener.port)
        for listener in config.advertised_controller_listeners
    )


def configured_voters(config: BrokerConfig) -> VoterSet:
    """Before kraft.version 1 the settings define the voters, and directory ids do not matter. The
    settings do not say which versions a voter supports; it reports them to the leader.
    """
    name = config.controller_names[0]
    return VoterSet.of(
        Voter(
            key=VoterKey(BrokerId(voter.node_id)),
            endpoints=(VoterEndpoint(name, voter.host, voter.port),),
            kraft_versions=(0, 0),
        )
        for voter in config.voters
    )

"""What the settings say about the quorum, as its machine takes it."""

from collections.abc import Sequence
from random import Random

from moldau.config.broker import BrokerConfig
from moldau.core.quorum.history import Changes, QuorumHistory
from moldau.core.quorum.machine import QuorumMachine, VotersError
from moldau.core.quorum.options import QuorumOptions
from moldau.core.quorum.positions import LogView
from moldau.core.quorum.voters import Voter, VoterEndpoint, VoterKey, VoterSet
from moldau.storage.directory.directory import LogDirectory
from moldau.types import ZERO_UUID, BrokerId


def new_machine(config: BrokerConfig, local: Voter, log: LogView, chance: Random) -> QuorumMachine:
    return QuorumMachine(local, configured_voters(config), quorum_options(config), log, chance)


def local_voter(
    config: BrokerConfig, directory: LogDirectory, endpoints: Sequence[VoterEndpoint] | None
) -> Voter:
    """`endpoints` are those of the settings unless they are given."""
    key = VoterKey(BrokerId(config.node_id), directory.meta.directory_id or ZERO_UUID)
    if endpoints is None:
        endpoints = configured_endpoints(config)
    return Voter(key=key, endpoints=tuple(endpoints))


def check_alone(key: VoterKey, static_voters: VoterSet, changes: Changes) -> None:
    """The machine supports several voters; the requests between nodes are missing."""
    history = QuorumHistory(static_voters)
    history.add(changes)
    if any(node_id != key.node_id for node_id in history.voters.by_id):
        raise VotersError(
            f"the quorum's voters are {history.voters}, and this is node {key}: "
            "only a quorum of this one node is supported so far"
        )


def quorum_options(config: BrokerConfig) -> QuorumOptions:
    """Elections keep the default time-outs: a single voter waits for no other."""
    return QuorumOptions(listener=config.controller_names[0])


def configured_endpoints(config: BrokerConfig) -> tuple[VoterEndpoint, ...]:
    return tuple(
        VoterEndpoint(listener.name, listener.host or "localhost", listener.port)
        for listener in config.advertised_controller_listeners
    )


def configured_voters(config: BrokerConfig) -> VoterSet:
    """Before kraft.version 1 the settings define the voters, and directory ids do not matter."""
    name = config.controller_names[0]
    return VoterSet.of(
        Voter(
            key=VoterKey(BrokerId(voter.node_id)),
            endpoints=(VoterEndpoint(name, voter.host, voter.port),),
        )
        for voter in config.voters
    )

"""What the settings say about the quorum, as its machine takes it."""

from moldau.config.broker import BrokerConfig
from moldau.core.quorum.history import Changes, QuorumHistory
from moldau.core.quorum.machine import VotersError
from moldau.core.quorum.options import QuorumOptions
from moldau.core.quorum.voters import Voter, VoterEndpoint, VoterKey, VoterSet
from moldau.types import BrokerId


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

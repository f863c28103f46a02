"""Messages for administrators whose change of the voters is refused: Apache's texts, because its
tools print them, and scripts look for them.
"""

from moldau.core.quorum.rpc import Endpoints
from moldau.core.quorum.voters import VoterKey, VoterSet
from moldau.types import uuid_text

CHANGE_PENDING = "Request timed out waiting for leader to handle previous voter change request"
NOTHING_COMMITTED = (
    "Request timed out waiting for leader to establish HWM and fence previous voter changes"
)
NO_VOTER_TO_ADD = "Add voter request didn't include a valid voter"
NO_VOTER_TO_REMOVE = "Remove voter request didn't include a valid voter"


def fixed_voters(change: str, kraft_version: int) -> str:
    """`change` is adding or removing."""
    feature = f"kraft.version feature is {kraft_version}"
    return f"Cluster doesn't support {change} voter because the {feature}"


def uncommitted_voters(offset: int, high_watermark: int) -> str:
    return (
        "Request timed out waiting for voters to commit the latest voter change at "
        f"Optional[{offset}] with HWM {high_watermark}"
    )


def no_address(endpoints: Endpoints, listener: str) -> str:
    shown = ", ".join(
        f"ListenerName({each.listener})={each.host}/<unresolved>:{each.port}" for each in endpoints
    )
    return (
        f"Add voter request didn't include the endpoint (Endpoints(endpoints={{{shown}}})) for the "
        f"default listener ListenerName({listener})"
    )


def duplicate_voter(voter: VoterKey, voters: VoterSet) -> str:
    return (
        f"The voter id for {_shown(voter)} is already part of the set of voters "
        f"[{_all_shown(voters)}]."
    )


def cannot_be_removed(voter: VoterKey, voters: VoterSet) -> str:
    return f"Cannot remove voter {_shown(voter)} from the set of voters [{_all_shown(voters)}]"


def not_ready(voter: VoterKey) -> str:
    return f"New voter {_shown(voter)} is not ready to receive requests"


def versions_refused(error_name: str) -> str:
    return "Aborted add voter operation for since API_VERSIONS returned an error " + error_name


def unsupported_level(voter: VoterKey, supported: tuple[int, int], level: int) -> str:
    lowest, highest = supported
    return (
        f"Aborted add voter operation for {_shown(voter)} since the kraft.version range "
        f"(min: {lowest}, max: {highest} doesn't support the finalized version {level}"
    )


def lagging(voter: VoterKey) -> str:
    return f"Aborted add voter operation for {_shown(voter)} since it is lagging behind"


def _all_shown(voters: VoterSet) -> str:
    return ", ".join(_shown(voters.by_id[node_id].key) for node_id in sorted(voters.by_id))


def _shown(voter: VoterKey) -> str:
    directory = uuid_text(voter.directory_id) if voter.has_directory else "<undefined>"
    return f"ReplicaKey(id={voter.node_id}, directoryId={directory})"

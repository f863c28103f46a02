"""The follower's part, and that of any node that looks for a leader: fetching records or a
snapshot, and making the log a prefix of the leader's.
"""

from moldau.core.quorum.elections import Elections
from moldau.core.quorum.events import (
    AppendFetched,
    AppendSnapshot,
    BeginSnapshot,
    Commit,
    DropSnapshot,
    InstallSnapshot,
    TruncateLog,
)
from moldau.core.quorum.peers import FOREVER_MS
from moldau.core.quorum.positions import has_all_of, truncation_offset
from moldau.core.quorum.roles import Follower, SnapshotTransfer, Unattached
from moldau.core.quorum.rpc import (
    AddVoterRequest,
    ChangeVotersResponse,
    Failure,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    Request,
    UpdateVoterRequest,
)
from moldau.core.quorum.state import QuorumState
from moldau.protocol.error_codes import ErrorCode
from moldau.types import Offset


class Following:
    def __init__(self, state: QuorumState, elections: Elections) -> None:
        self._state = state
        self._elections = elections

    # Time

    def poll_unattached(self) -> float:
        """Looks for a leader; returns when to look again."""
        state, role = self._state, self._state.role
        assert isinstance(role, Unattached)
        if state.is_stopping:
            return FOREVER_MS
        if state.may_lead and state.now_ms >= role.election_due_ms:
            self._elections.stand()
            return state.now_ms
        return min(self._fetch_from_any(), role.election_due_ms if state.may_lead else FOREVER_MS)

    def poll(self) -> float:
        """Fetches from the leader, or finds that it is gone; returns when to look again."""
        state, role = self._state, self._follower
        if state.is_stopping:
            return FOREVER_MS
        if role.is_writing or not self._may_acknowledge():
            # A slow local disk is not a sign of a lost leader.
            return FOREVER_MS
        if state.may_lead and state.now_ms >= role.fetch_due_ms:
            if not role.is_leader_gone:
                state.note(f"leader {role.leader_id} has not answered a fetch for too long")
            self._elections.stand()
            return state.now_ms
        due_ms = role.fetch_due_ms if state.may_lead else FOREVER_MS
        if state.now_ms < role.fetch_resumes_ms:
            return min(due_ms, role.fetch_resumes_ms)
        if state.now_ms >= role.voter_update_due_ms:
            self._update_leader(role)
        if state.now_ms < role.voter_update_due_ms or self._is_leader_paused(role):
            due_ms = min(due_ms, self._fetch(role))
        return min(due_ms, max(role.voter_update_due_ms, self._leader_due_ms(role)))

    @property
    def _follower(self) -> Follower:
        assert isinstance(self._state.role, Follower)
        return self._state.role

    def _may_acknowledge(self) -> bool:
        """A fetch acknowledges everything before it, so that must be on the disk."""
        log = self._state.log
        return not self._state.counts_acknowledgements or log.flushed_offset >= log.end.offset

    # This node's own entry among the voters

    def _update_leader(self, role: Follower) -> None:
        """Between two fetches, once in a while."""
        update = self._own_update(role)
        if update is None or self._send_to_leader(role, update):
            role.voter_update_due_ms = self._state.now_ms + self._state.options.fetch_timeout_ms

    def _own_update(self, role: Follower) -> Request | None:
        """The request that corrects this node's entry among the voters, if it is outdated."""
        state, local = self._state, self._state.local
        if state.is_voter:
            is_known = not state.voters.needs_update(local)
            if is_known if state.is_reconfigurable else role.has_updated_leader:
                return None
            return UpdateVoterRequest(
                epoch=role.epoch,
                voter=local.key,
                endpoints=local.endpoints,
                kraft_versions=local.kraft_versions,
            )
        options = state.options
        if not (state.is_reconfigurable and options.may_become_voter and options.auto_join):
            return None
        replaced = state.voters.by_id.get(local.key.node_id)
        if replaced is not None:
            return RemoveVoterRequest(voter=replaced.key)
        return AddVoterRequest(
            voter=local.key, endpoints=local.endpoints, is_acknowledged_when_committed=False
        )

    def update_received(self, request: Request, response: ChangeVotersResponse) -> bool:
        state = self._state
        is_update = isinstance(request, UpdateVoterRequest)
        if is_update:
            handled = self._elections.learn(response.error, response.leadership)
            if handled is not None:
                return handled
        role = state.role
        if not isinstance(role, Follower):
            return True
        if is_update and response.error is ErrorCode.NONE:
            self.update_accepted()
            return True
        role.voter_update_due_ms = state.now_ms + state.options.fetch_timeout_ms
        return not is_update and response.error in _VOTER_CHANGE_DONE

    def update_accepted(self) -> None:
        """Or the leader does not know such updates. It is not asked again in this epoch."""
        role = self._state.role
        if isinstance(role, Follower):
            role.has_updated_leader = True
            self._reset_fetch_time(role)

    # Fetching

    def _fetch(self, role: Follower) -> float:
        """From the leader; from any other while the leader does not answer."""
        connections, now_ms = self._state.connections, self._state.now_ms
        if connections.has_timed_out(role.leader_id, now_ms):
            connections.forget(role.leader_id)
            return self._fetch_from_any()
        if self._is_leader_paused(role):
            return min(self._fetch_from_any(), self._leader_due_ms(role))
        if connections.is_any_under_way(now_ms):
            return connections.bootstrap_due_ms(now_ms)
        if role.transfer is None:
            self._send_to_leader(role, self._fetch_request())
        else:
            self._send_to_leader(role, self._fetch_snapshot_request(role.transfer))
        return self._leader_due_ms(role)

    def _fetch_snapshot_request(self, transfer: SnapshotTransfer) -> FetchSnapshotRequest:
        return FetchSnapshotRequest(
            replica=self._state.local.key,
            epoch=self._state.epoch,
            snapshot=transfer.snapshot,
            position=transfer.position,
            max_bytes=self._state.options.fetch_snapshot_max_bytes,
        )

    def _fetch_request(self) -> FetchRequest:
        state, options = self._state, self._state.options
        return FetchRequest(
            replica=state.local.key,
            epoch=state.epoch,
            position=state.log.end,
            high_watermark=state.known_high_watermark,
            max_bytes=options.fetch_max_bytes,
            max_wait_ms=options.fetch_wait_ms,
        )

    def _fetch_from_any(self) -> float:
        """Fetches from any bootstrap server: its response names the leader."""
        state = self._state
        if not self._may_acknowledge():
            return FOREVER_MS
        destination = state.connections.ready_bootstrap(state.now_ms)
        if destination is not None:
            state.send(destination, self._fetch_request())
        return state.connections.bootstrap_due_ms(state.now_ms)

    def _send_to_leader(self, role: Follower, request: Request) -> bool:
        destination = self._state.peers.address_of(role.leader_id, role.endpoints)
        if destination is None or not self._state.connections.is_ready(
            role.leader_id, self._state.now_ms
        ):
            return False
        self._state.send(destination, request)
        return True

    def _leader_due_ms(self, role: Follower) -> float:
        return self._state.connections.due_ms(role.leader_id, self._state.now_ms)

    def _is_leader_paused(self, role: Follower) -> bool:
        return self._state.connections.is_paused(role.leader_id, self._state.now_ms)

    def fetch_failed(self, node_id: int, failure: Failure) -> None:
        role = self._state.role
        if failure is Failure.REFUSED and isinstance(role, Follower) and node_id == role.leader_id:
            self._elections.leader_has_ended()

    def records_received(self, request: FetchRequest, response: FetchResponse) -> bool:
        handled = self._elections.learn(response.error, response.leadership)
        if handled is not None:
            return handled
        state, role = self._state, self._state.role
        if request.position != state.log.end:
            # A late response. The log has changed since, and a truncation could remove committed
            # records.
            return True
        if not isinstance(role, Follower) or response.error is not ErrorCode.NONE:
            return False
        if role.transfer is not None and response.snapshot == role.transfer.snapshot:
            # Only a response was lost: the next piece is fetched.
            self._reset_fetch_time(role)
            return True
        self.drop_snapshot()
        if response.diverging is not None:
            self._truncate(role, response)
        elif response.snapshot is not None:
            return self._begin_snapshot(role, response)
        else:
            role.leader_high_watermark = response.high_watermark
            if response.records:
                role.is_writing = True
                state.emit(AppendFetched(role.epoch, response.records))
            else:
                self.raise_high_watermark()
        self._reset_fetch_time(role)
        return True

    def _truncate(self, role: Follower, response: FetchResponse) -> None:
        assert response.diverging is not None
        state = self._state
        end_offset = truncation_offset(state.log, response.diverging)
        if end_offset < state.known_high_watermark:
            state.fail(
                f"leader {role.leader_id} of epoch {role.epoch} has other records from offset "
                f"{end_offset} on, but everything before {state.known_high_watermark} was committed"
            )
            return
        role.is_writing = True
        state.emit(TruncateLog(end_offset))

    def _reset_fetch_time(self, role: Follower) -> None:
        if role.has_leader_resigned:
            # It sent this response before.
            return
        role.fetch_due_ms = self._state.now_ms + self._state.options.fetch_timeout_ms
        role.has_fetched, role.is_leader_gone = True, False

    def write_finished(self) -> None:
        """The next fetch may be sent, and the leader's timeout starts again, unless the leader is
        gone.
        """
        role = self._state.role
        if not isinstance(role, Follower):
            return
        role.is_writing = False
        if not role.is_leader_gone:
            role.fetch_due_ms = max(
                role.fetch_due_ms, self._state.now_ms + self._state.options.fetch_timeout_ms
            )

    def raise_high_watermark(self) -> None:
        """As far as the leader said, and this node has the records."""
        state, role = self._state, self._state.role
        if not isinstance(role, Follower):
            return
        reached = Offset(min(role.leader_high_watermark, state.log.end.offset))
        if reached > state.known_high_watermark:
            state.known_high_watermark = reached
            state.emit(Commit(reached))

    # Snapshots

    def _begin_snapshot(self, role: Follower, response: FetchResponse) -> bool:
        state, snapshot = self._state, response.snapshot
        assert snapshot is not None
        if snapshot.epoch < 0 or snapshot.offset < 0:
            return False
        if snapshot.offset < state.known_high_watermark or has_all_of(state.log, snapshot):
            state.note(f"leader {role.leader_id} offers snapshot {snapshot}, which is not newer")
            return False
        role.transfer = SnapshotTransfer(snapshot=snapshot)
        self._reset_fetch_time(role)
        state.note(f"fetching the snapshot that ends at offset {snapshot.offset}")
        state.emit(BeginSnapshot(snapshot))
        return True

    def snapshot_received(self, response: FetchSnapshotResponse) -> bool:
        handled = self._elections.learn(response.error, response.leadership)
        if handled is not None:
            return handled
        role = self._state.role
        if not isinstance(role, Follower) or role.transfer is None:
            return False
        transfer = role.transfer
        if response.error in _SNAPSHOT_GONE or response.snapshot is None:
            self.drop_snapshot()
            self._reset_fetch_time(role)
            return True
        if response.error is not ErrorCode.NONE:
            return False
        is_next = (response.snapshot, response.position) == (transfer.snapshot, transfer.position)
        length = len(response.content)
        if not is_next or not length or transfer.position + length > response.size:
            self.drop_snapshot()
            return False
        self._state.emit(AppendSnapshot(transfer.snapshot, transfer.position, response.content))
        transfer.position += length
        self._reset_fetch_time(role)
        if transfer.position == response.size:
            role.is_writing = True
            self._state.emit(InstallSnapshot(transfer.snapshot))
        return True

    def drop_snapshot(self) -> None:
        """It is fetched anew, or a later one."""
        role = self._state.role
        if isinstance(role, Follower) and role.transfer is not None:
            self._state.emit(DropSnapshot(role.transfer.snapshot))
            role.transfer = None

    def snapshot_installed(self) -> None:
        state, role = self._state, self._state.role
        if isinstance(role, Follower):
            role.transfer = None
        if state.log.start_offset > state.known_high_watermark:
            state.known_high_watermark = state.log.start_offset
            state.emit(Commit(state.known_high_watermark))
        self.write_finished()


_SNAPSHOT_GONE = frozenset({ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE})
_VOTER_CHANGE_DONE = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.DUPLICATE_VOTER,
        ErrorCode.VOTER_NOT_FOUND,
    }
)

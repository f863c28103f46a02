"""The quorum's requests on the listeners of a single voter, which leads."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from broker.controller_bench import Bench, bench
from broker.metadata_node import CLUSTER
from support.waiting import take_turns

from moldau.core.quorum import rpc
from moldau.core.quorum.messages.parties import Sender
from moldau.core.quorum.messages.translation import read_response, request_message
from moldau.core.quorum.positions import LogPosition
from moldau.core.quorum.voters import VoterKey
from moldau.net.tasks import Tasks
from moldau.protocol import messages as m
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.records.batches import iterate_batches
from moldau.types import BrokerId, LeaderEpoch, Offset, Uuid

CONTROLLER = "CONTROLLER"
SENDER = Sender(CLUSTER, 2_000)
OTHER = VoterKey(BrokerId(2), Uuid(b"o" * 16))


async def asked(node: Bench, request: rpc.Request, version: int | None = None) -> Any:
    """The response as another node of the quorum reads it."""
    message = request_message(request, 0, SENDER)
    newest = message.VERSIONS[1] if version is None else version
    sent = request_message(request, newest, SENDER)
    return read_response(await node.serve(sent, newest, listener=CONTROLLER), CONTROLLER)


def fetch(node: Bench, at: LogPosition, **fields: Any) -> rpc.FetchRequest:
    wanted = {"max_bytes": 1 << 20, "max_wait_ms": 0} | fields
    return rpc.FetchRequest(
        replica=OTHER, epoch=LeaderEpoch(node.quorum.leader_epoch), position=at, **wanted
    )


def end_of_log(node: Bench) -> LogPosition:
    end_offset = Offset(node.quorum.last_offset + 1)
    return LogPosition(LeaderEpoch(node.quorum.leader_epoch), end_offset)


def begun(request: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return Tasks().start(request, "request")


START = LogPosition(LeaderEpoch(0), Offset(0))


async def test_a_leader_says_who_it_is_and_keeps_its_place(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        epoch = LeaderEpoch(node.quorum.leader_epoch)
        ahead = LogPosition(epoch, Offset(1 << 40))
        vote = rpc.VoteRequest(epoch=epoch, candidate=OTHER, last=ahead, is_pre_vote=True)
        response = await asked(node, vote)
        assert (response.error, response.is_granted) == (ErrorCode.NONE, False)
        assert (response.leadership.epoch, response.leadership.leader_id) == (epoch, 1)
        assert node.quorum.is_leader


@pytest.mark.parametrize("version", range(13, 19))
async def test_the_whole_log_is_fetched(tmp_path: Path, version: int) -> None:
    async with bench(tmp_path / "data") as node:
        at, offsets = START, []
        while at.offset <= node.quorum.last_offset:
            response = await asked(node, fetch(node, at, max_bytes=1), version)
            assert (response.error, response.log_start_offset) == (ErrorCode.NONE, 0)
            (batch,) = iterate_batches(response.records)
            offsets.append(batch.base_offset)
            epoch = LeaderEpoch(batch.partition_leader_epoch)
            at = LogPosition(epoch, Offset(batch.last_offset + 1))
        assert offsets[0] == 0
        assert len(offsets) > 2


async def test_a_fetch_waits_for_the_next_record(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        at = end_of_log(node)
        wanted = fetch(node, at, max_wait_ms=60_000)
        waiting = begun(asked(node, wanted))
        given_up = begun(asked(node, wanted))
        await take_turns()
        assert not waiting.done()
        given_up.cancel()
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        await node.serve(CreateTopicsRequest(topics=[topic]))
        response = await waiting
        batch = next(iter(iterate_batches(response.records)))
        assert batch.base_offset == at.offset
        with pytest.raises(asyncio.CancelledError):
            await given_up


async def test_a_fetch_whose_time_is_up_brings_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        waiting = begun(
            asked(node, fetch(node, end_of_log(node), max_wait_ms=60_000, high_watermark=1 << 40))
        )
        await take_turns()
        node.clock.advance(60_000)
        response = await waiting
        assert (response.error, response.records) == (ErrorCode.NONE, b"")


@pytest.mark.parametrize("listener", ["PLAINTEXT", CONTROLLER])
async def test_voters_are_changed_on_both_listeners(tmp_path: Path, listener: str) -> None:
    async with bench(tmp_path / "data") as node:
        add = m.AddRaftVoterRequest(cluster_id=CLUSTER, voter_id=-1)
        refused = await node.serve(add, listener=listener)
        assert (refused.error_code, refused.error_message) == (
            ErrorCode.INVALID_REQUEST,
            "Add voter request didn't include a valid voter",
        )
        remove = m.RemoveRaftVoterRequest(
            cluster_id=CLUSTER, voter_id=2, voter_directory_id=OTHER.directory_id
        )
        refused = await node.serve(remove, listener=listener)
        assert refused.error_code in {ErrorCode.VOTER_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}
        other = m.RemoveRaftVoterRequest(cluster_id="another")
        refused = await node.serve(other, listener=listener)
        assert refused.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


async def test_a_node_that_stops_sends_others_away(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        waiting = begun(asked(node, fetch(node, end_of_log(node), max_wait_ms=60_000)))
        await take_turns()
        await node.quorum.stop()
        with pytest.raises(KafkaError, match="BROKER_NOT_AVAILABLE"):
            await asked(node, fetch(node, START))
        # Its leadership has ended.
        assert (await waiting).error is ErrorCode.NOT_LEADER_OR_FOLLOWER

"""Buffers are reused, but never while a reader still holds part of one."""

import pytest

from moldau.storage.disk.read_buffers import ReadBuffers

MEGABYTE = 1 << 20


@pytest.mark.parametrize("size", [100, 16_384, 16_385, MEGABYTE, 5 * MEGABYTE])
@pytest.mark.parametrize("position", [0, 1, 4095, 4096, 123_456])
def test_a_buffer_has_the_requested_size(size: int, position: int) -> None:
    target = ReadBuffers().take(size, position)
    assert len(target) == size
    target[:] = bytes(size)


def test_a_buffer_is_used_again_when_no_piece_of_it_is_held() -> None:
    buffers = ReadBuffers()
    first = buffers.take(MEGABYTE, 0)
    whose = id(first.obj)
    piece = first[5:10]
    del first
    other = buffers.take(MEGABYTE, 0)
    assert id(other.obj) != whose, "a piece of the first is still in use"
    del piece, other
    again = [buffers.take(MEGABYTE, 0), buffers.take(MEGABYTE, 0)]
    assert whose in {id(each.obj) for each in again}
    assert len(list(buffers.sizes())) == 2


def test_buffers_held_for_long_do_not_hide_free_ones() -> None:
    buffers = ReadBuffers()
    held = [buffers.take(MEGABYTE, 0) for _ in range(10)]
    del held[6:]
    whose = {id(buffers.take(MEGABYTE, 0).obj) for _ in range(100)}
    assert not whose & {id(each.obj) for each in held}
    assert len(list(buffers.sizes())) <= 11


def test_the_memory_kept_is_bounded() -> None:
    buffers = ReadBuffers()
    held = [buffers.take(MEGABYTE, 0) for _ in range(50)]
    assert len({id(each.obj) for each in held}) == 50
    assert sum(buffers.sizes()) == buffers.kept_bytes <= 16 * MEGABYTE

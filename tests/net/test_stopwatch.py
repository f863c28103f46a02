"""The stopwatch that a simulation replaces."""

import threading

from moldau.net import stopwatch


def test_other_threads_keep_their_stopwatch() -> None:
    seen: list[float] = []
    with stopwatch.replaced_by(lambda: -1.0):
        assert stopwatch.now_s() == -1.0
        other = threading.Thread(target=lambda: seen.append(stopwatch.now_s()))
        other.start()
        other.join()
    assert seen[0] > 0
    assert stopwatch.now_s() > 0

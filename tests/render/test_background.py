"""Work in other threads: order, waiting, errors."""

from __future__ import annotations

import threading
import time

import pytest

from nerfleet.render.background import Background


def test_one_thread_keeps_the_order() -> None:
    found: list[int] = []
    with Background(found.append, capacity=2) as work:
        for i in range(50):
            work.put(i)
    assert found == list(range(50))


def test_several_threads_do_everything() -> None:
    found: list[int] = []
    with Background(found.append, n_threads=3) as work:
        for i in range(50):
            work.put(i)
    assert sorted(found) == list(range(50))


def test_put_waits_while_the_queue_is_full() -> None:
    gate = threading.Event()
    with Background(lambda _: gate.wait(10), capacity=1) as work:
        work.put(0)
        work.put(1)
        threading.Timer(0.2, gate.set).start()
        begin = time.monotonic()
        work.put(2)
        assert time.monotonic() - begin > 0.05


def test_an_error_comes_back_and_nothing_hangs() -> None:
    def fail(item: int) -> None:
        raise ValueError(f"item {item}")

    def feed() -> None:
        with Background(fail, capacity=1) as work:
            for i in range(100):
                work.put(i)

    with pytest.raises(ValueError, match="item 0"):
        feed()
    with pytest.raises(ValueError, match="item 7"), Background(fail) as work:
        work.put(7)


def test_an_error_in_the_block_drops_what_waits() -> None:
    found: list[int] = []

    def slow(item: int) -> None:
        time.sleep(0.05)
        found.append(item)

    def stop() -> None:
        with Background(slow, capacity=50) as work:
            for i in range(50):
                work.put(i)
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        stop()
    assert len(found) < 10

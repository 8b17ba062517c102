"""Photographs that arrive while training runs: in the end the very pixels of the scene; a pool of true pixels with equal chances."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from tests.pipeline.scenes import CPU, cube_scene, on_demand, options, until
from tests.support.scenes import edit
from torch import Tensor

from nerfleet.data import load_scene
from nerfleet.data.on_demand import OnDemandScene, ViewShare
from nerfleet.data.part import Part
from nerfleet.errors import NerfleetError
from nerfleet.pipeline.feed import random_order
from nerfleet.pipeline.pixel_pool import MIN_PIXELS_EACH, PixelPool, pool_counts
from nerfleet.pipeline.progressive import ProgressivePhotographs


@pytest.mark.parametrize("part", [None, Part(0.3, 0.61), Part(0.0, 0.02)], ids=["whole", "middle", "inside one photograph"])
def test_progressive_ends_with_the_pixels_of_the_scene(part: Part | None, tmp_path: Path) -> None:
    path = cube_scene(tmp_path, rgba=True)
    expected = load_scene(path, train_on_all=True, part=part)
    feed = ProgressivePhotographs(on_demand(path, part), CPU, options())
    try:
        until(feed, lambda: feed._closed)
    finally:
        feed.close()
    assert torch.equal(feed.pixels, expected.pixels)
    held = int(feed.drawable[-1])
    assert held == len(expected.pixels)
    drawn = torch.arange(held)
    for offsets in (feed.offsets, expected.pixel_offsets):  # the same photograph and place for every pixel
        view = torch.searchsorted(offsets, drawn, right=True) - 1
        if offsets is feed.offsets:
            where = (view, drawn - offsets[view])
    assert torch.equal(view, where[0])
    assert torch.equal(drawn - expected.pixel_offsets[view], where[1])
    assert feed.report()["views_ready"] == len(feed.scene.shares)


def test_training_begins_while_a_photograph_is_still_being_read(tmp_path: Path) -> None:
    """The last of them is a pipe that nobody has written to yet."""
    path = cube_scene(tmp_path, 20, extension="jpg")
    expected, scene = load_scene(path, train_on_all=True), on_demand(path)
    last = random_order(scene, 0)[-1].view
    file = scene.plan.frames[last].image
    photograph = file.read_bytes()
    file.unlink()
    os.mkfifo(file)
    feed = ProgressivePhotographs(scene, CPU, options())
    try:
        feed.wait()
        assert 2 <= len(feed.ready) <= 19
        ready = feed.drawable.diff().nonzero().flatten().tolist()
        assert set(ready) == feed.ready
        assert last not in ready
        assert all(torch.equal(feed.pixels[768 * view : 768 * (view + 1)].view(24, 32, 4), expected.image(view)) for view in ready)
        file.write_bytes(photograph)
        until(feed, lambda: feed._closed)
    finally:
        feed.close()
    assert torch.equal(feed.pixels, expected.pixels)
    assert torch.equal(feed.drawable, expected.pixel_offsets)


def test_depth_arrives_too(tmp_path: Path) -> None:
    import numpy as np
    from PIL import Image

    path = cube_scene(tmp_path, 8)
    for i in range(8):
        Image.fromarray((np.arange(32 * 24).reshape(24, 32) + 1000 * i).astype(np.uint16)).save(tmp_path / f"depth{i}.png")
    edit(path, lambda root: [root.update(integer_depth_scale=1e-3), *(f.update(depth_path=f"depth{i}.png") for i, f in enumerate(root["frames"]))])
    expected = load_scene(path, train_on_all=True)
    feed = ProgressivePhotographs(on_demand(path), CPU, options(with_depth=True))
    try:
        until(feed, lambda: feed._closed)
    finally:
        feed.close()
    assert expected.depth is not None
    assert feed.depth is not None
    assert torch.equal(feed.depth, expected.depth)
    assert torch.equal(feed.pixels, expected.pixels)


def pool(path: Path, n_pixels: int, part: Part | None = None, n_workers: int = 1) -> tuple[PixelPool, OnDemandScene]:
    scene = on_demand(path, part)
    return PixelPool(scene, CPU, n_pixels, options(n_workers, seed=5)), scene


def numbers(feed: PixelPool, scene: OnDemandScene) -> Tensor:
    """Which of the scene's pixels lie in the pool."""
    view = torch.searchsorted(feed.offsets, torch.arange(len(feed.pixels)), right=True) - 1
    return scene.pixel_offsets[view] + feed.places


@pytest.mark.parametrize("part", [None, Part(0.3, 0.61)], ids=["whole", "part"])
def test_pool_holds_true_pixels_of_every_photograph(part: Part | None, tmp_path: Path) -> None:
    path = cube_scene(tmp_path, rgba=True)
    every = load_scene(path, train_on_all=True)
    feed, scene = pool(path, 1200, part)
    try:
        for rounds in (1, 3):
            until(feed, lambda rounds=rounds: feed.report()["decoded_photographs"] >= rounds * len(scene.shares), rays=400)
            chosen = numbers(feed, scene)
            assert torch.equal(every.pixels[chosen], feed.pixels)
        begin, end = (0, len(every.pixels)) if part is None else (round(part.begin * len(every.pixels)), round(part.end * len(every.pixels)))
        assert begin <= int(chosen.min()) <= int(chosen.max()) < end
        assert feed.drawable[-1] == len(feed.pixels)
    finally:
        feed.close()


def test_pool_shows_every_pixel_in_time(tmp_path: Path) -> None:
    """A tenth of the pixels at a time; after 20 rounds nearly all have been there, none much more often than others."""
    path = cube_scene(tmp_path, 8)
    feed, scene = pool(path, 8 * 77)
    total = int(scene.pixel_offsets[-1])
    counts, last = torch.zeros(total), torch.full((len(feed.pixels),), -1)
    try:

        def seen() -> bool:
            nonlocal last
            now = numbers(feed, scene)
            changed = (now != last) & (feed.pixels != 0).any(-1)
            counts.index_add_(0, now[changed], torch.ones(int(changed.sum())))
            last = now
            return feed.report()["decoded_photographs"] >= 20 * 8

        until(feed, seen, rays=120)
    finally:
        feed.close()
    assert float((counts > 0).float().mean()) > 0.95
    assert float(counts.max()) < 12


def test_pool_is_replaced_as_fast_as_it_is_drawn_from(tmp_path: Path) -> None:
    feed, scene = pool(cube_scene(tmp_path, 8), 800)
    try:
        until(feed, lambda: feed.report()["decoded_photographs"] == 8)
        for _ in range(50):
            feed.before_step(0)
        assert feed.report()["decoded_photographs"] == 8
        until(feed, lambda: feed.report()["decoded_photographs"] >= 24, rays=50)
        assert 0.5 < feed.report()["draws_per_pixel"] < 2
    finally:
        feed.close()


def test_damaged_photographs_are_told_and_not_drawn(tmp_path: Path) -> None:
    path, said = cube_scene(tmp_path, extension="jpg"), []
    scene = on_demand(path)
    whole = (tmp_path / "images/0003.jpg").read_bytes()
    (tmp_path / "images/0003.jpg").write_bytes(whole[: len(whole) // 2])
    feed = PixelPool(scene, CPU, 1200, options(say=said.append))
    try:
        until(feed, lambda: len(feed.ready) == 11 and len(feed.failed) == 1)
        assert int(feed.drawable.diff()[2]) == 0
        (tmp_path / "images/0007.jpg").unlink()
        until(feed, lambda: len(feed.failed) == 2, rays=300)
        assert int(feed.drawable.diff()[6]) > 0  # what was read of it stays
        done = feed.report()["decoded_photographs"]
        until(feed, lambda: feed.report()["decoded_photographs"] > done + 20, rays=300)
    finally:
        feed.close()
    assert said[0].startswith("images/0003.jpg: cannot be decoded")
    assert said[0].endswith("training goes on without it")
    assert said[1].endswith("its pixels are not renewed")
    assert len(said) == 2
    assert set(feed.report()["failed_photographs"]) == {"images/0003.jpg", "images/0007.jpg"}


def test_strict_ends_at_a_damaged_photograph(tmp_path: Path) -> None:
    scene = on_demand(cube_scene(tmp_path))
    (tmp_path / "images/0003.png").write_bytes(b"")
    feed = ProgressivePhotographs(scene, CPU, options(strict=True))
    try:
        with pytest.raises(NerfleetError, match=r"images/0003.png: .*leave out --strict"):
            until(feed, lambda: False)
    finally:
        feed.close()


def test_no_photograph_at_all_is_an_error(tmp_path: Path) -> None:
    scene = on_demand(cube_scene(tmp_path))
    for file in (tmp_path / "images").iterdir():
        file.write_bytes(b"not an image")
    feed = ProgressivePhotographs(scene, CPU, options())
    try:
        with pytest.raises(NerfleetError, match="no photograph can be used: first reason: images/0001.png"):
            feed.wait()
    finally:
        feed.close()


def test_a_killed_worker_costs_nothing_but_time(tmp_path: Path) -> None:
    path, said = cube_scene(tmp_path), []
    feed = ProgressivePhotographs(on_demand(path), CPU, options(2, say=said.append))
    try:
        os.kill(feed._loader.workers[1], signal.SIGKILL)
        until(feed, lambda: feed._closed)
    finally:
        feed.close()
    assert torch.equal(feed.pixels, load_scene(path, train_on_all=True).pixels)
    assert feed.report()["replaced_workers"] == 1
    assert len(said) == 1


def test_proportions_of_a_pool() -> None:
    shares = tuple(ViewShare(i, 0, n) for i, n in enumerate((1000, 2000, 777, 4000)))
    counts = pool_counts(shares, 1000)
    assert sum(counts) <= 1000
    assert all(abs(count - len(share) * 1000 / 7777) < 1 + 1e-9 for count, share in zip(counts, shares))
    assert pool_counts(shares, 10**6) == [1000, 2000, 777, 4000]
    with pytest.raises(NerfleetError, match="too few for 4 photographs"):
        pool_counts(shares, 4 * MIN_PIXELS_EACH - 1)

"""Predictions: their anchors, how they follow sizes, GPUs and links, and what fits."""

from __future__ import annotations

import dataclasses

import pytest

from nerfleet.config import EncodingConfig, NetworkConfig, TrainConfig
from nerfleet.planner.calibration import REFERENCE, Calibration
from nerfleet.planner.gpus import GPUS
from nerfleet.planner.memory import rank_memory
from nerfleet.planner.simulate import Simulated, simulate
from nerfleet.planner.topology import Card, Cluster, parse_gpus, uniform
from nerfleet.planner.workload import SceneFacts, adapted, workload

LEGO = REFERENCE.load.scene
FOX = SceneFacts("fox", 4, 43, 43 * 1920 * 1080)
OWN = Calibration((REFERENCE,))


def predicted(cluster: Cluster, grid: int = 1, log2: int = 19, scene: SceneFacts = LEGO, batch: int = 0) -> Simulated:
    network = NetworkConfig(encoding=EncodingConfig(log2_hashmap_size=log2))
    config = TrainConfig(network=network, batch_size=batch or (1 << 18) * len(cluster.cards))
    return simulate(workload(scene, config, adapted(REFERENCE.load.profile, scene)), cluster, grid, OWN)


def h200(n: int, **options: object) -> Cluster:
    return uniform(GPUS["H200"], n, **options)  # type: ignore[arg-type]


def test_what_was_measured_is_given_back() -> None:
    found = predicted(h200(1))
    assert found.step_seconds == pytest.approx(REFERENCE.step_seconds, rel=0.01)
    assert found.strategy == "single"
    assert found.exchange_seconds == 0


def test_sizes_and_scenes_that_were_measured_on_an_h200() -> None:
    """docs: fox takes 0.60 ms where lego takes 0.51; with gradients in half precision lego took 0.682 ms with 2^21 entries, 0.463 with 2^19."""
    assert 1e3 * predicted(h200(1), scene=FOX).step_seconds == pytest.approx(0.60, rel=0.15)
    ratio = predicted(h200(1), log2=21).step_seconds / predicted(h200(1)).step_seconds
    assert ratio == pytest.approx(0.682 / 0.463, rel=0.15)


def test_time_follows_what_bounds_it() -> None:
    base = predicted(h200(1))
    times = [predicted(h200(1), log2=log2).step_seconds for log2 in (15, 17, 19, 20, 21, 22, 24)]
    assert times == sorted(times)
    assert predicted(h200(1), batch=1 << 19).step_seconds < 2 * base.step_seconds  # the table is updated once all the same
    halved = dataclasses.replace(GPUS["H200"], name="half", bytes_per_s=2.4e12)
    slower = simulate(base.load, uniform(halved, 1), 1, OWN)
    assert 1.05 * base.step_seconds < slower.step_seconds < 1.6 * base.step_seconds
    assert slower.stages["adam"] == pytest.approx(2 * base.stages["adam"], rel=0.1)
    assert slower.stages["field_backward"] < 1.1 * base.stages["field_backward"]


def test_two_h200_data_parallel() -> None:
    """NCCL between two H200, 23.4 MB: reduce-scatter and all-gather 69 us each, launched (docs/performance.md)."""
    found = predicted(h200(2))
    assert 1e6 * found.stages["exchange table weights"] == pytest.approx(52, abs=12)
    assert found.stages["adam"] < 0.7 * predicted(h200(1)).stages["adam"]
    assert found.ranks[0].memory.table < 0.75 * predicted(h200(1)).ranks[0].memory.table


@pytest.mark.parametrize("n, per_host", [(1, 1), (8, 8), (16, 8), (64, 8), (256, 8)])
def test_any_number_of_gpus(n: int, per_host: int) -> None:
    cluster = h200(n, per_host=per_host, network="infiniband-ndr")
    found = predicted(cluster)
    assert len(found.ranks) == n
    assert sum(rank.share for rank in found.ranks) == pytest.approx(1)
    assert found.load.batch == n << 18
    assert 0.4e-3 < found.step_seconds < 5e-3


def test_slow_links_hurt_and_a_split_grid_needs_less_of_them_for_large_tables() -> None:
    fast, slow = (parse_gpus("4 x RTX 4090", link=link) for link in ("nvlink4", "1gbe"))
    assert predicted(slow).step_seconds > 10 * predicted(fast).step_seconds
    cards = parse_gpus("4 x RTX 4090")
    assert predicted(cards, grid=4, log2=24).step_seconds < 0.5 * predicted(cards, log2=24).step_seconds
    assert predicted(h200(4), grid=4).step_seconds > predicted(h200(4)).step_seconds


def test_a_split_grid_divides_the_table_and_its_time() -> None:
    whole, split = predicted(h200(4), log2=24), predicted(h200(4), grid=4, log2=24)
    assert (split.strategy, split.data, split.grid) == ("grid", 1, 4)
    assert max(rank.memory.table for rank in split.ranks) < whole.ranks[0].memory.table
    pieces = [piece for rank in split.ranks for piece in rank.pieces]
    assert sorted(piece.level for piece in pieces) == list(range(8))
    hybrid = predicted(h200(4), grid=2, log2=24)
    assert (hybrid.strategy, hybrid.data, hybrid.grid) == ("hybrid", 2, 2)
    assert "exchange table gradients" in hybrid.stages
    assert "exchange features" in hybrid.stages


def test_more_ranks_than_levels_split_columns() -> None:
    found = predicted(h200(16), grid=16, log2=22)
    assert found.placed
    assert all(rank.pieces for rank in found.ranks)
    assert sum(piece.n for rank in found.ranks for piece in rank.pieces) == 8 * 4


def test_unequal_gpus_share_rays_by_speed() -> None:
    cards = parse_gpus("1 x RTX 4090, 1 x RTX 3060")
    found = predicted(cards, batch=1 << 19)
    fast, slow = found.ranks
    assert 4 < fast.share / slow.share < 14
    assert fast.rays == pytest.approx(fast.share / slow.share * slow.rays, rel=0.01)
    measured = Cluster(cards.hosts, (Card(cards.cards[0].gpu, 0), Card(cards.cards[0].gpu, 0, 0.5)), cards.network)
    fast, slow = predicted(measured, batch=1 << 19).ranks
    assert 1.8 < fast.share / slow.share < 3.5


def test_memory_is_that_of_the_buffers() -> None:
    load = predicted(h200(1), log2=22).load
    memory = rank_memory(load, 1, load.n_params, 1.0, 1.0, 1.0)
    assert memory.table == pytest.approx(22 * load.n_params, rel=0.01)
    assert memory.pixels == 4 * LEGO.n_pixels
    assert memory.device > memory.peak


def largest_table(cluster: Cluster) -> int:
    """Most parameters of a hash grid that two ranks can train with its levels split."""
    most = 0
    for log2 in (23, 24, 25):
        for n_levels in range(8, 33):
            config = TrainConfig(network=NetworkConfig(encoding=EncodingConfig(log2_hashmap_size=log2, n_levels=n_levels)))
            load = workload(LEGO, config, REFERENCE.load.profile)
            if load.n_params > most and simulate(load, cluster, 2, OWN).fits:
                most = load.n_params
    return most


def test_uneven_memory_holds_a_larger_table_than_even_placement() -> None:
    """24 + 12 GB; placed evenly, each rank holds what the smaller one can."""
    assert largest_table(parse_gpus("RTX 3090, RTX 3060")) >= 1.3 * largest_table(parse_gpus("2 x RTX 3060"))

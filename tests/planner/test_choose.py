"""Which strategy is chosen, and that it says why."""

from __future__ import annotations

import pytest

from nerfleet.config import EncodingConfig, NetworkConfig, TrainConfig
from nerfleet.errors import NerfleetError
from nerfleet.planner.calibration import REFERENCE, Calibration
from nerfleet.planner.choose import Choice, choose, possibilities
from nerfleet.planner.explain import flags, option_rows, plan_values, rank_rows, stage_rows
from nerfleet.planner.topology import Cluster, parse_gpus
from nerfleet.planner.workload import SceneFacts

OWN = Calibration((REFERENCE,))
FOX = SceneFacts("fox", 4, 43, 43 * 1920 * 1080)


def chosen(cluster: Cluster, log2: int = 19, scene: SceneFacts = FOX, n_levels: int = 8, **options: object) -> Choice:
    config = TrainConfig(network=NetworkConfig(encoding=EncodingConfig(log2_hashmap_size=log2, n_levels=n_levels)))
    return choose(possibilities(scene, config, cluster, OWN, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("gpus", ["4 x RTX 3090", "4 x RTX 4090", "8 x L4"])
def test_a_large_table_on_cards_of_24_gb_splits_the_grid_and_says_why(gpus: str) -> None:
    found = chosen(parse_gpus(gpus), log2=24)
    assert found.option.simulated.grid > 1
    assert found.why[0].startswith("The grid is split over")
    assert "MB together) would take" in found.why[0]
    assert "--parallel" in flags(found.option)


def test_a_small_table_stays_whole() -> None:
    found = chosen(parse_gpus("4 x H200"))
    assert (found.option.strategy, found.option.n_gpus) == ("data", 4)
    assert found.why[0].startswith("Data parallel: the table of 12.9 M parameters fits every GPU")
    assert any("times as many samples a second as one" in sentence for sentence in found.why)


def test_memory_alone_can_decide() -> None:
    """32 levels, most of them of 2^24 entries, are 30 GB with their optimiser: more than 80 % of a card of 12 GB even with the optimiser shared out."""
    found = chosen(parse_gpus("4 x RTX 3060", link="nvlink4"), log2=24, n_levels=32)
    config = TrainConfig(network=found.option.simulated.load.network)
    data = possibilities(FOX, config, parse_gpus("4 x RTX 3060"), OWN, (4,))[0]
    assert (data.strategy, data.simulated.comfortable) == ("data", False)
    assert found.option.simulated.grid > 1
    assert "with data parallelism a GPU would be" in found.why[0] or "no longer fits" in found.why[0]


def test_slow_networks_are_left_alone() -> None:
    found = chosen(parse_gpus("4 x RTX 4090", per_host=1, network="1gbe"))
    assert found.option.n_gpus == 1
    assert any("of each step would go into exchanges" in sentence for sentence in found.why)


def test_what_would_fit_is_said() -> None:
    line = r"fox with 2\^26 entries a level: needs \d+\.\d GB of a RTX 3060 of 12 GB .*: what would fit: log2_hashmap_size 2[234]"
    with pytest.raises(NerfleetError, match=line):
        chosen(parse_gpus("RTX 3060"), log2=26)
    photographs = SceneFacts("city", 16, 2000, 2000 * 3840 * 2160)
    with pytest.raises(NerfleetError, match=r"what would fit: --downscale 4"):
        chosen(parse_gpus("RTX 3060"), scene=photographs)


def test_more_gpus_train_fewer_larger_steps() -> None:
    cluster = parse_gpus("8 x H200")
    by_n = {option.n_gpus: option for option in possibilities(FOX, TrainConfig(), cluster, OWN) if option.simulated.grid == 1}
    assert sorted(by_n) == [1, 2, 4, 8]
    assert [by_n[n].steps * by_n[n].simulated.load.batch for n in (1, 2, 4, 8)] == [20_000 << 18] * 4
    assert by_n[8].train_seconds < by_n[1].train_seconds
    fixed = possibilities(FOX, TrainConfig(), cluster, OWN, (8,), True)[0]
    assert (fixed.steps, fixed.simulated.load.batch) == (20_000, 1 << 18)


def test_answers() -> None:
    cluster = parse_gpus("2 x RTX 3090, 1 x RTX 3060")
    options = possibilities(FOX, TrainConfig(), cluster, OWN, (1, 3))
    choice = choose(options)
    values = plan_values(choice, options)
    assert {"options", "chosen", "why"} <= values.keys()
    wanted = {"strategy", "n_gpus", "predicted_ms_per_step", "predicted_bytes_per_gpu", "predicted_train_seconds", "advice"}
    assert all(wanted <= option.keys() for option in values["options"])
    three = next(option for option in options if option.n_gpus == 3)
    assert flags(three).startswith("--gpus 3 --parallel data --steps 6667 --batch-size 786432 --rank-speed 1,1,0.")
    assert [row[2] for row in rank_rows(three)] == ["RTX 3090", "RTX 3090", "RTX 3060"]
    assert len(option_rows(options)) == len(options)
    assert sum(float(ms) for _, ms in stage_rows(three)) == pytest.approx(1e3 * three.simulated.step_seconds, rel=0.01)

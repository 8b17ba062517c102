"""Every strategy over gloo: gradients, score, skipped steps and checkpoints against one rank."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.parallel.cases import EIGHT_LEVELS, TWO_LEVELS, psnr_config, small_scene, step_gradients
from tests.parallel.spawn import result, run_cases
from torch import Tensor

from nerfleet.parallel.data_parallel import DataParallel
from nerfleet.train.checkpoint import MARKER
from nerfleet.train.ranks import SingleDevice
from nerfleet.train.trainer import train


@pytest.fixture(scope="module")
def one_rank() -> dict[str, Any]:
    return step_gradients(small_scene(), SingleDevice(), 1)


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the results of all short cases on two ranks."""
    folder = tmp_path_factory.mktemp("two_ranks")
    run_cases(folder, 2, "gradients_data", "gradients_pieces", "gradients_grid", "fixed_point_sums", "nan", "masked", "refuse")
    return folder


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def check_gradients(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name in ("table", "mlp"):
        assert relative_error(found[name], expected[name]) <= 1e-4, name
        assert torch.equal(found[name] != 0, expected[name] != 0), name
    assert torch.equal(found["counters"], expected["counters"])
    assert relative_error(found["loss_sum"], expected["loss_sum"]) < 1e-5
    assert relative_error(found["weights"], expected["weights"]) < 1e-4
    assert torch.equal(found["occupancy"] >= 0, expected["occupancy"] >= 0)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("case", ["gradients_data", "gradients_grid"])
def test_gradients_of_two_ranks_are_those_of_one(one_rank: dict[str, Any], two_ranks: Path, case: str, rank: int) -> None:
    assert float(one_rank["table"].abs().max()) > 0
    check_gradients(result(two_ranks, case, rank), one_rank)


def test_gradients_in_pieces_are_those_of_one_rank(two_ranks: Path) -> None:
    expected = step_gradients(small_scene(), SingleDevice(), 1, EIGHT_LEVELS)
    for rank in (0, 1):
        found = result(two_ranks, "gradients_pieces", rank)
        assert (found["groups"], found["early"]) == (2, True)
        check_gradients(found, expected)


@pytest.mark.slow
def test_gradients_of_four_ranks_are_those_of_one(one_rank: dict[str, Any], tmp_path: Path) -> None:
    cases = ("gradients_data", "gradients_grid", "gradients_hybrid")
    two_levels = step_gradients(small_scene(), SingleDevice(), 1, TWO_LEVELS)
    run_cases(tmp_path, 4, *cases, "gradients_columns")
    for rank in range(4):
        for case in cases:
            check_gradients(result(tmp_path, case, rank), one_rank)
        columns = result(tmp_path, "gradients_columns", rank)
        assert columns["width"] == 2
        check_gradients(columns, two_levels)
    assert sorted(unit for own in result(tmp_path, "gradients_hybrid", 0)["units"] for unit in own) == [0, 1, 2, 3]


def test_fixed_point_gradients_of_ranks_are_summed_exactly(two_ranks: Path) -> None:
    found = [result(two_ranks, "fixed_point_sums", rank) for rank in (0, 1)]
    expected = found[0]["own"] + found[1]["own"]
    assert torch.equal(torch.cat([one["sum"] for one in found])[: len(expected)], expected)
    assert found[0]["cleared"]
    assert found[1]["cleared"]


@pytest.mark.parametrize("rank", [0, 1])
def test_nan_on_one_rank_skips_the_step_on_all(two_ranks: Path, rank: int) -> None:
    assert result(two_ranks, "nan", rank) == {"unchanged": True, "skipped": 1, "moved": True}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_whose_pixels_are_all_masked_holds_nobody_up(two_ranks: Path, rank: int) -> None:
    assert result(two_ranks, "masked", rank) == {"steps": 10, "skipped": 0, "finite": True}


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_of_one_rank_is_heard_by_all(two_ranks: Path, rank: int) -> None:
    assert result(two_ranks, "refuse", rank) == {"error": "photograph 3: is damaged: replace it"}


def test_measured_shares_are_remembered() -> None:
    ranks = SimpleNamespace(rank=0, world_size=3, device=torch.device("cpu"), heartbeat=SimpleNamespace(rest=lambda: None))

    def strategy(measured: bool) -> DataParallel:
        return DataParallel(ranks, [1 / 3] * 3, None, measured)  # type: ignore[arg-type]

    before = strategy(measured=True)
    before.recall({"shares": [0.5, 0.3, 0.2]})
    after = strategy(measured=True)
    after.recall(before.remember())
    assert after.shares == pytest.approx([0.5, 0.3, 0.2])
    after.recall({"shares": [0.9, 0.1]})  # of another number of ranks
    assert after.shares == pytest.approx([0.5, 0.3, 0.2])
    assert strategy(measured=False).remember() == {}
    with pytest.raises(ValueError, match="could not convert"):
        after.recall({"shares": ["many", 1, 2]})


@pytest.mark.slow
def test_score_and_checkpoints_on_any_number_of_ranks(tmp_path: Path) -> None:
    scene = small_scene("train", 30)
    alone = train(scene, psnr_config(1), device="cpu", held_out=scene)
    assert alone.evaluation is not None
    run_cases(tmp_path, 2, "train_split", "train_replicate", "train_grid", timeout=600)
    names = list(scene.names)
    for case in ("train_split", "train_replicate", "train_grid"):
        both = [result(tmp_path, case, rank) for rank in (0, 1)]
        assert torch.equal(both[0]["table"], both[1]["table"])
        assert both[0]["views"] == both[1]["views"] == names
        assert both[0]["psnr"] == pytest.approx(alone.evaluation.psnr_mean, abs=0.1), case

    newest = max((tmp_path / "run_grid" / "checkpoints").glob(f"*/{MARKER}"))
    assert sorted(unit for own in json.loads(newest.read_text())["parallel"]["ownership"]["units"] for unit in own) == [0, 1, 2, 3]

    saved = result(tmp_path, "train_split", 0)
    run_cases(tmp_path, 3, "resume", "resume_grid")
    for rank, case in itertools.product(range(3), ("resume", "resume_grid")):
        read = result(tmp_path, case, rank)
        assert read["steps"] == saved["steps"]
        assert torch.equal(read["table"], saved["table"])
        assert torch.equal(read["mlp"], saved["mlp"])
    single = train(scene, psnr_config(1), device="cpu", out=tmp_path / "run_split")
    assert torch.equal(single.model.table, saved["table"])


@pytest.mark.slow
def test_half_a_run_of_four_ranks_goes_on_with_any_number(tmp_path: Path) -> None:
    scene = small_scene("train", 30)
    alone = train(scene, psnr_config(1), device="cpu", held_out=scene)
    assert alone.evaluation is not None
    run_cases(tmp_path, 4, "half")
    stopped = result(tmp_path, "half", 0)
    assert stopped["stopped_by"] == "signal"
    assert 0 < stopped["steps"] < alone.steps
    for n_ranks, case in ((3, "second_half"), (2, "second_half"), (2, "second_half_grid")):
        run_cases(tmp_path, n_ranks, case)
        found = result(tmp_path, case, 0)
        print(f"4 ranks, then {n_ranks} ({case}): {found['psnr']:.3f} dB, one rank alone {alone.evaluation.psnr_mean:.3f}")
        assert found["steps"] == alone.steps
        assert found["psnr"] == pytest.approx(alone.evaluation.psnr_mean, abs=0.1), (n_ranks, case)
    one = train(scene, psnr_config(1), device="cpu", out=tmp_path / "half", held_out=scene)
    assert one.evaluation is not None
    assert one.evaluation.psnr_mean == pytest.approx(alone.evaluation.psnr_mean, abs=0.1)

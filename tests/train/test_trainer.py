"""The training loop: it learns, reproduces itself, resumes as if nothing had happened, and ends in good order."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import signal
import threading
from pathlib import Path

import pytest
import torch
from tests.train.small import NETWORK, STEPS, config, read_checkpoint

from nerfleet.config import TrainConfig
from nerfleet.data.scene import MASKED_PIXEL, Scene
from nerfleet.errors import NerfleetError
from nerfleet.train.checkpoint import MARKER
from nerfleet.train.step import SAMPLE_MARGIN
from nerfleet.train.trainer import HISTORY_LENGTH, History, Progress, TrainResult, choose_device, train

pytestmark = pytest.mark.usefixtures("first_grid_remembered")
Finished = tuple[TrainResult, Path]


def checkpoints(out: Path) -> list[str]:
    return sorted(p.name for p in (out / "checkpoints").iterdir())


def of_views(scene: Scene, n: int) -> Scene:
    """The first n photographs only."""
    offsets = scene.pixel_offsets[: n + 1]
    parts = {"names": scene.names[:n], "cameras": scene.cameras[:n], "pixels": scene.pixels[: int(offsets[-1])], "pixel_offsets": offsets}
    return dataclasses.replace(scene, **parts, depth=None)


def test_it_learns(finished: Finished) -> None:
    result, _ = finished
    losses = result.history.losses
    assert result.history.steps == list(range(STEPS))
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    assert result.evaluation is not None
    assert result.evaluation.psnr_mean > 11
    assert result.evaluation.psnr_mean == pytest.approx(sum(v.psnr for v in result.evaluation.views) / 2)


def test_the_result_is_complete(finished: Finished, scene: Scene, held_out: Scene) -> None:
    result, out = finished
    assert (result.steps, result.stopped_by, result.skipped_steps, result.world_size, result.strategy) == (STEPS, "steps", 0, 1, "single")
    assert result.last_step is not None
    assert (result.last_step.step, result.last_step.skipped) == (STEPS - 1, False)
    assert result.last_step.learning_rate == pytest.approx(1e-2)
    assert 0 < result.last_step.kept <= result.last_step.evaluated
    assert 0 < result.trained_samples <= STEPS * SAMPLE_MARGIN * (1 << 12)
    assert 0 < result.train_seconds < 60
    assert result.history.seconds == sorted(result.history.seconds)
    assert result.history.evaluations == [(STEPS, result.train_seconds, result.evaluation.psnr_mean if result.evaluation else None)]
    assert result.model.network == config().with_schedule().network
    assert bool(torch.isfinite(result.model.table).all())
    assert result.evaluation is not None
    assert [view.name for view in result.evaluation.views] == list(held_out.names)
    assert checkpoints(out) == [f"step_{STEPS:09d}"]


def test_progress_and_evaluations_on_the_way(scene: Scene, held_out: Scene) -> None:
    shown: list[Progress] = []
    result = train(scene, config(eval_every_steps=16), device="cpu", held_out=held_out, on_progress=shown.append)
    assert [step for step, _, _ in result.history.evaluations] == [16, 32, STEPS]
    assert result.history.evaluations[2][2] > result.history.evaluations[0][2]
    assert [p.step for p in shown] == sorted(p.step for p in shown)
    last = shown[-1]
    assert (last.step, last.steps, last.seconds_left, last.skipped_steps) == (STEPS, STEPS, 0.0, 0)
    assert last.rays_per_s > 0
    assert last.samples_per_s > 0
    mean = sum(result.history.losses[-10:]) / 10
    assert last.psnr == pytest.approx(-10 * math.log10(mean), abs=1.5)


def test_resuming_changes_nothing(finished: Finished, scene: Scene, tmp_path: Path) -> None:
    uninterrupted, out = finished
    remarks: list[str] = []
    train(scene, config(steps=STEPS // 2), device="cpu", out=tmp_path, say=remarks.append)
    assert remarks == []
    result = train(scene, config(), device="cpu", out=tmp_path, say=remarks.append)
    first = tmp_path / "checkpoints" / f"step_{STEPS // 2:09d}"
    assert remarks == [f"continues at step {STEPS // 2} from {first}; changed since: steps {STEPS // 2} -> {STEPS}"]
    expected, found = (read_checkpoint(folder / "checkpoints" / f"step_{STEPS:09d}") for folder in (out, tmp_path))
    assert set(found) == set(expected)
    for name, values in expected.items():
        assert torch.equal(found[name], values), name
    assert torch.equal(result.model.table, uninterrupted.model.table)
    assert torch.equal(result.model.occupancy.bitfield, uninterrupted.model.occupancy.bitfield)
    assert result.history.losses == uninterrupted.history.losses
    assert result.trained_samples == uninterrupted.trained_samples


def test_a_checkpoint_holds_all_state(finished: Finished) -> None:
    stored = read_checkpoint(finished[1] / "checkpoints" / f"step_{STEPS:09d}")
    parts = {f"{group}.{part}" for group in ("mlp", "table") for part in ("master", "ema", "first_moment", "second_moment", "steps")}
    assert set(stored) >= parts | {"occupancy", "bitfield", "state", "hyper"}
    for name in parts - {"table.steps"}:
        assert bool((stored[name] != 0).any()), name
    assert int(stored["state"][0]) == STEPS


def test_the_seed_decides(finished: Finished, scene: Scene) -> None:
    other = train(scene, config(steps=2, seed=7), device="cpu")
    assert other.history.losses[0] != finished[0].history.losses[0]
    assert not torch.equal(other.model.mlp, finished[0].model.mlp)


def test_a_finished_run_stays_as_it_is(finished: Finished, scene: Scene) -> None:
    before, out = finished
    result = train(scene, config(), device="cpu", out=out)
    assert (result.steps, result.stopped_by, result.last_step) == (STEPS, "steps", None)
    assert result.train_seconds == pytest.approx(before.train_seconds, abs=0.05)
    assert torch.equal(result.model.table, before.model.table)
    assert checkpoints(out) == [f"step_{STEPS:09d}"]


def test_other_networks_and_boxes_are_refused(finished: Finished, scene: Scene) -> None:
    folder = finished[1] / "checkpoints" / f"step_{STEPS:09d}"
    bigger = dataclasses.replace(NETWORK, rgb=dataclasses.replace(NETWORK.rgb, n_neurons=64))
    with pytest.raises(NerfleetError) as error:
        train(scene, config(network=bigger), device="cpu", out=finished[1])
    assert str(error.value) == f"{folder}: holds a model of another network configuration: choose another --out, or the same --network"
    with pytest.raises(NerfleetError) as error:
        train(dataclasses.replace(scene, aabb_scale=2), config(), device="cpu", out=finished[1])
    assert str(error.value) == f"{folder}: holds a model of a box of edge 1, the scene's is 2: choose another --out"


@pytest.mark.parametrize("key", ["config", "aabb_scale", "train_seconds", "trained_samples", "history"])
@pytest.mark.parametrize("value", [None, []])
def test_a_damaged_marker_is_one_line(key: str, value: object, finished: Finished, scene: Scene, tmp_path: Path) -> None:
    shutil.copytree(finished[1], tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints" / f"step_{STEPS:09d}"
    marker = json.loads((folder / MARKER).read_text())
    (folder / MARKER).write_text(json.dumps(marker | {key: value}))
    with pytest.raises(NerfleetError) as error:
        train(scene, config(), device="cpu", out=tmp_path / "run")
    assert str(error.value).startswith(f"{folder}: ")


def test_a_folder_that_cannot_be_written_is_one_line(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NerfleetError, match=r"Not a directory: choose another --out$"):
        train(scene, config(steps=1), device="cpu", out=tmp_path / "file")


def test_time_ends_it_in_good_order(scene: Scene, tmp_path: Path) -> None:
    limited = config(steps=10**6, max_seconds=0.4, checkpoint_every_seconds=0.1)
    result = train(scene, limited, device="cpu", out=tmp_path)
    assert result.stopped_by == "max_seconds"
    assert 0.4 <= result.train_seconds < 3
    assert 1 <= len(checkpoints(tmp_path)) <= 2
    assert checkpoints(tmp_path)[-1] == f"step_{result.steps:09d}"
    again = train(scene, limited, device="cpu", out=tmp_path)
    assert (again.stopped_by, again.steps) == ("max_seconds", result.steps)


def test_zero_steps_give_the_initial_model(scene: Scene, tmp_path: Path) -> None:
    result = train(scene, config(steps=0), device="cpu", out=tmp_path)
    assert (result.steps, result.trained_samples, result.last_step, result.history.losses) == (0, 0, None, [])
    assert float(result.model.table.abs().max()) <= 1e-4
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_good_order(number: signal.Signals, scene: Scene, held_out: Scene, tmp_path: Path) -> None:
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    shown: list[int] = []

    def interrupt(progress: Progress) -> None:
        shown.append(progress.step)
        if len(shown) == 1:
            signal.raise_signal(number)

    result = train(scene, config(steps=10**6), device="cpu", out=tmp_path, held_out=held_out, on_progress=interrupt)
    assert (result.stopped_by, result.evaluation) == ("signal", None)
    assert shown[0] <= result.steps <= shown[0] + 1
    assert checkpoints(tmp_path) == [f"step_{result.steps:09d}"]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


def test_a_second_interrupt_is_obeyed_at_once(scene: Scene, tmp_path: Path) -> None:
    def interrupt(_: Progress) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(scene, config(steps=10**6), device="cpu", out=tmp_path, on_progress=interrupt)
    assert signal.getsignal(signal.SIGINT) is handler
    assert not (tmp_path / "checkpoints").exists()


def test_it_trains_outside_the_main_thread(scene: Scene) -> None:
    results: list[TrainResult] = []
    thread = threading.Thread(target=lambda: results.append(train(scene, config(steps=1), device="cpu")))
    thread.start()
    thread.join(60)
    assert [result.steps for result in results] == [1]


@pytest.mark.parametrize("n", [1, 2])
def test_few_photographs(n: int, scene: Scene) -> None:
    result = train(of_views(scene, n), config(), device="cpu")
    losses = result.history.losses
    assert result.evaluation is None
    assert sum(losses[-8:]) < 0.8 * sum(losses[:8])


@pytest.mark.parametrize("n_masked", [1, 8])
def test_masked_photographs_do_not_hang(n_masked: int, scene: Scene) -> None:
    pixels = scene.pixels.clone()
    pixels[: int(scene.pixel_offsets[n_masked])] = torch.tensor(MASKED_PIXEL, dtype=torch.uint8)
    result = train(dataclasses.replace(scene, pixels=pixels), config(steps=10), device="cpu")
    assert result.steps == 10
    assert (result.trained_samples > 0) == (n_masked < 8)
    assert all(math.isfinite(loss) for loss in result.history.losses)
    assert bool(torch.isfinite(result.model.table).all())


def test_a_scene_outside_the_box_ends_cleanly(scene: Scene) -> None:
    poses = scene.cameras.camera_to_world.clone()
    poses[:, :, 3] += 50.0
    away = dataclasses.replace(scene, cameras=dataclasses.replace(scene.cameras, camera_to_world=poses))
    result = train(away, config(steps=5), device="cpu")
    assert (result.steps, result.trained_samples, result.skipped_steps) == (5, 0, 0)
    assert result.last_step is not None
    assert result.last_step.rays == config().max_rays


def test_nothing_to_train_on(scene: Scene) -> None:
    with pytest.raises(NerfleetError, match="has no photographs to train on: see `nerfleet info`"):
        train(of_views(scene, 0), config(), device="cpu")


def test_wrong_knobs_are_refused(scene: Scene) -> None:
    with pytest.raises(NerfleetError, match="batch_size: 3 samples are out of range"):
        train(scene, config(batch_size=3), device="cpu")
    with pytest.raises(NerfleetError, match="'tpu' is not a device: use auto, cpu or cuda"):
        choose_device("tpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_a_missing_gpu_is_an_error_only_when_asked_for() -> None:
    assert choose_device("auto").type == "cpu"
    with pytest.raises(NerfleetError, match="no CUDA GPU can be used here: use --device cpu"):
        choose_device("cuda")


def test_long_curves_are_thinned() -> None:
    history = History()
    for step in range(3 * HISTORY_LENGTH):
        history.record(step, step / 10, 1.0)
    assert len(history.steps) == len(history.losses) == len(history.seconds) <= HISTORY_LENGTH
    assert history.steps[0] == 0
    assert history.steps == sorted(history.steps)
    assert history.steps[-1] == 3 * HISTORY_LENGTH - 1


def test_defaults_are_the_products_own() -> None:
    assert (TrainConfig().checkpoint_every_seconds, TrainConfig().max_skipped_steps) == (30.0, 100)

"""``nerfleet train --gpus N`` and ``bench collectives`` as a person types them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.parallel.spawn import NETWORK_JSON, REPOSITORY, outside
from tests.support.models import ball_model
from tests.support.scenes import write_cube_scene

from nerfleet.cli.main import main, parse
from nerfleet.cli.on_ranks import words
from nerfleet.cli.train import Arguments
from nerfleet.data.synthetic import write_scene
from nerfleet.snapshot.document import write_document
from nerfleet.snapshot.write import snapshot_document


@pytest.mark.parametrize(
    "flags, line",
    [
        (["--gpus", "0"], "--gpus 0: is no number of GPUs"),
        (["--gpus", "3", "--parallel", "hybrid"], "--parallel hybrid: 3 ranks are not a multiple of 2"),
        (["--gpus", "2", "--rank-speed", "1,2,3"], "--rank-speed 1,2,3: needs 2 positive numbers"),
        (["--gpus", "2", "--parallel", "data", "--grid-degree", "2"], "--grid-degree 2: has no meaning with --parallel data"),
        (["--gpus", "2", "--network", "nowhere.json"], "nowhere.json"),
    ],
)
def test_what_cannot_be_is_one_line_before_any_rank_starts(flags: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "scene", "--device", "cpu", *flags]) == 2
    err = capsys.readouterr().err
    assert line in err
    assert err.count("\n") == 1


def test_ranks_get_the_same_arguments() -> None:
    flags = ["my scene", "--steps", "7", "--views", "replicate", "--json", "--gpus", "2", "--out", "a b", "--rank-speed", "1,2", "--max-seconds", "2.5"]
    arguments = parse(Arguments, "nerfleet train", flags)
    assert parse(Arguments, "nerfleet train", words(arguments)) == arguments


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "nerfleet", *flags], env=outside(), cwd=REPOSITORY, capture_output=True, text=True, timeout=240)


@pytest.mark.slow
def test_train_on_two_ranks_and_on_with_the_grid_split(tmp_path: Path) -> None:
    write_scene(tmp_path / "scene", 7, 2, 5, 32, 32, supersample=1)
    (tmp_path / "small.json").write_text(json.dumps(NETWORK_JSON))
    common = [str(tmp_path / "scene"), "--out", str(tmp_path / "run"), "--network", str(tmp_path / "small.json"), "--device", "cpu", "--gpus", "2", "--json"]
    first = run("train", *common, "--steps", "20", "--batch-size", "1024")
    assert first.returncode == 0, first.stderr
    answer = json.loads(first.stdout)
    assert (answer["world_size"], answer["strategy"], answer["steps"]) == (2, "data", 20)
    assert answer["psnr_mean"] > 5
    assert (tmp_path / "run" / "model.ingp").exists()
    assert "a rank that does not answer for 120 s ends the run" in first.stderr

    second = run("train", *common, "--steps", "30", "--batch-size", "1024", "--parallel", "grid", "--collective-timeout", "50s")
    assert second.returncode == 0, second.stderr
    answer = json.loads(second.stdout)
    assert (answer["strategy"], answer["steps"]) == ("grid", 30)
    assert "continues at step 20" in second.stderr
    assert "for 50 s" in second.stderr


@pytest.mark.slow
@pytest.mark.parametrize("verb", [("train",), ("eval", "--scene", "nowhere"), ("render", "--turntable", "2", "--out", "pictures")])
def test_bad_input_is_one_line_and_no_restart(verb: tuple[str, ...], tmp_path: Path) -> None:
    ended = run(verb[0], str(tmp_path / "nowhere"), *verb[1:], "--device", "cpu", "--gpus", "2")
    assert ended.returncode == 2
    errors = [line for line in ended.stderr.splitlines() if "error" in line]
    assert len(errors) == 1, ended.stderr
    assert "nowhere" in errors[0]
    assert ended.stderr.count("2 ranks, gloo") <= 1


@pytest.mark.slow
def test_ranks_score_and_render_as_one_does(tmp_path: Path) -> None:
    scene = write_cube_scene(tmp_path / "cube", rgba=True)
    write_document(tmp_path / "model.ingp", snapshot_document(ball_model(radius=0.4), training_step=7))
    model = [str(tmp_path / "model.ingp"), "--device", "cpu", "--json"]
    answers: dict[str, dict] = {}
    for n in ("1", "3"):
        for verb, flags in (("eval", ["--split", "train", "--scene", str(scene)]), ("render", ["--turntable", "5", "--width", "20", "--height", "10"])):
            out = ["--out", str(tmp_path / f"{verb}{n}")]
            ended = run(verb, *model, *flags, *out, "--gpus", n)
            assert ended.returncode == 0, ended.stderr
            answers[verb + n] = json.loads(ended.stdout)
    assert answers["eval3"] == answers["eval1"]
    for verb in ("eval", "render"):
        alone, together = (sorted((tmp_path / f"{verb}{n}").glob("*.png")) for n in "13")
        assert len(alone) > 2
        assert [file.name for file in alone] == [file.name for file in together]
        assert all(one.read_bytes() == other.read_bytes() for one, other in zip(alone, together))
    assert [Path(file).name for file in answers["render3"]["files"]] == [Path(file).name for file in answers["render1"]["files"]]


@pytest.mark.slow
def test_collectives_are_measured() -> None:
    ended = run("bench", "collectives", "--device", "cpu", "--gpus", "2", "--json")
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert {row["operation"] for row in answer["collectives"]} == {"all_reduce", "reduce_scatter", "all_gather", "all_to_all"}
    assert all(row["ms"] > 0 and row["bus_bytes_per_s"] > 0 for row in answer["collectives"])

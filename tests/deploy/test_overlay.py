"""``nerfleet deploy k8s``: what it writes renders, is valid, and says what the flags said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.render import check, find, pod_of, render

from nerfleet.cli.main import main
from nerfleet.data.synthetic import write_scene
from nerfleet.deploy.plan_file import read_plan


def write(out: Path, *flags: object) -> list[dict[str, Any]]:
    assert main(["deploy", "k8s", "--scene", "scenes/fox", "--out", str(out), *map(str, flags)]) == 0
    objects = render(out)
    check(objects)
    return objects


def test_a_plain_job(tmp_path: Path) -> None:
    objects = write(tmp_path / "overlay")
    settings = find(objects, "ConfigMap", "nerfleet-run")["data"]
    assert (settings["SCENE"], settings["RUN"], settings["MAX_PODS"]) == ("/data/scenes/fox", "/runs/fox", "1")
    assert find(objects, "Job")["spec"]["completions"] == 1
    assert all(one["metadata"]["namespace"] == "nerfleet" for one in objects)


def test_everything_at_once(tmp_path: Path) -> None:
    objects = write(
        tmp_path / "overlay", "--kind", "statefulset", "--pods", 4, "--max-pods", 6, "--min-pods", 2, "--gpus", 8, "--spot", "--monitoring",
        "--autoscale", "keda", "--budget", 20, "--gpu-model", "NVIDIA-A100", "NVIDIA-H100", "--doctor", "5 4 * * *", "--data-claim", "scenes",
        "--storage-class", "nfs", "--image", "registry.example:5000/ml/nerfleet:1.2", "--namespace", "fox", "--shm", "16Gi", "--train-flags=--preset basic",
    )  # fmt: skip
    stateful, pod = find(objects, "StatefulSet")["spec"], pod_of(objects)
    (container,) = pod["containers"]
    assert stateful["replicas"] == 4
    assert container["image"] == "registry.example:5000/ml/nerfleet:1.2"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert container["args"][-2:] == ["--preset", "basic"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["NVIDIA-A100", "NVIDIA-H100"]
    assert pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["data"]["persistentVolumeClaim"]["claimName"] == "scenes"
    assert volumes["shm"]["emptyDir"]["sizeLimit"] == "16Gi"
    claims = [one for one in objects if one["kind"] == "PersistentVolumeClaim"]
    assert [(claim["metadata"]["name"], claim["spec"]["storageClassName"]) for claim in claims] == [("nerfleet-runs", "nfs")]
    scaled = find(objects, "ScaledObject")["spec"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (2, 6)
    assert scaled["triggers"][0]["metadata"]["query"] == 'nerfleet:pods:wanted{namespace="fox"}'
    rules = [rule for group in find(objects, "PrometheusRule")["spec"]["groups"] for rule in group["rules"]]
    assert {rule["record"]: rule["expr"] for rule in rules if rule.get("record") in ("nerfleet:pods:most", "nerfleet:budget:dollars_per_hour")} == {
        "nerfleet:pods:most": "vector(6)", "nerfleet:budget:dollars_per_hour": "vector(20)",
    }  # fmt: skip
    doctor = find(objects, "CronJob", "nerfleet-doctor")["spec"]
    assert (doctor["schedule"], doctor["jobTemplate"]["spec"]["completions"]) == ("5 4 * * *", 4)


def test_without_gpus_and_with_the_adapter(tmp_path: Path) -> None:
    objects = write(
        tmp_path / "overlay", "--kind", "statefulset", "--gpus", 0, "--max-pods", 3, "--monitoring", "--autoscale", "adapter", "--doctor", "1 1 * * *"
    )
    assert "nvidia.com/gpu" not in json.dumps([one for one in objects if one["kind"] in ("StatefulSet", "CronJob")])
    assert find(objects, "ConfigMap", "nerfleet-run")["data"]["DEVICE"] == "cpu"
    assert find(objects, "HorizontalPodAutoscaler")["spec"]["maxReplicas"] == 3


PLAN = {
    "chosen": {"n_gpus": 6, "strategy": "data", "steps": 5000, "checkpoint_every_seconds": None},
    "ranks": [{"host": "a", "gpu": "RTX 4090"}] * 4 + [{"host": "b", "gpu": "RTX 3090"}] * 2,
    "flags": "--gpus 6 --parallel data --steps 5000 --batch-size 1572864 --rank-speed 1,1,1,1,0.4,0.4",
}


def test_a_plan_sets_pods_steps_and_flags(tmp_path: Path) -> None:
    """Hosts of four and of two GPUs: three pods of two fit both."""
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(PLAN))
    objects = write(tmp_path / "overlay", "--plan", plan)
    assert find(objects, "Job")["spec"]["parallelism"] == 3
    settings = find(objects, "ConfigMap", "nerfleet-run")["data"]
    assert (settings["GPUS_PER_POD"], settings["STEPS"], settings["CHECKPOINT_EVERY"]) == ("2", "5000", "30s")
    assert pod_of(objects)["containers"][0]["args"][-3:] == ["--parallel=data", "--batch-size=1572864", "--rank-speed=1,1,1,1,0.4,0.4"]


def test_the_planners_own_answer_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_scene(tmp_path / "scene", 4, 0, 1, 16, 16, supersample=1)
    capsys.readouterr()
    assert main(["plan", str(tmp_path / "scene"), "--gpus", "4 x RTX 4090", "--gpus-per-host", "2", "--json"]) == 0
    plan = tmp_path / "plan.json"
    plan.write_text(capsys.readouterr().out)
    chosen = json.loads(plan.read_text())["chosen"]
    found = read_plan(plan)
    assert (found.pods * found.gpus_per_pod, found.steps) == (chosen["n_gpus"], chosen["steps"])
    assert f"--batch-size={chosen['batch_size']}" in found.flags
    assert not any(flag.startswith("--gpus") for flag in found.flags)


def test_the_cheapest_offer_sets_the_checkpoint_interval(tmp_path: Path) -> None:
    plan = tmp_path / "cost.json"
    plan.write_text(json.dumps({"chosen": {"n_gpus": 8, "n_machines": 2, "checkpoint_every_seconds": 412.7}}))
    found = read_plan(plan)
    assert (found.pods, found.gpus_per_pod) == (2, 4)
    objects = write(tmp_path / "overlay", "--plan", plan, "--spot")
    assert find(objects, "ConfigMap", "nerfleet-run")["data"]["CHECKPOINT_EVERY"] == "413s"


@pytest.mark.parametrize(
    "flags, named",
    [
        (["--pods", "4", "--max-pods", "2"], "--max-pods"),
        (["--namespace", "Fox_1"], "--namespace Fox_1"),
        (["--memory", "lots"], "--memory lots"),
        (["--image", "a b"], "--image a b"),
        (["--autoscale", "keda", "--monitoring"], "statefulset"),
        (["--autoscale", "keda", "--kind", "statefulset"], "--monitoring"),
        (["--scene", "../fox"], "--scene ../fox"),
        (["--checkpoint-every", "soon"], "--checkpoint-every soon"),
        (["--train-flags='"], "--train-flags"),
        (["--plan", "none.json"], "none.json"),
    ],
)
def test_bad_wishes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], named: str) -> None:
    assert main(["deploy", "k8s", "--scene", "fox", "--out", str(tmp_path / "overlay"), *flags]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert named in err
    assert not (tmp_path / "overlay").exists()


@pytest.mark.parametrize("text", ["{}", "[]", '{"chosen": {"n_gpus": 3}, "ranks": [{"host": "a"}]}', '{"chosen": {"n_gpus": "x"}}'])
def test_what_is_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    assert main(["deploy", "k8s", "--scene", "fox", "--out", str(tmp_path / "o"), "--plan", str(tmp_path / "plan.json")]) == 2
    assert "plan.json" in capsys.readouterr().err


def test_only_its_own_folder_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "overlay"
    words = ["deploy", "k8s", "--scene", "fox", "--out", str(out)]
    assert main(words) == 0
    (out / "stale.yaml").write_text("old")
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pods"] == 1
    assert not (out / "stale.yaml").exists()
    other = tmp_path / "photos"
    other.mkdir()
    (other / "a.jpg").write_bytes(b"")
    assert main(["deploy", "k8s", "--scene", "fox", "--out", str(other)]) == 2
    assert (other / "a.jpg").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["overlay", "photos"]

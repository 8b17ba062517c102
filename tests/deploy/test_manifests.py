"""Every base, overlay and component renders and is valid; pods are what the documents say."""

from __future__ import annotations

import dataclasses
import functools
import re
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.render import K8S, check, find, pod_of, render

from nerfleet.cli.main import parse
from nerfleet.cli.train import Arguments

OVERLAYS = sorted(path.parent for path in K8S.glob("overlays/*/kustomization.yaml"))
COMPONENTS = sorted(path.parent.name for path in K8S.glob("components/*/kustomization.yaml") if path.parent.name != "pod")
shipped = functools.cache(render)  # what is in the repository does not change while the tests run
BASES = [K8S / "base" / "job", K8S / "base" / "statefulset"]


def with_component(folder: Path, base: str, component: str) -> list[dict[str, Any]]:
    relative = Path(*[".."] * len(folder.resolve().parts[1:])) / K8S.relative_to("/")
    text = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
    text += f"resources: [{relative}/base/{base}]\ncomponents: [{relative}/components/{component}]\n"
    (folder / "kustomization.yaml").write_text(text)
    return render(folder)


@pytest.mark.parametrize("folder", [*BASES, *OVERLAYS], ids=lambda path: path.name)
def test_renders_and_is_valid(folder: Path) -> None:
    objects = shipped(folder)
    check(objects)
    kinds = {one["kind"] for one in objects}
    assert kinds >= {"Service", "ConfigMap", "PersistentVolumeClaim", "PodDisruptionBudget", "ServiceAccount", "NetworkPolicy"}


@pytest.mark.parametrize("base", ["job", "statefulset"])
@pytest.mark.parametrize("component", COMPONENTS)
def test_every_component_fits_both_bases(tmp_path: Path, base: str, component: str) -> None:
    check(with_component(tmp_path, base, component))


@pytest.mark.parametrize("folder", [*BASES, *OVERLAYS], ids=lambda path: path.name)
def test_pods_are_safe_and_complete(folder: Path) -> None:
    objects = shipped(folder)
    pod = pod_of(objects)
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["shm"]["emptyDir"]["medium"] == "Memory"
    assert {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}["shm"] == "/dev/shm"
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)
    settings = find(objects, "ConfigMap", "nerfleet-run")["data"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == settings["GPUS_PER_POD"]
    used = set(re.findall(r"\$\((\w+)\)", " ".join(container["args"])))
    assert used == set(settings)
    assert all(claim["spec"]["accessModes"] == ["ReadWriteMany"] for claim in objects if claim["kind"] == "PersistentVolumeClaim")


def test_names_of_pods_lead_to_the_rendezvous() -> None:
    """Job and StatefulSet pods are called nerfleet-INDEX; subdomain and headless Service make nerfleet-0.nerfleet of that."""
    for folder in BASES:
        objects = shipped(folder)
        service = find(objects, "Service")
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["publishNotReadyAddresses"]
        assert pod_of(objects)["subdomain"] == "nerfleet"
        assert find(objects, "ConfigMap", "nerfleet-run")["data"]["RENDEZVOUS"] == "nerfleet-0.nerfleet:29500"
    stateful = find(shipped(BASES[1]), "StatefulSet")["spec"]
    assert (stateful["serviceName"], stateful["podManagementPolicy"]) == ("nerfleet", "Parallel")


def test_exit_codes_of_the_job() -> None:
    job = find(shipped(BASES[0]), "Job")["spec"]
    rules = {rule["action"]: rule["onExitCodes"]["values"] for rule in job["podFailurePolicy"]["rules"] if "onExitCodes" in rule}
    assert rules == {"FailJob": [2], "Ignore": [75, 143]}
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert job["completionMode"] == "Indexed"


def test_the_article_has_its_equivalent() -> None:
    objects = shipped(K8S / "overlays" / "article")
    assert find(objects, "StatefulSet")["spec"]["replicas"] == 4
    (container,) = pod_of(objects)["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["args"][0] == "--after=serve"
    assert "--preset=basic" in container["args"]


@pytest.mark.parametrize("folder", [*BASES, *OVERLAYS], ids=lambda path: path.name)
def test_the_command_is_one_that_nerfleet_understands(folder: Path) -> None:
    if "nnodes" not in {field.name for field in dataclasses.fields(Arguments)}:
        pytest.skip("nerfleet train has no --nnodes yet")
    objects = shipped(folder)
    settings = find(objects, "ConfigMap", "nerfleet-run")["data"]
    (container,) = pod_of(objects)["containers"]
    words = [re.sub(r"\$\((\w+)\)", lambda match: settings[match[1]], word) for word in container["args"]]
    own, program = words[: words.index("--")], words[words.index("--") + 1 :]
    assert {word.split("=")[0] for word in own} == {"--after", "--listen", "--run"}
    assert program[:2] == ["nerfleet", "train"]
    found = parse(Arguments, "train", program[2:])
    assert (found.scene, found.out) == (Path(settings["SCENE"]), Path(settings["RUN"]))


def test_spot_keeps_the_shortest_grace_period(tmp_path: Path) -> None:
    pod = pod_of(with_component(tmp_path, "job", "spot"))
    assert pod["terminationGracePeriodSeconds"] == 30
    assert "nodeAffinity" in pod["affinity"]
    assert "podAntiAffinity" in pod["affinity"]


def test_nothing_looks_like_a_secret() -> None:
    text = "\n".join(path.read_text() for path in K8S.rglob("*.yaml"))
    assert "kind: Secret" not in text
    assert not re.search(r"(?i)(password|token|api_?key)\s*[:=]\s*\S+", text.replace("automountServiceAccountToken: false", ""))

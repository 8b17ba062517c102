"""Renders overlays with kubectl and checks every object: Kubernetes' own schemas, strictly; custom ones against vendored parts."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
K8S = REPOSITORY / "deploy" / "k8s"
MONITORING = REPOSITORY / "deploy" / "monitoring"
SCHEMAS = Path(__file__).with_name("schemas")
KUBERNETES = "1.33"


@functools.cache
def _kubectl_minor() -> int:
    """Of the client; 0 without one."""
    if shutil.which("kubectl") is None:
        return 0
    answer = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True)
    return int("".join(filter(str.isdigit, json.loads(answer.stdout)["clientVersion"]["minor"])))


def render(folder: Path) -> list[dict[str, Any]]:
    """The objects of an overlay; the test is skipped where there is no kubectl (kustomize 5 or newer)."""
    yaml = pytest.importorskip("yaml")
    if _kubectl_minor() < 27:
        pytest.skip("kubectl 1.27 or newer renders the overlays; it is not installed")
    answer = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert "deprecated" not in answer.stderr, answer.stderr
    return [found for found in yaml.safe_load_all(answer.stdout) if found]


def check(objects: list[dict[str, Any]]) -> None:
    """Raises for an object that its schema refuses; unknown fields are refused too."""
    validator = pytest.importorskip("kubernetes_validate")
    import jsonschema

    for one in objects:
        schema = SCHEMAS / f"{one['kind']}.json"
        if schema.is_file():
            jsonschema.validate(one, json.loads(schema.read_text()))
        else:
            validator.validate(one, KUBERNETES, strict=True)


def find(objects: list[dict[str, Any]], kind: str, name: str = "nerfleet") -> dict[str, Any]:
    (found,) = [one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


def pod_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The pod of the Job or StatefulSet."""
    (workload,) = [one for one in objects if one["kind"] in ("Job", "StatefulSet")]
    pod: dict[str, Any] = workload["spec"]["template"]["spec"]
    return pod

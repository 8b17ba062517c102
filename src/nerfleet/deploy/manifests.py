"""Where the Kubernetes manifests and Prometheus rules are, and what of them depends on a run."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

from nerfleet.errors import NerfleetError

RULE_FILES = ("alerts.rules.yaml", "autoscaling.rules.yaml")
MOST, BUDGET = "nerfleet:pods:most", "nerfleet:budget:dollars_per_hour"


def manifests_folder() -> Path:
    """The folder ``deploy`` of the checkout, or of the installed package (``share/nerfleet/deploy``).

    Raises:
        NerfleetError: neither is there.
    """
    checkout = Path(__file__).resolve().parents[3] / "deploy"
    if (checkout / "k8s" / "base").is_dir():
        return checkout
    try:
        files = importlib.metadata.files("nerfleet") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    marks = [Path(str(file.locate())) for file in files if file.as_posix().endswith("share/nerfleet/deploy/k8s/base/common/kustomization.yaml")]
    beside = Path(__file__).resolve().parents[2] / "share" / "nerfleet" / "deploy"  # pip install --target
    for folder in (*(mark.resolve().parents[3] for mark in marks), beside):
        if (folder / "k8s" / "base").is_dir():
            return folder
    raise NerfleetError("manifests", "are not installed", "pip install nerfleet from a wheel, or use a checkout")


def prometheus_rule(monitoring: Path, most: int | None = None, budget: float | None = None) -> dict[str, Any]:
    """The PrometheusRule of the operator with the groups of the plain rule files.

    Args:
        most: pods at most, and ``budget``: dollars an hour, instead of those in the files.
    """
    import yaml

    groups = [group for name in RULE_FILES for group in yaml.safe_load((monitoring / name).read_text(encoding="utf-8"))["groups"]]
    for rule in (rule for group in groups for rule in group["rules"]):
        if rule.get("record") == MOST and most is not None:
            rule["expr"] = f"vector({most})"
        if rule.get("record") == BUDGET and budget is not None:
            rule["expr"] = f"vector({budget:g})"
    metadata = {"name": "nerfleet", "labels": {"app.kubernetes.io/name": "nerfleet"}}
    return {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": metadata, "spec": {"groups": groups}}


def dump(*documents: dict[str, Any]) -> str:
    """As YAML, keys in their order."""
    import yaml

    return str(yaml.safe_dump_all(documents, sort_keys=False, width=160, allow_unicode=True))

"""A kustomize overlay for one run, complete in itself: the manifests it uses, and a kustomization with what is particular."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nerfleet.deploy.manifests import dump, manifests_folder, prometheus_rule
from nerfleet.errors import NerfleetError

HEAD = "# Written by `nerfleet deploy k8s`; write it again rather than change it, or build on it with another overlay.\n"
GPU_LABEL = "nvidia.com/gpu.product"
"""Set on nodes by NVIDIA's GPU feature discovery, for example NVIDIA-GeForce-RTX-4090."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?")
_IMAGE = re.compile(r"[\w.\-:/]+(@sha256:[0-9a-f]{64})?")


@dataclass(frozen=True)
class Deployment:
    """What is particular about a run in a cluster. Sizes in Kubernetes' notation (16Gi).

    Attributes:
        scene: below the dataset volume. run: folder below the run volume.
        pods: at the start; ``min_pods`` and ``max_pods``: between these they may come and go while it trains.
        gpu_models: values of the node label that GPU feature discovery sets; empty: any.
        autoscale: KEDA, the Prometheus adapter, or none.
        budget: dollars an hour at most; 0: not bounded by money. cost_rate: dollars an hour of one pod; 0: unknown.
        data_claim, runs_claim: existing ReadWriteMany claims; empty: new ones are made.
        doctor: schedule of the regular examination, as cron writes it; empty: none.
        train_flags: further flags of ``nerfleet train``.
    """

    scene: str
    run: str
    kind: Literal["job", "statefulset"] = "job"
    pods: int = 1
    min_pods: int = 1
    max_pods: int = 1
    gpus: int = 1
    gpu_models: tuple[str, ...] = ()
    image: str = "nerfleet:latest"
    namespace: str = "nerfleet"
    run_id: str = "run-1"
    spot: bool = False
    monitoring: bool = False
    autoscale: Literal["none", "keda", "adapter"] = "none"
    prometheus: str = "http://prometheus-operated.monitoring.svc:9090"
    budget: float = 0.0
    data_claim: str = ""
    runs_claim: str = ""
    storage_class: str = ""
    data_size: str = "50Gi"
    runs_size: str = "50Gi"
    cpu: str = "4"
    memory: str = "32Gi"
    shm: str = "4Gi"
    steps: int = 20_000
    checkpoint_every: str = "30s"
    doctor: str = ""
    train_flags: tuple[str, ...] = ()

    def validate(self) -> None:
        """Raises NerfleetError for what Kubernetes would refuse later, or what would not work."""
        if not 1 <= self.min_pods <= self.pods <= self.max_pods:
            wrong = f"{self.min_pods} at least, {self.pods} at the start, {self.max_pods} at most"
            raise NerfleetError("--pods, --min-pods, --max-pods", wrong, "use least <= start <= most, from 1")
        if self.gpus < 0:
            raise NerfleetError(f"--gpus {self.gpus}", "is negative", "use 0 for pods without GPUs")
        for flag in ("namespace", "data_claim", "runs_claim", "run_id"):
            value = getattr(self, flag)
            if value and not _LABEL.fullmatch(value):
                raise NerfleetError(f"--{flag.replace('_', '-')} {value}", "is no name for Kubernetes", "use small letters, digits and -")
        for flag in ("data_size", "runs_size", "cpu", "memory", "shm"):
            if not _QUANTITY.fullmatch(getattr(self, flag)):
                raise NerfleetError(f"--{flag.replace('_', '-')} {getattr(self, flag)}", "is no quantity", "write for example 4 or 16Gi")
        if not _IMAGE.fullmatch(self.image):
            raise NerfleetError(f"--image {self.image}", "is no image name", "write for example registry.example/nerfleet:0.1.0")
        if not re.fullmatch(r"\d+(\.\d+)?[smh]?", self.checkpoint_every):
            raise NerfleetError(f"--checkpoint-every {self.checkpoint_every}", "is not a time", "write 30s, 5m or 1h")
        for flag, path in (("scene", self.scene), ("run", self.run)):
            if not path or path.startswith("/") or ".." in Path(path).parts:
                raise NerfleetError(f"--{flag} {path}", "is no path below the volume", "write for example fox, or scenes/fox")
        if self.autoscale != "none" and self.kind != "statefulset":
            raise NerfleetError(f"--autoscale {self.autoscale}", "needs something that can be scaled", "use --kind statefulset")
        if self.autoscale != "none" and not self.monitoring:
            raise NerfleetError(f"--autoscale {self.autoscale}", "scales by metrics", "add --monitoring")


def write_overlay(out: Path, deployment: Deployment) -> list[str]:
    """Write the overlay's folder, by rename; an older one of ours is replaced. Returns the components used.

    Raises:
        NerfleetError: impossible wishes, or a folder that holds something else.
    """
    deployment.validate()
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not _ours(out))):
        raise NerfleetError(str(out), "holds something else", "choose another --out")
    components = _components(deployment)
    source = manifests_folder()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as temporary:
            new = Path(temporary) / "new"
            _copy(source, new / "manifests", deployment, components)
            (new / "kustomization.yaml").write_text(HEAD + dump(_kustomization(deployment, components)), encoding="utf-8")
            if out.exists():
                os.replace(out, Path(temporary) / "old")
            os.replace(new, out)
    except OSError as error:
        raise NerfleetError(str(error.filename or out), error.strerror or "cannot be written", "choose another --out") from None
    return components


def _ours(folder: Path) -> bool:
    try:
        return (folder / "kustomization.yaml").read_text(encoding="utf-8").startswith(HEAD)
    except OSError:
        return False


def _components(deployment: Deployment) -> list[str]:
    wanted = {
        "cpu": deployment.gpus == 0,
        "spot": deployment.spot,
        "monitoring": deployment.monitoring,
        f"autoscaling-{deployment.autoscale}": deployment.autoscale != "none",
        "doctor": bool(deployment.doctor),
    }
    return [name for name, on in wanted.items() if on]


def _copy(source: Path, target: Path, deployment: Deployment, components: list[str]) -> None:
    """The manifests in use; the rules with this run's bounds."""
    for part in ("base/common", f"base/{deployment.kind}", "components/pod", *(f"components/{name}" for name in components)):
        shutil.copytree(source / "k8s" / part, target / "k8s" / part)
    if deployment.monitoring:
        shutil.copytree(source / "monitoring" / "dashboards", target / "monitoring" / "dashboards")
        rule = prometheus_rule(source / "monitoring", deployment.max_pods, deployment.budget or 1e6)
        (target / "k8s" / "components" / "monitoring" / "rules.yaml").write_text(dump(rule), encoding="utf-8")


def _kustomization(deployment: Deployment, components: list[str]) -> dict[str, Any]:
    workload = "Job" if deployment.kind == "job" else "StatefulSet"
    patches = [
        _patch("ConfigMap", "nerfleet-run", [_set("/data", _settings(deployment))]),
        _patch(workload, "nerfleet", [*_counts(deployment), *_pod(deployment)]),
        *_claims(deployment),
    ]
    if deployment.autoscale == "keda":
        query = f'nerfleet:pods:wanted{{namespace="{deployment.namespace}"}}'
        trigger = "/spec/triggers/0/metadata"
        bounds = [_set("/spec/minReplicaCount", deployment.min_pods), _set("/spec/maxReplicaCount", deployment.max_pods)]
        bounds.append(_set("/spec/fallback/replicas", deployment.pods))
        patches.append(_patch("ScaledObject", "nerfleet", [*bounds, _set(f"{trigger}/query", query), _set(f"{trigger}/serverAddress", deployment.prometheus)]))
    if deployment.autoscale == "adapter":
        selector = {"matchLabels": {"namespace": deployment.namespace}}
        bounds = [_set("/spec/minReplicas", deployment.min_pods), _set("/spec/maxReplicas", deployment.max_pods)]
        patches.append(_patch("HorizontalPodAutoscaler", "nerfleet", [*bounds, _set("/spec/metrics/0/external/metric/selector", selector, "add")]))
    if deployment.doctor:
        patches.append(_patch("CronJob", "nerfleet-doctor", _doctor(deployment)))
    name, tag = _image(deployment.image)
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": deployment.namespace,
        "resources": [f"manifests/k8s/base/{deployment.kind}"],
        **({"components": [f"manifests/k8s/components/{name}" for name in components]} if components else {}),
        "images": [{"name": "nerfleet", "newName": name, **tag}],
        "patches": patches,
    }


def _settings(deployment: Deployment) -> dict[str, str]:
    return {
        "SCENE": f"/data/{deployment.scene}",
        "RUN": f"/runs/{deployment.run}",
        "RUN_ID": deployment.run_id,
        "RENDEZVOUS": "nerfleet-0.nerfleet:29500",
        "MIN_PODS": str(deployment.min_pods),
        "MAX_PODS": str(deployment.max_pods),
        "GPUS_PER_POD": str(max(deployment.gpus, 1)),
        "DEVICE": "cuda" if deployment.gpus else "cpu",
        "STEPS": str(deployment.steps),
        "CHECKPOINT_EVERY": deployment.checkpoint_every,
    }


def _counts(deployment: Deployment) -> list[dict[str, Any]]:
    fields = ("completions", "parallelism") if deployment.kind == "job" else ("replicas",)
    return [_set(f"/spec/{field}", deployment.pods) for field in fields]


def _pod(deployment: Deployment) -> list[dict[str, Any]]:
    pod, container = "/spec/template/spec", "/spec/template/spec/containers/0"
    changes = [_set(f"{container}/resources/requests/cpu", deployment.cpu), _set(f"{container}/resources/limits/memory", deployment.memory)]
    changes += [_set(f"{container}/resources/requests/memory", deployment.memory), _set(f"{pod}/volumes/2/emptyDir/sizeLimit", deployment.shm)]
    if deployment.gpus:
        changes.append(_set(f"{container}/resources/limits/nvidia.com~1gpu", str(deployment.gpus)))
    for volume, claim in (("0", deployment.data_claim), ("1", deployment.runs_claim)):
        if claim:
            changes.append(_set(f"{pod}/volumes/{volume}/persistentVolumeClaim/claimName", claim))
    if deployment.gpu_models:
        wish = {"nodeSelectorTerms": [{"matchExpressions": [{"key": GPU_LABEL, "operator": "In", "values": list(deployment.gpu_models)}]}]}
        there = "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
        whole = {"requiredDuringSchedulingIgnoredDuringExecution": wish}
        changes.append(_set(f"{pod}/affinity{there}", wish, "add") if deployment.spot else _set(f"{pod}/affinity/nodeAffinity", whole, "add"))
    return changes + [_set(f"{container}/args/-", flag, "add") for flag in deployment.train_flags]


def _claims(deployment: Deployment) -> list[dict[str, Any]]:
    """Sizes and class of claims that are made; those that exist already are left out."""
    patches = []
    for name, own, size in (("nerfleet-data", deployment.data_claim, deployment.data_size), ("nerfleet-runs", deployment.runs_claim, deployment.runs_size)):
        if own:
            body = {"$patch": "delete", "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}}
            patches.append({"patch": dump(body)})
        else:
            changes = [_set("/spec/resources/requests/storage", size)]
            changes += [_set("/spec/storageClassName", deployment.storage_class, "add")] if deployment.storage_class else []
            patches.append(_patch("PersistentVolumeClaim", name, changes))
    return patches


def _doctor(deployment: Deployment) -> list[dict[str, Any]]:
    job, pods = "/spec/jobTemplate/spec", max(deployment.pods, 2)
    container = f"{job}/template/spec/containers/0"
    device = "cuda" if deployment.gpus else "cpu"
    changes = [_set("/spec/schedule", deployment.doctor), _set(f"{job}/completions", pods), _set(f"{job}/parallelism", pods)]
    changes.append(_set(f"{container}/args", [f"--pods={pods}", "--service=nerfleet-doctor", f"--device={device}"]))
    gpu = f"{container}/resources/limits/nvidia.com~1gpu"
    return [*changes, _set(gpu, str(deployment.gpus)) if deployment.gpus else {"op": "remove", "path": gpu}]


def _image(image: str) -> tuple[str, dict[str, str]]:
    """ "registry:5000/name:tag" -> name and tag or digest."""
    if "@" in image:
        name, digest = image.split("@")
        return name, {"digest": digest}
    head, _, last = image.rpartition("/")
    name, _, tag = last.partition(":")
    return f"{head}/{name}" if head else name, {"newTag": tag or "latest"}


def _patch(kind: str, name: str, changes: list[dict[str, Any]]) -> dict[str, Any]:
    import yaml

    return {"target": {"kind": kind, "name": name}, "patch": str(yaml.safe_dump(changes, sort_keys=False, width=160))}


def _set(path: str, value: Any, op: str = "replace") -> dict[str, Any]:
    return {"op": op, "path": path, "value": value}

"""``nerfleet deploy k8s``: manifests of one run for Kubernetes."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from nerfleet.cli.flags import print_json, say
from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    from nerfleet.deploy.overlay import Deployment

SUMMARY = "manifests of a run for Kubernetes"


@dataclass(frozen=True)
class Arguments:
    """Write a kustomize overlay for one run: kubectl apply -k OUT. One run a namespace. Kubernetes 1.31 or newer.

    Examples:
        nerfleet deploy k8s --scene fox --out overlay --pods 4
        nerfleet deploy k8s --scene fox --out overlay --pods 2 --gpus 8 --max-pods 6 --spot --plan plan.json
        nerfleet deploy k8s --scene fox --out overlay --kind statefulset --pods 4 --max-pods 8 --monitoring --autoscale keda --budget 20

    Attributes:
        what: k8s.
        out: folder to write; an older one written by this command is replaced.
        scene: below the dataset volume.
        run: run folder below the run volume; empty: the scene's name.
        kind: job ends with the model; statefulset stays, can be scaled automatically, and shows the report.
        pods: at the start.
        min_pods: training goes on with so few.
        max_pods: it may grow to so many; 0: pods.
        gpus: GPUs of a pod; 0: none (CPU).
        gpu_model: allowed values of the node label nvidia.com/gpu.product.
        image: of the container.
        namespace: for this run alone.
        run_id: rendezvous word; another for every new run.
        spot: machines that may be taken back.
        monitoring: ServiceMonitor, rules and dashboard for the Prometheus operator.
        autoscale: statefulset: by GPU utilisation, through KEDA or the Prometheus adapter.
        prometheus: its address, for KEDA.
        budget: dollars an hour that autoscaling keeps to; 0: no bound.
        data_claim: existing ReadWriteMany claim of the dataset; empty: a new one.
        runs_claim: existing ReadWriteMany claim of the runs; empty: a new one.
        storage_class: of new claims; it must offer ReadWriteMany.
        data_size: of a new claim.
        runs_size: of a new claim.
        cpu: processors asked for a pod.
        memory: of a pod.
        shm: of /dev/shm.
        steps: to train.
        checkpoint_every: what is lost at most when a machine goes without notice.
        doctor: when to check GPUs and collectives, as cron writes it ("17 3 * * *"); empty: never.
        train_flags: further flags of nerfleet train: --train-flags='--preset basic --views replicate'.
        plan: output of nerfleet plan --json or nerfleet cost --json: pods, GPUs, steps, checkpoint interval, flags.
        json: print one JSON object.
    """

    what: tyro.conf.Positional[Literal["k8s"]]
    out: Path
    scene: str
    run: str = ""
    kind: Literal["job", "statefulset"] = "job"
    pods: int = 1
    min_pods: int = 1
    max_pods: int = 0
    gpus: int = 1
    gpu_model: tuple[str, ...] = ()
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
    train_flags: str = ""
    plan: Path | None = None
    json: bool = False


def run(arguments: Arguments) -> None:
    from nerfleet.deploy.overlay import write_overlay

    deployment = deployment_from(arguments)
    components = write_overlay(arguments.out, deployment)
    if arguments.json:
        print_json({"out": str(arguments.out), "kind": deployment.kind, "pods": deployment.pods, "gpus_per_pod": deployment.gpus, "components": components})
        return
    say(f"{arguments.out}: {deployment.kind} of {deployment.pods} pods with {deployment.gpus} GPUs each, {', '.join(components) or 'no components'}")
    say(f"kubectl create namespace {deployment.namespace}; kubectl apply -k {arguments.out}")


def deployment_from(arguments: Arguments) -> Deployment:
    """Flags, and a plan where they say nothing else.

    Raises:
        NerfleetError: flags that contradict each other or the plan.
    """
    from nerfleet.deploy.overlay import Deployment

    if arguments.budget < 0:
        raise NerfleetError(f"--budget {arguments.budget:g}", "is negative", "use 0 for no bound")
    try:
        train_flags = tuple(shlex.split(arguments.train_flags))
    except ValueError as error:
        raise NerfleetError(f"--train-flags {arguments.train_flags}", str(error), "close the quotation") from None
    plain = {name: getattr(arguments, name) for name in Deployment.__dataclass_fields__ if hasattr(arguments, name)}
    values: dict[str, Any] = plain | {"run": arguments.run or Path(arguments.scene).name, "gpu_models": arguments.gpu_model, "train_flags": train_flags}
    if arguments.plan is not None:
        values |= _planned(arguments, values)
    values["max_pods"] = arguments.max_pods or values["pods"]
    return Deployment(**values)


def _planned(arguments: Arguments, values: dict[str, Any]) -> dict[str, Any]:
    from nerfleet.deploy.plan_file import read_plan

    assert arguments.plan is not None
    plan = read_plan(arguments.plan)
    if arguments.pods != 1 or arguments.gpus != 1:
        raise NerfleetError("--pods, --gpus and --plan", "contradict each other", "leave out --pods and --gpus: the plan says them")
    found: dict[str, Any] = {"pods": plan.pods, "gpus": plan.gpus_per_pod, "train_flags": plan.flags + values["train_flags"]}
    if plan.steps:
        found["steps"] = plan.steps
    if plan.checkpoint_seconds:
        found["checkpoint_every"] = f"{max(plan.checkpoint_seconds, 1):.0f}s"
    return found

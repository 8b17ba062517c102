"""What must be the same on every host."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping

from nerfleet.doctor.check import Check

REMEDY = "install the same everywhere: pip install of one list of versions, or one container image"
MUST_AGREE = ("nerfleet", "PyTorch", "CUDA", "NCCL")
SHOULD_AGREE = ("Python", "driver", "rdma-core", "MTU")


def own_facts(driver: str, rdma: str) -> dict[str, str]:
    """Versions here; empty where something is not installed."""
    import torch

    nccl = ".".join(map(str, torch.cuda.nccl.version())) if torch.version.cuda else ""
    versions = {"nerfleet": version_of("nerfleet"), "PyTorch": torch.__version__, "CUDA": torch.version.cuda or "", "NCCL": nccl}
    return versions | {"Python": platform.python_version(), "driver": driver, "rdma-core": rdma}


def version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def agreement(mine: Mapping[str, str], first: Mapping[str, str], first_host: str) -> Check:
    """This host's versions against those of the first host."""
    name = "versions"
    differ = [key for key in (*MUST_AGREE, *SHOULD_AGREE) if key in mine and key in first and mine[key] != first[key]]
    if not differ:
        return Check(name, "ok", ", ".join(f"{key} {value}" for key, value in mine.items() if value and key in MUST_AGREE))
    found = ", ".join(f"{key} {mine[key] or 'none'}, on {first_host} {first[key] or 'none'}" for key in differ)
    return Check(name, "fail" if set(differ) & set(MUST_AGREE) else "warn", found, REMEDY)

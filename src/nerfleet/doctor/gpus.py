"""GPUs: driver, compute capability, compiler, links, and whether PyTorch sees what the driver sees.

The driver is asked through ``nvidia-smi``, which comes with it. Least drivers: NVIDIA's table of CUDA compatibility.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from nerfleet.doctor.check import Check

LEAST_DRIVER = {13: 580, 12: 525}
"""CUDA major version -> the oldest driver that runs it (docs.nvidia.com/deploy/cuda-compatibility)."""
LEAST_CAPABILITY = (7, 5)
PCI = Path("/sys/bus/pci/devices")
NVIDIA_VENDOR, DISPLAY_CLASS = "0x10de", "0x03"
TIMEOUT_SECONDS = 10.0
_QUERY = "index,name,driver_version,compute_cap,memory.total,memory.used,temperature.gpu,ecc.errors.uncorrected.volatile.total"
HOT_CELSIUS = 85
SLOW_LINKS = ("SYS", "NODE")


@dataclass(frozen=True)
class Gpu:
    """As the driver describes it."""

    index: int
    name: str
    driver: str
    capability: tuple[int, int]
    memory_mib: int
    used_mib: int
    celsius: int | None
    bad_memory_cells: int


def gpu_checks(device: str, wanted: int) -> list[Check]:
    """All checks of GPUs.

    Args:
        device: "cpu": none are needed; "cuda": some are; "auto": none are needed, but said.
        wanted: GPUs that should be here; 0: any number.
    """
    if device == "cpu":
        return [Check("GPUs", "skip", "not asked for (--device cpu)")]
    gpus, complaint = query()
    if not gpus:
        return [_none(complaint, device, wanted)]
    names = [gpu.name for gpu in gpus]
    found = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    if len(gpus) < wanted:
        remedy = "look for the missing one: nvidia-smi -L, dmesg | grep -i nvrm, its power cable; container: --gpus all; Kubernetes: nvidia.com/gpu"
        checks = [Check("GPUs", "fail", f"{found}; {wanted} wanted", remedy)]
    else:
        checks = [Check("GPUs", "ok", found)]
    return [*checks, driver(gpus[0].driver, torch_cuda()), capability(gpus), health(gpus), torch_sees(len(gpus)), compiler(torch_cuda()), *links(len(gpus))]


def query() -> tuple[list[Gpu], str]:
    """(the GPUs, why there are none)."""
    if shutil.which("nvidia-smi") is None:
        return [], "no nvidia-smi"
    try:
        answer = subprocess.run(
            ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return [], f"nvidia-smi does not answer within {TIMEOUT_SECONDS:.0f} s"
    text = answer.stdout.strip()
    if answer.returncode != 0:
        return [], " ".join((text or answer.stderr).split())[:200] or f"nvidia-smi ended with {answer.returncode}"
    return [gpu for gpu in map(_parse, text.splitlines()) if gpu is not None], text or "nvidia-smi lists none"


def _parse(line: str) -> Gpu | None:
    cells = [cell.strip() for cell in line.split(",")]
    numbers = re.findall(r"\d+", cells[3]) if len(cells) == 8 else []
    if len(numbers) != 2:
        return None
    total, used, celsius, bad = (int(cell) if cell.isdigit() else None for cell in cells[4:])
    return Gpu(int(cells[0]), cells[1], cells[2], (int(numbers[0]), int(numbers[1])), total or 0, used or 0, celsius, bad or 0)


def _none(complaint: str, device: str, wanted: int) -> Check:
    """There is no GPU that the driver shows."""
    if _on_bus():
        remedy = "install the driver (580 or newer for CUDA 13), reboot, then try nvidia-smi; container: the NVIDIA container toolkit and --gpus all"
        return Check("GPUs", "fail", f"an NVIDIA card is on the PCI bus, but {complaint}", remedy)
    if device == "cuda" or wanted:
        remedy = "container: --gpus all; Kubernetes: the device plugin and nvidia.com/gpu; else use --device cpu"
        return Check("GPUs", "fail", f"none ({complaint}); {wanted or 'one'} wanted", remedy)
    return Check("GPUs", "warn", f"none ({complaint})", "training runs on the CPU, which is far slower")


def _on_bus() -> bool:
    """Whether a display adapter of NVIDIA's is plugged in, driver or not."""
    for card in PCI.glob("*"):
        try:
            if (card / "vendor").read_text().strip() == NVIDIA_VENDOR and (card / "class").read_text().startswith(DISPLAY_CLASS):
                return True
        except OSError:
            continue
    return False


def torch_cuda() -> str | None:
    """The CUDA version that PyTorch was built for; None for a CPU build."""
    import torch

    return torch.version.cuda


def driver(version: str, cuda: str | None) -> Check:
    """Whether the driver runs the CUDA version that PyTorch was built for; without one, any that is supported."""
    major = int(cuda.split(".")[0]) if cuda else min(LEAST_DRIVER)
    least = LEAST_DRIVER.get(major, max(LEAST_DRIVER.values()))
    have = int(version.split(".")[0]) if version.split(".")[0].isdigit() else 0
    if have >= least:
        return Check("driver", "ok", f"{version}, enough for CUDA {cuda or f'{major}.x'} ({least} or newer)")
    older = max((m for m, d in LEAST_DRIVER.items() if have >= d), default=None)
    remedy = f"install driver {least} or newer" + (f", or PyTorch for CUDA {older}" if older and older != major else "")
    found = f"{version} is too old: CUDA 12.x needs {LEAST_DRIVER[12]}, CUDA 13.x {LEAST_DRIVER[13]}; PyTorch has {cuda or 'none'}"
    return Check("driver", "fail", found, remedy)


def capability(gpus: list[Gpu]) -> Check:
    old = [gpu for gpu in gpus if gpu.capability < LEAST_CAPABILITY]
    found = ", ".join(sorted({f"{gpu.capability[0]}.{gpu.capability[1]}" for gpu in gpus}))
    if not old:
        return Check("compute capability", "ok", found)
    found = f"GPU {old[0].index} ({old[0].name}) has {'.'.join(map(str, old[0].capability))}; 7.5 needed"
    return Check("compute capability", "fail", found, "leave it out with CUDA_VISIBLE_DEVICES; use an RTX 20, T4 or newer")


def health(gpus: list[Gpu]) -> Check:
    """Errors that memory could not correct, heat, memory that others hold."""
    for gpu in gpus:
        if gpu.bad_memory_cells:
            found = f"GPU {gpu.index}: {gpu.bad_memory_cells} uncorrectable memory errors"
            return Check("GPU health", "fail", found, "reset it (nvidia-smi -r -i N), watch dmesg, replace it if they come back")
    for gpu in gpus:
        if gpu.celsius is not None and gpu.celsius >= HOT_CELSIUS:
            return Check("GPU health", "warn", f"GPU {gpu.index}: {gpu.celsius} degrees", "it slows down: clean the fans, check the air flow")
        if gpu.memory_mib and gpu.used_mib > 0.1 * gpu.memory_mib:
            return Check("GPU health", "warn", f"GPU {gpu.index}: {gpu.used_mib} of {gpu.memory_mib} MiB in use by others", "see nvidia-smi for who")
    return Check("GPU health", "ok", ", ".join(f"{gpu.index}: {gpu.celsius} degrees" for gpu in gpus))


def torch_sees(n_driver: int) -> Check:
    """Whether PyTorch sees the GPUs that the driver shows."""
    import torch

    name, hidden = "PyTorch", os.environ.get("CUDA_VISIBLE_DEVICES")
    if torch.version.cuda is None:
        return Check(name, "fail", f"{torch.__version__} is a build for the CPU", "pip install torch from an index of CUDA builds (pytorch.org)")
    n = torch.cuda.device_count()
    found = f"{torch.__version__} for CUDA {torch.version.cuda} sees {n} of {n_driver}" + (f" (CUDA_VISIBLE_DEVICES={hidden})" if hidden is not None else "")
    if n == 0:
        return Check(name, "fail", found, "unset CUDA_VISIBLE_DEVICES; NVSwitch machines: start nvidia-fabricmanager; see `driver` above")
    return Check(name, "ok" if n == n_driver or hidden is not None else "warn", found, "" if n == n_driver or hidden is not None else "compare nvidia-smi -L")


def compiler(cuda: str | None) -> Check:
    """NVRTC, which compiles the kernels, of the major version of PyTorch's CUDA."""
    name = "kernel compiler"
    wanted = (cuda or "13").split(".")[0]
    extra = f"pip install 'nerfleet[cuda{wanted}]'"
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.core") is None:
        return Check(name, "fail", "cuda-core is not installed", extra)
    for package in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"):
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        if version.split(".")[0] == wanted:
            return Check(name, "ok", f"NVRTC {version}")
    return Check(name, "fail", f"no NVRTC {wanted}.x, which PyTorch for CUDA {cuda or wanted} needs", extra)


def links(n: int) -> list[Check]:
    """What joins the GPUs, and whether they reach each other's memory."""
    if n < 2:
        return []
    try:
        text = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=TIMEOUT_SECONDS).stdout
    except subprocess.TimeoutExpired:
        text = ""
    return [topology(text), peer_access()]


def topology(text: str) -> Check:
    """From ``nvidia-smi topo -m``: the kind of link of each pair; NV18 is NVLink with 18 lanes, SYS goes through both CPUs."""
    rows = [re.sub(r"\x1b\[[0-9;]*m", "", line).split() for line in text.splitlines()]
    cells = {row[0]: row[1:] for row in rows if row and re.fullmatch(r"GPU\d+", row[0]) and len(row) > 1 and not row[1].startswith("GPU")}
    pairs = {}
    for i, j in itertools.combinations(range(len(cells)), 2):
        row = cells.get(f"GPU{i}", [])
        if j < len(row):
            pairs[f"{i}-{j}"] = row[j]
    if not pairs:
        return Check("GPU links", "skip", "nvidia-smi topo -m says nothing")
    kinds: dict[str, list[str]] = {}
    for pair, kind in pairs.items():
        kinds.setdefault(kind, []).append(pair)
    found = "; ".join(f"{kind}: {' '.join(names)}" for kind, names in kinds.items())
    slow = [kind for kind in kinds if kind in SLOW_LINKS]
    if not slow:
        return Check("GPU links", "ok", found)
    return Check("GPU links", "warn", found, "pairs through the CPUs are slow: put the cards under one PCIe root, or an NVLink bridge between them")


def peer_access() -> Check:
    import torch

    n = torch.cuda.device_count()
    without = [f"{i}-{j}" for i, j in itertools.combinations(range(n), 2) if not torch.cuda.can_device_access_peer(i, j)]
    if not without:
        return Check("peer access", "ok", f"all {n} GPUs reach each other's memory")
    remedy = "GeForce cards have none; else disable ACS and the IOMMU (iommu=pt); if NCCL hangs: NCCL_P2P_DISABLE=1"
    return Check("peer access", "warn", f"none between {' '.join(without)}: traffic goes through host memory", remedy)

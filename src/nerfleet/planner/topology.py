"""Which GPUs there are, in which hosts, and what joins them: read from YAML or asked of the driver."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nerfleet.errors import NerfleetError
from nerfleet.planner.gpus import GB, MB, Gpu, find_gpu
from nerfleet.planner.yaml_file import Section, read_yaml

CLUSTER_EXAMPLE = """\
hosts:
  - name: node0
    gpus:
      - model: RTX 4090
        count: 4
    link: pcie4
  - name: node1
    gpus:
      - model: RTX 3090
        count: 2
        speed: 0.8        # measured, of what this model reaches elsewhere (optional)
    link: nvlink-bridge
network: 25gbe
"""


@dataclass(frozen=True)
class Link:
    """What a GPU (or, between hosts, a host) can send while it receives as much.

    Attributes:
        bytes_per_s: that collectives reach, one direction. latency_seconds: of a small collective between two ranks, inside a CUDA graph.
    """

    name: str
    bytes_per_s: float
    latency_seconds: float
    source: str


_NCCL = "two H200 joined by NV18, NCCL 2.28: all-reduce of 153 MB in 528 us, of 1 MB in 16 us (docs/performance.md)"
_SHEET = "specification of the link, 75 % of one direction"
LINKS: dict[str, Link] = {
    link.name: link
    for link in (
        Link("nvlink5", 580e9, 12e-6, "twice nvlink4"),
        Link("nvlink4", 290e9, 12e-6, _NCCL),
        Link("nvlink3", 195e9, 14e-6, "two thirds of nvlink4, as their specifications"),
        Link("nvlink2", 97e9, 16e-6, "a third of nvlink4, as their specifications"),
        Link("nvlink-bridge", 42e9, 15e-6, f"RTX 3090 bridge, 56 GB/s: {_SHEET}"),
        Link("pcie5", 48e9, 20e-6, f"x16, 64 GB/s: {_SHEET}"),
        Link("pcie4", 12e9, 25e-6, "x16, 32 GB/s, through host memory twice (GeForce cards have no peer access)"),
        Link("pcie3", 6e9, 30e-6, "x16, 16 GB/s, through host memory twice"),
        Link("infiniband-ndr", 37e9, 25e-6, f"400 Gb/s a host: {_SHEET}"),
        Link("infiniband-hdr", 19e9, 25e-6, f"200 Gb/s a host: {_SHEET}"),
        Link("100gbe", 9e9, 50e-6, _SHEET),
        Link("40gbe", 3.7e9, 60e-6, _SHEET),
        Link("25gbe", 2.3e9, 60e-6, _SHEET),
        Link("10gbe", 0.94e9, 80e-6, _SHEET),
        Link("1gbe", 0.094e9, 150e-6, _SHEET),
        Link("none", 1.0, 1.0, "one GPU: nothing to join"),
    )
}


@dataclass(frozen=True)
class Card:
    """One GPU of a cluster. ``speed``: measured, relative to what its kind would reach; 1 if nothing is known."""

    gpu: Gpu
    host: int
    speed: float = 1.0


@dataclass(frozen=True)
class Host:
    name: str
    link: Link
    n_cpus: int = 8


@dataclass(frozen=True)
class Cluster:
    """Attributes:
    cards: in rank order, host by host. network: between hosts.
    """

    hosts: tuple[Host, ...]
    cards: tuple[Card, ...]
    network: Link

    def first(self, n: int) -> Cluster:
        """The first n GPUs, and the hosts that they need."""
        cards = self.cards[:n]
        return dataclasses.replace(self, cards=cards, hosts=self.hosts[: cards[-1].host + 1])

    def describe(self) -> str:
        kinds: dict[str, int] = {}
        for card in self.cards:
            kinds[card.gpu.name] = kinds.get(card.gpu.name, 0) + 1
        text = ", ".join(f"{n} x {name}" for name, n in kinds.items())
        return text if len(self.hosts) == 1 else f"{text} in {len(self.hosts)} hosts, {self.network.name}"


def uniform(gpu: Gpu, n: int, per_host: int = 0, link: str = "", network: str = "25gbe", n_cpus: int = 8) -> Cluster:
    """n equal GPUs, ``per_host`` in a host (0: all in one)."""
    per_host = per_host or n
    joined = find_link(link) if link else usual_link(gpu)
    hosts = tuple(Host(f"host{i}", joined, n_cpus) for i in range(-(-n // per_host)))
    return Cluster(hosts, tuple(Card(gpu, i // per_host) for i in range(n)), find_link(network))


def usual_link(gpu: Gpu) -> Link:
    """What usually joins GPUs of this kind, where nothing is said."""
    nvlink = {"H200": "nvlink4", "H100": "nvlink4", "B200": "nvlink5", "A100": "nvlink3", "A100 80GB": "nvlink3", "V100": "nvlink2"}
    slot = "pcie3" if gpu.capability <= 75 else "pcie5" if gpu.name == "H100 PCIe" else "pcie4"
    return LINKS[nvlink.get(gpu.name, slot)]


def find_link(name: str, where: str = "link") -> Link:
    """Raises NerfleetError: no such link; the nearest is offered."""
    link = LINKS.get(name.lower().strip())
    if link is None:
        near = difflib.get_close_matches(name.lower(), LINKS, n=1)
        raise NerfleetError(where, f"{name!r} is not known", f"did you mean {near[0]}?" if near else f"use one of {', '.join(LINKS)}")
    return link


def parse_gpus(text: str, link: str = "", per_host: int = 0, network: str = "25gbe") -> Cluster:
    """``4 x RTX 4090`` or ``2 x RTX 4090, 1 x RTX 3060`` -> GPUs of one host (or of hosts of ``per_host`` equal ones).

    Raises:
        NerfleetError: not of this form, or an unknown GPU.
    """
    cards: list[Card] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(?:(\d+)\s*x\s+)?(.+?)\s*", part, re.IGNORECASE)
        if match is None or not 1 <= int(match[1] or 1) <= 4096:
            raise NerfleetError(f"--gpus {text}", f"{part.strip()!r} is no GPU", "write for example `4 x RTX 4090`")
        cards += [Card(find_gpu(match[2], f"--gpus {text}"), 0)] * int(match[1] or 1)
    if per_host:
        cards = [dataclasses.replace(card, host=i // per_host) for i, card in enumerate(cards)]
    joined = find_link(link, "--link") if link else min((usual_link(card.gpu) for card in cards), key=lambda one: one.bytes_per_s)
    hosts = tuple(Host(f"host{i}", joined) for i in range(cards[-1].host + 1))
    return Cluster(hosts, tuple(cards), find_link(network, "--network-link"))


def read_cluster(path: Path) -> Cluster:
    """A cluster file (:data:`CLUSTER_EXAMPLE` shows all that it can say).

    Raises:
        NerfleetError: the file, the line and the key that are wrong.
    """
    root = read_yaml(path)
    root.only(("hosts", "network"))
    hosts: list[Host] = []
    cards: list[Card] = []
    for section in root.sections("hosts"):
        section.only(("name", "count", "gpus", "link", "cpus"))
        own = [card for entry in section.sections("gpus") for card in _cards(entry)]
        usual = min((usual_link(card.gpu) for card in own), key=lambda one: one.bytes_per_s)
        link = _link(section, "link", usual)
        n_hosts = section.whole("count", 1, most=4096)
        for i in range(n_hosts):
            name = section.text("name", f"host{len(hosts)}")
            cards += [dataclasses.replace(card, host=len(hosts)) for card in own]
            hosts.append(Host(name if n_hosts == 1 else f"{name}-{i}", link, section.whole("cpus", 8)))
    if len(cards) > 4096:
        raise NerfleetError(str(path), f"lists {len(cards)} GPUs", "plans reach 4096")
    if len(hosts) > 1 and "network" not in root.values:
        raise root.error("network", "is missing, and there are several hosts", f"give network, one of {', '.join(LINKS)}")
    return Cluster(tuple(hosts), tuple(cards), _link(root, "network", LINKS["none"]))


def _cards(section: Section) -> list[Card]:
    section.only(("model", "count", "memory_gb", "bandwidth_gb_s", "multiprocessors", "clock_ghz", "l2_mb", "speed"))
    model = section.text("model")
    measures = ("memory_gb", "bandwidth_gb_s", "multiprocessors", "clock_ghz", "l2_mb")
    if all(key in section.values for key in measures):
        gpu = Gpu(model, 0, 0, 1, 0, 0, 80, f"{section.file}, line {section.line}")
    else:
        gpu = find_gpu(model, f"{section.file}, line {section.lines['model']}, model", GB * section.number("memory_gb", 0))
    gpu = dataclasses.replace(
        gpu,
        memory_bytes=GB * section.number("memory_gb", gpu.memory_bytes / GB, positive=True),
        bytes_per_s=GB * section.number("bandwidth_gb_s", gpu.bytes_per_s / GB, positive=True),
        multiprocessors=section.whole("multiprocessors", gpu.multiprocessors),
        clock_hz=1e9 * section.number("clock_ghz", gpu.clock_hz / 1e9, positive=True),
        l2_bytes=MB * section.number("l2_mb", gpu.l2_bytes / MB, positive=True),
    )
    if not gpu.trains:
        raise section.error("model", f"PyTorch for CUDA 13 does not run on a {gpu.name}", "use a GPU of compute capability 7.5 or newer (T4, RTX 20 on)")
    return [Card(gpu, 0, section.number("speed", 1.0, positive=True))] * section.whole("count", 1, most=4096)


def _link(section: Section, key: str, default: Link) -> Link:
    value = section.values.get(key)
    if value is None:
        return default
    if isinstance(value, Section):
        value.only(("gb_per_s", "latency_us"))
        return Link("own", GB * value.number("gb_per_s", positive=True), 1e-6 * value.number("latency_us", 30), f"{section.file}, line {value.line}")
    return find_link(section.text(key), f"{section.file}, line {section.lines[key]}, {key}")


def this_machine() -> Cluster | None:
    """GPUs of this machine as the driver (NVML) sees them, those that CUDA_VISIBLE_DEVICES leaves; None where there is none.

    Raises:
        NerfleetError: a GPU that is not in the catalogue.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
    except ImportError:
        return None
    except pynvml.NVMLError:
        return None
    try:
        handles = _visible(pynvml, [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())])
        if not handles:
            return None
        cards = []
        for handle in handles:
            name = pynvml.nvmlDeviceGetName(handle)
            total = float(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
            gpu = find_gpu(name if isinstance(name, str) else name.decode(), "this machine", total)
            cards.append(Card(dataclasses.replace(gpu, memory_bytes=total), 0))
        slowest = min((usual_link(card.gpu) for card in cards), key=lambda one: one.bytes_per_s)
        link = slowest if _all_joined(pynvml, handles) or not slowest.name.startswith("nvlink") else LINKS["pcie4"]
        host = Host(socket.gethostname(), link, os.cpu_count() or 1)
        return Cluster((host,), tuple(cards), LINKS["none"])
    finally:
        pynvml.nvmlShutdown()


def _visible(pynvml: Any, handles: list[Any]) -> list[Any]:
    """Those that CUDA_VISIBLE_DEVICES leaves, in its order; all if it is not set."""
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return handles
    found = []
    for name in filter(None, (part.strip() for part in wanted.split(","))):
        by_index = [handles[int(name)]] if name.isdigit() and int(name) < len(handles) else []
        found += by_index or [handle for handle in handles if str(pynvml.nvmlDeviceGetUUID(handle)).startswith(name)]
    return found


def _all_joined(pynvml: Any, handles: list[Any]) -> bool:
    """Whether every GPU has an active NVLink (to a switch or to its neighbours)."""
    for handle in handles:
        try:
            if not any(pynvml.nvmlDeviceGetNvLinkState(handle, link) for link in range(pynvml.NVML_NVLINK_MAX_LINKS)):
                return False
        except pynvml.NVMLError:
            return False
    return True

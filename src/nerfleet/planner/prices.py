"""Machines that can be rented, from an editable YAML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nerfleet.errors import NerfleetError
from nerfleet.planner.gpus import Gpu, find_gpu
from nerfleet.planner.topology import Cluster, find_link, uniform
from nerfleet.planner.yaml_file import Section, read_yaml

EXAMPLE = Path(__file__).with_name("prices.yaml")
MAX_MACHINES = 1024


@dataclass(frozen=True)
class Instance:
    """A type of machine, rented whole.

    Attributes:
        spot_price_per_hour: 0: not offered. interruptions_per_hour: of one spot machine, expected. network: between machines.
    """

    name: str
    gpu: Gpu
    n_gpus: int
    price_per_hour: float
    spot_price_per_hour: float = 0.0
    interruptions_per_hour: float = 0.0
    link: str = ""
    network: str = "25gbe"
    n_cpus: int = 8

    def machines(self, n_gpus: int) -> int:
        """Whole machines for so many GPUs."""
        return -(-n_gpus // self.n_gpus)

    def cluster(self, n_gpus: int) -> Cluster:
        return uniform(self.gpu, n_gpus, min(self.n_gpus, n_gpus), self.link, self.network, self.n_cpus)


@dataclass(frozen=True)
class PriceList:
    """Attributes: date: when the prices were looked up, as the file says."""

    currency: str
    date: str
    instances: tuple[Instance, ...]
    source: str


def read_prices(path: Path) -> PriceList:
    """A price file (:data:`EXAMPLE`).

    Raises:
        NerfleetError: the line and key that are wrong: an unknown GPU, a price that is not above 0.
    """
    root = read_yaml(path)
    root.only(("currency", "date", "instances"))
    instances = tuple(_instance(section) for section in root.sections("instances"))
    names = [instance.name for instance in instances]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise NerfleetError(str(path), f"has two instances {twice}", "give them different names")
    date = root.values.get("date", "")
    return PriceList(root.text("currency", "USD"), str(date), instances, str(path))


def _instance(section: Section) -> Instance:
    known = ("name", "gpu", "gpus", "price_per_hour", "spot_price_per_hour", "interruptions_per_hour", "link", "network", "cpus", "source")
    section.only(known)
    where = f"{section.file}, line {section.lines.get('gpu', section.line)}, gpu"
    spot = section.number("spot_price_per_hour", positive=True) if "spot_price_per_hour" in section.values else 0.0
    for key in ("link", "network"):
        if key in section.values:
            find_link(section.text(key), f"{section.file}, line {section.lines[key]}, {key}")
    return Instance(
        section.text("name"),
        find_gpu(section.text("gpu"), where),
        section.whole("gpus", 1, most=64),
        section.number("price_per_hour", positive=True),
        spot,
        section.number("interruptions_per_hour", 0.0, most=3600),
        section.text("link", "") if "link" in section.values else "",
        section.text("network", "25gbe"),
        section.whole("cpus", 8),
    )

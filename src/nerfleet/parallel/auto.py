"""``--parallel auto`` with measurements: the planner chooses the strategy for the ranks that there are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nerfleet.errors import NerfleetError
from nerfleet.planner.choose import Choice, choose, possibilities
from nerfleet.planner.gpus import Gpu, find_gpu
from nerfleet.planner.topology import LINKS, Card, Cluster, Host, usual_link

if TYPE_CHECKING:
    from nerfleet.config import TrainConfig
    from nerfleet.planner.calibration import Calibration
    from nerfleet.planner.workload import SceneFacts

GRID_ON_CUDA = False
"""Whether --parallel grid and hybrid run on GPUs; on CPUs they do."""
NETWORK = "10gbe"
"""Between hosts, where ``bench collectives`` has not measured it."""


@dataclasses.dataclass(frozen=True)
class Seat:
    """Where a rank runs: name of the host, name of the GPU as the driver gives it ("cpu" without one), its memory."""

    host: str
    device: str
    memory_bytes: float


def planned(config: TrainConfig, scene: SceneFacts, seats: Sequence[Seat], calibration: Calibration, can_split: bool) -> Choice:
    """Strategy and grid degree for all these ranks with the batch that ``config`` asks of them together.

    Args:
        can_split: whether the grid can be split over these devices.

    Raises:
        NerfleetError: a GPU of which nothing is known, or a model that fits none of them.
    """
    names = list(dict.fromkeys(seat.host for seat in seats))
    cards = tuple(Card(dataclasses.replace(_gpu(seat, calibration), memory_bytes=seat.memory_bytes), names.index(seat.host)) for seat in seats)
    hosts = tuple(Host(name, min((usual_link(card.gpu) for card in cards), key=lambda link: link.bytes_per_s)) for name in names)
    options = possibilities(scene, config, Cluster(hosts, cards, LINKS[NETWORK]), calibration, (len(seats),), fixed_batch=True)
    return choose([option for option in options if option.simulated.grid == 1 or (can_split and option.simulated.grid <= config.network.encoding.n_levels)])


def _gpu(seat: Seat, calibration: Calibration) -> Gpu:
    """As it was measured, else from the catalogue."""
    measured = {one.gpu.name: one.gpu for one in calibration.steps}
    if seat.device in measured:
        return measured[seat.device]
    if seat.device == "cpu":
        raise NerfleetError("--calibration", "has no step that was measured on a CPU", "add a file of `nerfleet bench step --device cpu --save FILE`")
    known = find_gpu(seat.device, f"rank on {seat.host}", seat.memory_bytes)
    return measured.get(known.name, known)

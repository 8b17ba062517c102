"""How long a collective takes between ranks of a cluster: measured where it was, else from the links' speed.

Rings, as NCCL builds them for large messages: each rank passes on ``factor * bytes``, the slowest link of the ring decides, small
messages cost a latency for each doubling of the ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nerfleet.planner.calibration import Calibration, CollectiveMeasurement
from nerfleet.planner.topology import Cluster

GLOO_EVERY = 8
"""Steps between two messages between hosts' processes (parallel/data_parallel.py); they overlap with the GPUs' work."""


@dataclass(frozen=True)
class Group:
    """Ranks that exchange something: ``ranks_per_host`` of each host that takes part."""

    cluster: Cluster
    hosts: tuple[int, ...]
    ranks_per_host: tuple[int, ...]

    @property
    def n(self) -> int:
        return sum(self.ranks_per_host)

    @property
    def slowest_inside(self) -> tuple[float, float]:
        """(bytes a second, latency) of the slowest link inside a host that several ranks of the group share."""
        links = [self.cluster.hosts[host].link for host, n in zip(self.hosts, self.ranks_per_host) if n > 1]
        return min((link.bytes_per_s for link in links), default=math.inf), max((link.latency_seconds for link in links), default=0.0)


def group(cluster: Cluster, ranks: Sequence[int]) -> Group:
    hosts: dict[int, int] = {}
    for rank in ranks:
        host = cluster.cards[rank].host
        hosts[host] = hosts.get(host, 0) + 1
    return Group(cluster, tuple(hosts), tuple(hosts.values()))


def factor(operation: str, n: int) -> float:
    """Bytes that a rank sends for each byte of the whole tensor."""
    share = (n - 1) / n
    return 2 * share if operation == "all_reduce" else share


def collective_seconds(operation: str, n_bytes: float, among: Group, calibration: Calibration, rivals: int = 1) -> float:
    """Seconds of one collective.

    Args:
        operation: all_reduce, reduce_scatter, all_gather or all_to_all. n_bytes: that a rank holds of the whole tensor.
        rivals: groups of ranks that use the links between hosts at the same time.
    """
    n = among.n
    if n < 2 or n_bytes <= 0:
        return 0.0
    measured = calibration.collectives_for(n, len(among.hosts))
    if measured is not None and operation in measured.rows:
        return _from_measurement(operation, n_bytes, n, measured)
    inside, latency = among.slowest_inside
    rounds = max(math.log2(max(max(among.ranks_per_host), 1)), 0.0)
    seconds = latency * rounds
    sent = factor(operation, n) * n_bytes
    across = math.inf
    if len(among.hosts) > 1:
        network = among.cluster.network
        seconds += network.latency_seconds * math.ceil(math.log2(len(among.hosts)))
        across = network.bytes_per_s / rivals
        if operation == "all_to_all":  # everything that leaves a host goes through its one network card
            most = max(among.ranks_per_host)
            return seconds + max(sent / inside, most * n_bytes * (n - most) / n / across)
    return seconds + sent / min(inside, across)


def _from_measurement(operation: str, n_bytes: float, n: int, measured: CollectiveMeasurement) -> float:
    """Between two measured sizes linearly; beyond them at the nearest one's rate. Other numbers of ranks: as rings and trees scale."""
    rows = measured.rows[operation]
    scaled = n_bytes * factor(operation, n) / factor(operation, measured.n_ranks)
    below = [row for row in rows if row[0] <= scaled]
    above = [row for row in rows if row[0] > scaled]
    latency = rows[0][1] * (math.log2(n) / math.log2(measured.n_ranks) - 1)
    if not below:
        return above[0][1] + latency
    if not above:
        first, last = (below[-2], below[-1]) if len(below) > 1 else ((0.0, 0.0), below[-1])
        rate = max((last[1] - first[1]) / (last[0] - first[0]), 0.0)
        return max(last[1] + (scaled - last[0]) * rate + latency, 1e-9)
    (b0, s0), (b1, s1) = below[-1], above[0]
    return max(s0 + (s1 - s0) * (scaled - b0) / (b1 - b0) + latency, 1e-9)

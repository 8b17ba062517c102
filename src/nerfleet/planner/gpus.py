"""GPUs that people have and rent, from their makers' data sheets."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from nerfleet.errors import NerfleetError

GB, MB = 10**9, 1 << 20
COPY_SHARE = 0.87
"""Of a data sheet's memory bandwidth that a large copy reaches: 4.17 of 4.8 TB/s on an H200 (docs/performance.md)."""


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU.

    Attributes:
        memory_bytes: of the card. bytes_per_s: bandwidth of its memory, both directions together.
        multiprocessors, clock_hz: together the rate at which instructions are issued and shared memory is read (boost clock).
        l2_bytes: last cache.
        capability: CUDA compute capability, times ten.
        source: where the numbers come from.
    """

    name: str
    memory_bytes: float
    bytes_per_s: float
    multiprocessors: int
    clock_hz: float
    l2_bytes: float
    capability: int
    source: str

    @property
    def trains(self) -> bool:
        """Whether nerfleet runs on it: PyTorch for CUDA 13 needs compute capability 7.5."""
        return self.capability >= 75

    @property
    def fetched_bytes(self) -> int:
        """Least that its memory delivers: 64 bytes of HBM (the chips of capability x.0), 32 of GDDR."""
        return 64 if self.capability % 10 == 0 and self.capability < 120 else 32

    @property
    def issue_rate(self) -> float:
        return self.multiprocessors * self.clock_hz

    @property
    def copy_bytes_per_s(self) -> float:
        return self.bytes_per_s * COPY_SHARE


_AMPERE = "NVIDIA Ampere GA102 whitepaper; GeForce RTX 30 specifications (nvidia.com/geforce)"
_ADA = "NVIDIA Ada GPU Architecture whitepaper; GeForce RTX 40 specifications (nvidia.com/geforce)"
_BLACKWELL = "NVIDIA RTX Blackwell GPU Architecture whitepaper; GeForce RTX 50 specifications (nvidia.com/geforce)"
_V100 = "NVIDIA Tesla V100 GPU Architecture whitepaper"
_T4 = "NVIDIA Turing GPU Architecture whitepaper; T4 data sheet"
_L4 = "NVIDIA L4 data sheet; Ada GPU Architecture whitepaper"
_L40S = "NVIDIA L40S data sheet; Ada GPU Architecture whitepaper"
_A10 = "NVIDIA A10 data sheet; Ampere GA102 whitepaper"
_A100 = "NVIDIA A100 Tensor Core GPU Architecture whitepaper; A100 data sheet"
_H100 = "NVIDIA H100 Tensor Core GPU Architecture whitepaper; H100 data sheet"
_H200 = "NVIDIA H200 data sheet; H100 Tensor Core GPU Architecture whitepaper"
_B200 = "NVIDIA Blackwell Architecture technical brief; Blackwell tuning guide; clock as of H200, not published"

_ROWS: tuple[tuple[str, float, float, int, float, float, int, str], ...] = (
    # name, memory GB, GB/s, multiprocessors, boost GHz, L2 MB, compute capability x 10, source
    ("RTX 3060", 12, 360, 28, 1.777, 3, 86, _AMPERE),
    ("RTX 3060 Ti", 8, 448, 38, 1.665, 4, 86, _AMPERE),
    ("RTX 3070", 8, 448, 46, 1.725, 4, 86, _AMPERE),
    ("RTX 3070 Ti", 8, 608, 48, 1.770, 4, 86, _AMPERE),
    ("RTX 3080", 10, 760, 68, 1.710, 5, 86, _AMPERE),
    ("RTX 3080 Ti", 12, 912, 80, 1.665, 6, 86, _AMPERE),
    ("RTX 3090", 24, 936, 82, 1.695, 6, 86, _AMPERE),
    ("RTX 3090 Ti", 24, 1008, 84, 1.860, 6, 86, _AMPERE),
    ("RTX 4060", 8, 272, 24, 2.460, 24, 89, _ADA),
    ("RTX 4060 Ti", 8, 288, 34, 2.535, 32, 89, _ADA),
    ("RTX 4070", 12, 504, 46, 2.475, 36, 89, _ADA),
    ("RTX 4070 Ti", 12, 504, 60, 2.610, 48, 89, _ADA),
    ("RTX 4080", 16, 717, 76, 2.505, 64, 89, _ADA),
    ("RTX 4090", 24, 1008, 128, 2.520, 72, 89, _ADA),
    ("RTX 5060", 8, 448, 30, 2.497, 32, 120, _BLACKWELL),
    ("RTX 5060 Ti", 16, 448, 36, 2.572, 32, 120, _BLACKWELL),
    ("RTX 5070", 12, 672, 48, 2.512, 48, 120, _BLACKWELL),
    ("RTX 5070 Ti", 16, 896, 70, 2.452, 48, 120, _BLACKWELL),
    ("RTX 5080", 16, 960, 84, 2.617, 64, 120, _BLACKWELL),
    ("RTX 5090", 32, 1792, 170, 2.407, 96, 120, _BLACKWELL),
    ("V100", 16, 900, 80, 1.530, 6, 70, _V100),
    ("T4", 16, 320, 40, 1.590, 4, 75, _T4),
    ("L4", 24, 300, 58, 2.040, 48, 89, _L4),
    ("L40S", 48, 864, 142, 2.520, 96, 89, _L40S),
    ("A10", 24, 600, 72, 1.695, 6, 86, _A10),
    ("A10G", 24, 600, 80, 1.710, 6, 86, _A10),
    ("A100", 40, 1555, 108, 1.410, 40, 80, _A100),
    ("A100 80GB", 80, 2039, 108, 1.410, 40, 80, _A100),
    ("H100", 80, 3350, 132, 1.980, 50, 90, _H100),
    ("H100 PCIe", 80, 2000, 114, 1.755, 50, 90, _H100),
    ("H200", 141, 4800, 132, 1.980, 50, 90, _H200),
    ("B200", 180, 8000, 148, 1.965, 126, 100, _B200),
)
GPUS: dict[str, Gpu] = {
    name: Gpu(name, memory * GB, rate * GB, units, clock * 1e9, cache * MB, capability, source)
    for name, memory, rate, units, clock, cache, capability, source in _ROWS
}
_SIZE = re.compile(r"(?<![\d.])(\d{1,3})\s*gb", re.IGNORECASE)
_NOISE = re.compile(r"nvidia|geforce|rtx|tesla|graphics|laptop|gpu|sxm\d?|hbm\d?e?|[\s\-_]+", re.IGNORECASE)


def find_gpu(name: str, where: str = "GPU", memory_bytes: float = 0) -> Gpu:
    """A GPU by the name that people or drivers give it ("NVIDIA GeForce RTX 4090", "rtx4090", "A100-SXM4-80GB").

    Args:
        where: what to name in the error. memory_bytes: as the driver reports it, to tell variants of one name apart; 0: unknown.

    Raises:
        NerfleetError: no such GPU; the nearest is offered.
    """
    by_key = {_key(known): gpu for known, gpu in GPUS.items()}
    key, size = _key(name), _SIZE.search(name)
    if key not in by_key and size is not None:
        key, memory_bytes = _key(_SIZE.sub("", name)), memory_bytes or GB * float(size[1])
    gpu = by_key.get(key)
    if gpu is None:
        near = difflib.get_close_matches(key, by_key, n=1, cutoff=0.4)
        nearest = f"did you mean {by_key[near[0]].name}?" if near else f"known are {', '.join(GPUS)}"
        raise NerfleetError(where, f"{name!r} is not in the catalogue", f"{nearest} (or give memory_gb, bandwidth_gb_s, multiprocessors, clock_ghz, l2_mb)")
    if memory_bytes:
        variants = [one for one in GPUS.values() if _key(one.name).startswith(_key(gpu.name)) and one.capability == gpu.capability]
        same = [one for one in variants if abs(one.memory_bytes / memory_bytes - 1) < 0.15 and one.multiprocessors == gpu.multiprocessors]
        return min(same, key=lambda one: len(one.name), default=gpu)
    return gpu


def _key(name: str) -> str:
    return _NOISE.sub("", name).lower()

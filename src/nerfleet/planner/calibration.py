"""Measurements that ``nerfleet bench step --save`` and ``bench collectives --save`` left, and one that nerfleet brings along."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nerfleet.config import EncodingConfig, NetworkConfig, is_number, train_config_from_dict
from nerfleet.errors import NerfleetError
from nerfleet.planner.gpus import COPY_SHARE, GPUS, Gpu
from nerfleet.planner.memory import SET_UP_BYTES, rank_memory
from nerfleet.planner.stages import LAUNCH_SECONDS as LAUNCHES
from nerfleet.planner.stages import STAGES
from nerfleet.planner.workload import Profile, SceneFacts, Touch, Workload, grid_levels, workload

STEP, COLLECTIVES = "step", "collectives"
LAUNCHED_SECONDS = 33e-6
"""Of a collective that is launched by itself instead of inside a CUDA graph: 49 against 16 us for 1 MB on two H200 (docs/performance.md)."""


@dataclass(frozen=True)
class StepMeasurement:
    """One ``bench step``.

    Attributes:
        stages: seconds of each op of a step. step_seconds: of a whole step as training runs it (a graph hides some launches).
        set_up_bytes: what the peak holds beyond the buffers that are counted. source: the file.
    """

    gpu: Gpu
    load: Workload
    stages: dict[str, float]
    step_seconds: float
    set_up_bytes: float
    source: str

    @functools.cached_property
    def in_graph(self) -> dict[str, float]:
        """Seconds of each stage inside a CUDA graph, summing to the whole step: what timing the ops one by one adds is their launches."""
        launches = sum(LAUNCHES[stage] for stage in self.stages)
        added = sum(self.stages.values()) - self.step_seconds
        net = {stage: max(seconds - added * LAUNCHES[stage] / launches, 0.4 * seconds) for stage, seconds in self.stages.items()}
        scale = self.step_seconds / sum(net.values())
        return {stage: scale * seconds for stage, seconds in net.items()}


@dataclass(frozen=True)
class CollectiveMeasurement:
    """One ``bench collectives``: ``rows`` operation -> [(bytes, seconds)], rising."""

    n_ranks: int
    n_hosts: int
    cuda: bool
    rows: dict[str, tuple[tuple[float, float], ...]]
    source: str


@dataclass(frozen=True)
class Calibration:
    """Everything that was measured; ``steps`` is never empty."""

    steps: tuple[StepMeasurement, ...]
    collectives: tuple[CollectiveMeasurement, ...] = ()

    def step_for(self, gpu: Gpu, scene: str) -> StepMeasurement:
        """On this kind of GPU if there is one, of this scene if there is one."""
        return max(self.steps, key=lambda one: (one.gpu.name == gpu.name, one.load.scene.name == scene))

    def measured(self, gpu: Gpu) -> bool:
        """Whether this kind of GPU was measured by the user (the one that nerfleet brings counts as measured for its own kind)."""
        return any(one.gpu.name == gpu.name for one in self.steps)

    def profile_for(self, scene: str) -> Profile | None:
        return next((one.load.profile for one in self.steps if one.load.scene.name == scene), None)

    def collectives_for(self, n_ranks: int, n_hosts: int) -> CollectiveMeasurement | None:
        """Between as many ranks if there are such, else between others of a like kind (one host, or several)."""
        like = [one for one in self.collectives if (one.n_hosts > 1) == (n_hosts > 1)]
        return min(like, key=lambda one: abs(one.n_ranks - n_ranks), default=None)


def read_calibration(paths: Sequence[Path]) -> Calibration:
    """Files of both kinds, in any order; without a step among them, the one that nerfleet brings along is used.

    Raises:
        NerfleetError: unreadable, or not such a file.
    """
    steps: list[StepMeasurement] = []
    collectives: list[CollectiveMeasurement] = []
    for path in paths:
        values = _read(path)
        try:
            if "collectives" in values:
                collectives.append(_collectives(values, str(path)))
            elif "stages_ms" in values:
                steps.append(_step(values, str(path)))
            else:
                raise KeyError("stages_ms")
        except NerfleetError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
            remedy = "make it anew with `nerfleet bench step --save FILE` or `nerfleet bench collectives --save FILE`"
            raise NerfleetError(str(path), f"is no calibration ({type(error).__name__}: {error})", remedy) from None
    return Calibration(tuple(steps) or (REFERENCE,), tuple(collectives))


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NerfleetError(str(path), error.strerror or "cannot be read", "name a file of `nerfleet bench step --save FILE`") from None
    except (ValueError, RecursionError) as error:
        raise NerfleetError(str(path), f"is not JSON ({error})", "name a file of `nerfleet bench step --save FILE`") from None
    if not isinstance(values, dict):
        raise NerfleetError(str(path), "is not a JSON object", "name a file of `nerfleet bench step --save FILE`")
    return values


def _positive(value: Any, key: str) -> float:
    if not is_number(value) or value <= 0:
        raise ValueError(f"{key} {value!r} is not a number above 0")
    return float(value)


def _step(values: dict[str, Any], source: str) -> StepMeasurement:
    device, scene = values["gpu"], values["scene"]
    numbers = {key: _positive(device[key], key) for key in ("memory_bytes", "copy_bytes_per_s", "multiprocessors", "clock_hz", "l2_bytes")}
    gpu = Gpu(
        str(device["name"]), numbers["memory_bytes"], numbers["copy_bytes_per_s"] / COPY_SHARE, int(numbers["multiprocessors"]), numbers["clock_hz"],
        numbers["l2_bytes"], int(device["capability"]), source,
    )  # fmt: skip
    facts = SceneFacts(str(scene["name"]), int(scene["aabb_scale"]), int(scene["n_views"]), int(scene["n_pixels"]))
    touches = tuple(Touch(*(float(value) for value in row)) for row in values["touched"])
    if not touches:
        raise ValueError("touched is empty")
    kept, evaluated, rays = (_positive(values[f"{key}_per_step"], key) for key in ("trained_samples", "evaluated_samples", "rays"))
    config = train_config_from_dict(values["config"])
    profile = Profile(facts.name, facts.aabb_scale, kept, evaluated, rays, config.network.encoding.n_features_per_level, touches)
    load = workload(facts, config, profile)
    stages = {str(name): 1e-3 * _positive(ms, name) for name, ms in values["stages_ms"].items() if name in STAGES}
    missing = set(STAGES) - set(stages)
    if missing:
        raise KeyError(", ".join(sorted(missing)))
    counted = rank_memory(load, 1, load.n_params, 1.0, 1.0, 1.0, 0.0)
    set_up = max(_positive(values["peak_bytes"], "peak_bytes") - counted.table - counted.pixels - counted.set_up, 0.0)
    return StepMeasurement(gpu, load, stages, 1e-3 * _positive(values["ms_per_step"], "ms_per_step"), set_up, source)


def _collectives(values: dict[str, Any], source: str) -> CollectiveMeasurement:
    cuda = str(values["device"]).startswith("cuda")
    rows: dict[str, list[tuple[float, float]]] = {}
    for row in values["collectives"]:
        seconds = 1e-3 * _positive(row["ms"], "ms")
        inside_a_graph = max(seconds - LAUNCHED_SECONDS, 0.25 * seconds) if cuda else seconds
        rows.setdefault(str(row["operation"]), []).append((_positive(row["bytes"], "bytes"), inside_a_graph))
    n_ranks = int(_positive(values["world_size"], "world_size"))
    if n_ranks < 2 or not rows:
        raise ValueError("it has no rows")
    return CollectiveMeasurement(n_ranks, len(values["hosts"]), cuda, {name: tuple(sorted(found)) for name, found in rows.items()}, source)


_LEGO = SceneFacts("lego", 1, 100, 100 * 800 * 800)
_NETWORK = NetworkConfig(encoding=EncodingConfig(log2_hashmap_size=19))
_TOUCHES: tuple[tuple[float, float, float, float, float], ...] = (
    (15, 1_823, 1_602, 930, 680),
    (31, 4_768, 4_030, 2_567, 2_075),
    (63, 13_942, 12_113, 9_640, 8_419),
    (127, 52_388, 44_460, 39_202, 32_568),
    (255, 210_543, 151_565, 146_799, 100_640),
    (511, 623_789, 363_098, 370_681, 208_666),
    (1_023, 1_229_528, 640_809, 623_675, 321_329),
    (2_047, 1_556_064, 782_297, 565_795, 284_066),
)
_PROFILE = Profile("lego", 1, 262_202, 369_172, 49_487, 4, tuple(Touch(*row) for row in _TOUCHES))
_STAGES_MS = {
    "begin": 0.0054, "sample_rays": 0.0126, "trace": 0.1925, "sample_order": 0.012, "ray_loss": 0.0057, "composite_backward": 0.0087,
    "field_backward": 0.0967, "hash_grid_backward": 0.0869, "adam": 0.0965, "advance": 0.0045, "occupancy_refresh": 0.0269,
}  # fmt: skip
REFERENCE = StepMeasurement(
    GPUS["H200"],
    Workload(_LEGO, _NETWORK, grid_levels(_NETWORK.encoding, 1), 1 << 18, 1 << 18, _PROFILE),
    {name: 1e-3 * ms for name, ms in _STAGES_MS.items()},
    0.000524,
    SET_UP_BYTES,
    "nerfleet's own: lego, base network, one H200, `python benchmarks/plan_check.py` (docs/performance.md)",
)

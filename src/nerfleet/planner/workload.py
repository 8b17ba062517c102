"""What one training step has to do, in numbers that do not depend on the machine."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from nerfleet.config import REFERENCE_BATCH, EncodingConfig, NetworkConfig, TrainConfig
from nerfleet.errors import NerfleetError

SECTOR_PARAMS = 8
"""Parameters that the optimiser reads and writes together (kernels/adam)."""
OCCUPANCY_CELLS = 128**3
REFRESH_PERIOD = 16
"""Steps between two refreshes of the occupancy grid, late in training (train/step.py)."""
MAX_DENSE_RESOLUTION = 1625
"""Finer levels always hash (docs/conventions.md)."""


@dataclass(frozen=True)
class SceneFacts:
    """Of a scene, without its pixels.

    Attributes:
        n_pixels: of the photographs that are trained on. file_bytes: of their files; 0: unknown.
    """

    name: str
    aabb_scale: int
    n_views: int
    n_pixels: int
    file_bytes: int = 0


@dataclass(frozen=True)
class Touch:
    """Distinct sectors of one level that the kept samples of a step meet, were there an entry for every vertex (train/touched.py).

    ``cells``: along an edge of the scene box; ``read``: sectors around all samples; ``read_half``: around half of them; ``updated``,
    ``updated_half``: around those with a gradient.
    """

    cells: float
    read: float
    read_half: float
    updated: float
    updated_half: float


@dataclass(frozen=True)
class Profile:
    """How a scene behaves in training: measured in a few steps, the same on every machine.

    Attributes:
        kept, evaluated, rays: a step's. n_features: of an entry, with which ``touches`` were counted.
    """

    scene: str
    aabb_scale: int
    kept: float
    evaluated: float
    rays: float
    n_features: int
    touches: tuple[Touch, ...]


@dataclass(frozen=True)
class Level:
    """One level of the hash grid. ``vertices``: of its cube, whether it has an entry for each or not; ``cells``: along an edge of the box."""

    entries: int
    vertices: float
    cells: float


def grid_levels(encoding: EncodingConfig, aabb_scale: int) -> tuple[Level, ...]:
    """Levels of the grid in a scene box of edge ``aabb_scale`` (docs/conventions.md, "Grid indices")."""
    growth = encoding.per_level_scale
    if not growth:
        growth = math.exp(math.log(2048 * aabb_scale / encoding.base_resolution) / (encoding.n_levels - 1)) if encoding.n_levels > 1 else 1.0
    levels = []
    for i in range(encoding.n_levels):
        scale = encoding.base_resolution * growth**i - 1
        resolution = math.ceil(round(scale, 3)) + 1
        dense = -(-(resolution**3) // 8) * 8
        cap = {"HashGrid": 1 << encoding.log2_hashmap_size, "DenseGrid": dense, "TiledGrid": encoding.base_resolution**3}[encoding.otype]
        if encoding.otype == "DenseGrid" and resolution > MAX_DENSE_RESOLUTION:
            raise NerfleetError("encoding.otype", f"a DenseGrid level of resolution {resolution} does not fit memory", "use HashGrid")
        levels.append(Level(min(dense, cap), float(resolution) ** 3, scale))
    return tuple(levels)


def n_mlp_params(network: NetworkConfig) -> int:
    """Weights of both networks, with their padding to multiples of 16."""
    features = -(-network.encoding.n_levels * network.encoding.n_features_per_level // 16) * 16
    density = [features, *[network.density.n_neurons] * network.density.n_hidden_layers, 16]
    rgb = [32, *[network.rgb.n_neurons] * network.rgb.n_hidden_layers, 16]
    return sum(a * b for dims in (density, rgb) for a, b in zip(dims, dims[1:]))


@dataclass(frozen=True)
class Workload:
    """One step of a configuration on a scene, all ranks together.

    Attributes:
        batch: samples with a gradient. max_rays: of one rank. touched_at: batch of the profile.
    """

    scene: SceneFacts
    network: NetworkConfig
    levels: tuple[Level, ...]
    batch: int
    max_rays: int
    profile: Profile

    @property
    def n_features(self) -> int:
        return self.network.encoding.n_features_per_level

    @property
    def n_outputs(self) -> int:
        """Features of a sample."""
        return len(self.levels) * self.n_features

    @property
    def n_params(self) -> int:
        """Of the hash grid."""
        return sum(level.entries for level in self.levels) * self.n_features

    @property
    def n_mlp(self) -> int:
        return n_mlp_params(self.network)

    @property
    def n_cells(self) -> int:
        """Of all cascades of the occupancy grid."""
        return OCCUPANCY_CELLS * (math.ceil(math.log2(self.scene.aabb_scale)) + 1)

    @property
    def densities(self) -> float:
        """That one refresh of the occupancy grid looks at."""
        return 0.5 * self.n_cells * min(self.batch / REFERENCE_BATCH, 1.0)

    @property
    def refreshes_per_step(self) -> float:
        return 1.0 / REFRESH_PERIOD

    @property
    def evaluated(self) -> float:
        return self.batch * self.profile.evaluated / self.profile.kept

    @property
    def rays(self) -> float:
        return self.batch * self.profile.rays / self.profile.kept

    def read_sectors(self, level: Level, n_samples: float) -> float:
        """Distinct sectors that so many samples read of a level, before hashing brings some of them together."""
        return self._distinct(level, n_samples, lambda touch: (touch.read, touch.read_half))

    def updated_sectors(self, level: Level, n_kept: float) -> float:
        """The same of the gradients of so many kept samples."""
        return self._distinct(level, n_kept, lambda touch: (touch.updated, touch.updated_half))

    def _distinct(self, level: Level, n: float, counts: object) -> float:
        """Interpolated over resolutions in log-log; over samples by the growth from half of them to all (as distinct words in a text)."""
        profile = self.profile
        known = sorted(profile.touches, key=lambda touch: touch.cells)
        found = []
        for touch in known:
            full, half = (max(value, 1.0) for value in counts(touch))  # type: ignore[operator]
            slope = min(max(math.log2(full / half), 0.0), 1.0)
            found.append((math.log(max(touch.cells, 1e-3)), math.log(full) + slope * math.log(max(n, 1.0) / profile.kept)))
        across = math.log(max(level.cells, 1e-3))
        sectors = math.exp(_interpolated(found, across)) * _alignment(self.n_features) / _alignment(profile.n_features)
        return min(sectors, n * 4 * _alignment(self.n_features), level.vertices * self.n_features / SECTOR_PARAMS)


def touched_share(distinct: float, n_sectors: float) -> float:
    """Of so many sectors, hit by ``distinct`` hashes at random (Poisson)."""
    return 1.0 - math.exp(-distinct / n_sectors)


def _alignment(n_features: int) -> float:
    """Sectors of a pair of neighbours along x: 1 if both lie in one of the sectors of k entries, which happens for (k - 1) of k pairs."""
    return 1.0 + 1.0 / max(SECTOR_PARAMS // n_features, 1)


def _interpolated(points: list[tuple[float, float]], x: float) -> float:
    """Piecewise linear; beyond the ends the last piece goes on (at most quadratic growth)."""
    if len(points) == 1:
        return points[0][1]
    i = next((i for i in range(1, len(points)) if x <= points[i][0]), len(points) - 1)
    (x0, y0), (x1, y1) = points[i - 1], points[i]
    slope = (y1 - y0) / max(x1 - x0, 1e-9)
    return y0 + min(max(slope, 0.0), 2.0) * (x - x0) if x0 <= x <= x1 else (y1 + min(max(slope, 0), 2) * (x - x1) if x > x1 else y0 + slope * (x - x0))


def workload(scene: SceneFacts, config: TrainConfig, profile: Profile) -> Workload:
    """One step of ``config`` on ``scene``. ``profile``: of this scene, or of another one (then :func:`adapted` first)."""
    return Workload(scene, config.network, grid_levels(config.network.encoding, scene.aabb_scale), config.batch_size, config.max_rays, profile)


EVALUATED_PER_KEPT = {"object": 1.41, "surroundings": 1.19}
"""Samples evaluated for each that is kept, on lego (an object in front of nothing, a box of edge 1) and on fox (photographs with
surroundings, edge 4), counted at steps 2,000 to 2,500 (`python benchmarks/plan_check.py`). Only their ratio is used."""
RAYS_PER_KEPT = {"object": 0.189, "surroundings": 0.0156}
"""Of the same two: most rays of an object's photographs meet nothing."""


def adapted(profile: Profile, scene: SceneFacts) -> Profile:
    """The profile of one scene as an estimate of another's: evaluated samples and rays follow the kind of scene.

    Distinct sectors at a resolution relative to the box are alike: lego's and fox's differ by a third at most (docs/log.md).
    """
    if profile.scene == scene.name:
        return profile
    kind = {True: "object", False: "surroundings"}
    here, there = kind[scene.aabb_scale == 1], kind[profile.aabb_scale == 1]
    ratio = EVALUATED_PER_KEPT[here] / EVALUATED_PER_KEPT[there]
    rays = profile.rays * RAYS_PER_KEPT[here] / RAYS_PER_KEPT[there]
    return dataclasses.replace(profile, scene=scene.name, aabb_scale=scene.aabb_scale, evaluated=max(profile.evaluated * ratio, profile.kept), rays=rays)

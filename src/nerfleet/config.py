"""Every knob with its default and its check. Plain values only: this module imports the standard library.

A configuration is made once (from flags, a preset, a JSON file or a checkpoint), is immutable and is saved in the run
folder. ``validate`` raises :class:`nerfleet.errors.NerfleetError` with one line that names the key and the remedy.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from nerfleet.errors import NerfleetError

UNIT_BATCH = 1 << 14
"""Samples in one unit of ``batch_size`` as the basic and advanced modes count it."""
REFERENCE_BATCH = 1 << 18
"""Samples in the batch that instant-ngp's schedules are written for."""
FIRST_DECAY = 500
"""Steps of ``REFERENCE_BATCH`` before which the learning rate does not decay by itself: a field that is still taking shape gains by a high one."""
MAX_AABB_SCALE = 128
GRID_TYPES = ("HashGrid", "DenseGrid", "TiledGrid")
LOSSES = ("Huber", "L2", "RelativeL2", "L1", "MAPE", "SMAPE", "LogL1")


def check(condition: bool, key: str, wrong: str, remedy: str) -> None:
    """Raise a one-line error that names ``key`` unless ``condition`` holds."""
    if not condition:
        raise NerfleetError(key, wrong, remedy)


@dataclass(frozen=True)
class EncodingConfig:
    """Multiresolution grid (Mueller et al. 2022, section 3)."""

    otype: Literal["HashGrid", "DenseGrid", "TiledGrid"] = "HashGrid"
    n_levels: int = 8
    n_features_per_level: int = 4
    log2_hashmap_size: int = 19
    base_resolution: int = 16
    per_level_scale: float = 0.0  # growth of the resolution per level; 0: derived from aabb_scale
    interpolation: Literal["Linear", "Smoothstep", "Nearest"] = "Linear"

    def validate(self) -> None:
        check(self.otype in GRID_TYPES, "encoding.otype", f"{self.otype!r} is not a grid", f"use one of {', '.join(GRID_TYPES)}")
        check(1 <= self.n_levels <= 32, "encoding.n_levels", f"{self.n_levels} is out of range", "use 1 to 32")
        check(
            self.n_features_per_level in (1, 2, 4, 8),
            "encoding.n_features_per_level",
            f"{self.n_features_per_level}",
            "use 1, 2, 4 or 8",
        )
        check(
            4 <= self.log2_hashmap_size <= 28,
            "encoding.log2_hashmap_size",
            f"{self.log2_hashmap_size} is out of range",
            "use 4 to 28",
        )
        check(
            2 <= self.base_resolution <= 4096,
            "encoding.base_resolution",
            f"{self.base_resolution} is out of range",
            "use 2 to 4096",
        )
        check(
            0 <= self.per_level_scale <= 16,
            "encoding.per_level_scale",
            f"{self.per_level_scale} is out of range",
            "use 0 (derived) or 1 to 16",
        )
        check(
            self.interpolation in ("Linear", "Smoothstep", "Nearest"),
            "encoding.interpolation",
            f"{self.interpolation!r}",
            "use Linear, Smoothstep or Nearest",
        )


@dataclass(frozen=True)
class MLPConfig:
    """Fully connected network without bias, ReLU between its layers."""

    n_neurons: int = 64
    n_hidden_layers: int = 1

    def validate(self, key: str) -> None:
        check(
            self.n_neurons in (16, 32, 64, 128), f"{key}.n_neurons", f"{self.n_neurons} is not supported", "use 16, 32, 64 or 128"
        )
        check(1 <= self.n_hidden_layers <= 8, f"{key}.n_hidden_layers", f"{self.n_hidden_layers} is out of range", "use 1 to 8")


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam with a stepwise decaying learning rate and an exponential moving average of the weights."""

    learning_rate: float = 1e-2
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-15
    l2_reg: float = 1e-6  # on the networks' weights only
    decay_start: int = -1  # in steps of REFERENCE_BATCH samples; -1: half of the run
    decay_interval: int = -1  # -1: a fifth of the run
    decay_base: float = 0.33
    ema_decay: float = 0.95

    def validate(self) -> None:
        check(0 < self.learning_rate < 10, "optimizer.learning_rate", f"{self.learning_rate}", "use a positive number below 10")
        for name in ("beta1", "beta2", "ema_decay"):
            check(
                0 <= getattr(self, name) < 1,
                f"optimizer.{name}",
                f"{getattr(self, name)} is out of range",
                "use 0 up to (not including) 1",
            )
        check(self.epsilon > 0, "optimizer.epsilon", f"{self.epsilon}", "use a positive number")
        interval, start = self.decay_interval, self.decay_start
        check(interval == -1 or interval > 0, "optimizer.decay_interval", f"{interval}", "use a positive number of steps, or -1 (a fifth of the run)")
        check(start >= -1, "optimizer.decay_start", f"{start}", "use 0 or more steps, or -1 (half of the run)")
        check(0 < self.decay_base <= 1, "optimizer.decay_base", f"{self.decay_base}", "use a number above 0, at most 1")
        check(self.l2_reg >= 0, "optimizer.l2_reg", f"{self.l2_reg}", "use 0 or more")


@dataclass(frozen=True)
class NetworkConfig:
    """The radiance field: encoding, density network, colour network; and how it is fitted (loss, optimizer)."""

    encoding: EncodingConfig = field(default_factory=EncodingConfig)
    density: MLPConfig = field(default_factory=lambda: MLPConfig(64, 1))
    rgb: MLPConfig = field(default_factory=lambda: MLPConfig(64, 2))
    loss: str = "Huber"
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)

    def validate(self) -> None:
        self.encoding.validate()
        self.density.validate("network")
        self.rgb.validate("rgb_network")
        check(self.loss in LOSSES, "loss.otype", f"{self.loss!r} is not a loss", f"use one of {', '.join(LOSSES)}")
        self.optimizer.validate()


@dataclass(frozen=True)
class TrainConfig:
    """One training run. Defaults are instant-ngp's own unless stated."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    seed: int = 1337
    steps: int = 20_000
    max_seconds: float = 0.0  # training time after which to stop in good order; 0: no limit
    batch_size: int = REFERENCE_BATCH  # samples with a gradient in a step, the target of the ray-count control
    initial_rays: int = 256  # at REFERENCE_BATCH, scaled with batch_size: none of their samples is cut off (docs/log.md)
    max_rays: int = 1 << 18
    background: Literal["random", "black", "white"] = "random"
    nerf_compatibility: bool = False  # blend in sRGB, cone angle 0, black background, as the original NeRF
    cone_angle: float = -1.0  # -1: 0 for aabb_scale 1, else 1/256
    near_distance: float = 0.3  # internal units; density nearer to a camera is pushed away (instant-ngp: 0.1; docs/log.md)
    surface_from: int = -1  # step of REFERENCE_BATCH samples from which each sample must explain its pixel alone, for meshes; -1: never
    loss_scale: float = 128.0
    max_skipped_steps: int = 100  # non-finite steps in a row after which training ends
    checkpoint_every_seconds: float = 30.0
    eval_every_steps: int = 0  # 0: only at the end
    eval_pixels: int = 0  # pixels of each held-out view that are looked at; 0: all

    def validate(self) -> None:
        self.network.validate()
        check(0 <= self.seed < 1 << 63, "seed", f"{self.seed} is out of range", "use 0 to 2^63 - 1")
        check(self.steps >= 0, "steps", f"{self.steps} is negative", "use 0 or more")
        check(self.max_seconds >= 0, "max_seconds", f"{self.max_seconds} is negative", "use 0 (no limit) or more")
        check(256 <= self.batch_size <= 1 << 24, "batch_size", f"{self.batch_size} samples are out of range", "use 256 to 2^24")
        check(256 <= self.max_rays <= 1 << 22, "max_rays", f"{self.max_rays} is out of range", "use 256 to 2^22")
        check(
            1 <= self.initial_rays <= self.max_rays,
            "initial_rays",
            f"{self.initial_rays} is out of range",
            f"use 1 to max_rays ({self.max_rays})",
        )
        check(self.background in ("random", "black", "white"), "background", f"{self.background!r}", "use random, black or white")
        check(
            self.cone_angle == -1 or 0 <= self.cone_angle <= 1,
            "cone_angle",
            f"{self.cone_angle} is out of range",
            "use -1 (automatic) or 0 to 1",
        )
        check(self.near_distance >= 0, "near_distance", f"{self.near_distance} is negative", "use 0 or more")
        for name in ("max_skipped_steps", "eval_every_steps", "eval_pixels"):
            check(getattr(self, name) >= 0, name, f"{getattr(self, name)} is negative", "use 0 or more")
        check(self.surface_from >= -1, "surface_from", f"{self.surface_from} is negative", "use -1 (never) or a step")
        check(self.loss_scale > 0, "loss_scale", f"{self.loss_scale}", "use a positive number")
        check(
            self.checkpoint_every_seconds > 0,
            "checkpoint_every_seconds",
            f"{self.checkpoint_every_seconds}",
            "use a positive number of seconds",
        )

    def scene_cone_angle(self, aabb_scale: int) -> float:
        """Cone angle for a scene box of edge ``aabb_scale``."""
        if self.nerf_compatibility:
            return 0.0
        if self.cone_angle >= 0:
            return self.cone_angle
        return default_cone_angle(aabb_scale)

    def with_schedule(self) -> TrainConfig:
        """The same with numbers for the learning rate's decay: unless the network says otherwise, x 0.33 after 50, 70 and 90 % of the run, in
        short runs not before FIRST_DECAY steps of REFERENCE_BATCH.
        """
        optimizer, n_steps = self.network.optimizer, self.steps * self.reference_step_ratio
        start = optimizer.decay_start if optimizer.decay_start >= 0 else max(round(n_steps / 2), FIRST_DECAY)
        interval = optimizer.decay_interval if optimizer.decay_interval > 0 else max(round(n_steps / 5), 1)
        optimizer = dataclasses.replace(optimizer, decay_start=start, decay_interval=interval)
        return dataclasses.replace(self, network=dataclasses.replace(self.network, optimizer=optimizer))

    @property
    def reference_step_ratio(self) -> float:
        """Steps of ``REFERENCE_BATCH`` that one step of this run counts as in schedules."""
        return self.batch_size / REFERENCE_BATCH


def default_cone_angle(aabb_scale: int) -> float:
    """Growth of the steps with distance in a scene box of edge ``aabb_scale``, unless said otherwise (instant-ngp's rule)."""
    return 0.0 if aabb_scale <= 1 else 1.0 / 256.0


def to_dict(config: Any) -> dict[str, Any]:
    """Nested plain dict of a configuration, for JSON."""
    return dataclasses.asdict(config)


def train_config_from_dict(values: dict[str, Any]) -> TrainConfig:
    """Inverse of :func:`to_dict`; unknown keys raise :class:`NerfleetError` (a checkpoint of another version)."""
    network = dict(values.get("network", {}))
    parts = {"encoding": EncodingConfig, "density": MLPConfig, "rgb": MLPConfig, "optimizer": OptimizerConfig}
    try:
        for key, kind in parts.items():
            if key in network:
                network[key] = kind(**network[key])
        config = TrainConfig(**{**values, "network": NetworkConfig(**network)})
    except TypeError as error:
        raise NerfleetError(
            "configuration", str(error).replace("__init__() ", ""), "was it written by another version of nerfleet?"
        ) from None
    config.validate()
    return config


def is_number(value: object, *, whole: bool = False) -> bool:
    """Whether a value from a file is a finite number (``whole``: without a fraction); true and false are not."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        number = float(value)
    except OverflowError:  # a whole number beyond the range of floats
        return False
    return math.isfinite(number) and (not whole or number.is_integer())


def check_aabb_scale(value: object, key: str = "aabb_scale") -> int:
    """A legal edge of the scene box: a power of two from 1 to 128."""
    if not is_number(value, whole=True):
        raise NerfleetError(key, f"{value!r} is not a whole number", "use a power of two from 1 to 128")
    assert isinstance(value, (int, float))
    number = int(value)
    if number < 1 or number > MAX_AABB_SCALE or number & (number - 1):
        nearest = min((1 << k for k in range(8)), key=lambda legal: abs(legal - number))
        raise NerfleetError(key, f"{number} is not a power of two from 1 to 128", f"the nearest legal value is {nearest}")
    return number

"""Network presets, instant-ngp-style network files, and the two modes (basic, advanced) of ``--mode``/``--preset``."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nerfleet.config import UNIT_BATCH, EncodingConfig, MLPConfig, NetworkConfig, OptimizerConfig, TrainConfig, is_number
from nerfleet.errors import NerfleetError

MAX_PARENTS = 16


NETWORKS = {name: NetworkConfig(encoding=EncodingConfig(log2_hashmap_size=size)) for name, size in (("small", 15), ("base", 19), ("big", 21))}


def load_network(name: str) -> NetworkConfig:
    """A preset name or the path of a network JSON file -> configuration."""
    if name in NETWORKS:
        return NETWORKS[name]
    if not name.endswith(".json"):
        raise NerfleetError("network", f"{name!r} is not a preset", f"use {', '.join(sorted(NETWORKS))} or a .json file")
    return network_from_json(read_network_json(Path(name)), name)


def read_network_json(path: Path) -> dict[str, Any]:
    """A network file with its chain of ``parent`` files merged in (JSON merge patch, RFC 7386)."""
    chain: list[dict[str, Any]] = []
    seen: set[Path] = set()
    current: Path | None = path
    while current is not None:
        resolved = current.resolve()
        if resolved in seen or len(seen) >= MAX_PARENTS:
            raise NerfleetError(str(path), f"its parents come back to {current.name}", "remove the circular parent")
        seen.add(resolved)
        try:
            values = json.loads(current.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise NerfleetError(str(current), error.strerror or "cannot be read", "name an existing network file") from None
        except (ValueError, RecursionError) as error:
            raise NerfleetError(str(current), f"is not JSON ({error})", "correct the file") from None
        if not isinstance(values, dict):
            raise NerfleetError(str(current), "is not a JSON object", "write a network configuration")
        chain.append(values)
        parent = values.get("parent")
        if parent is not None and (not isinstance(parent, str) or "\0" in parent):
            raise NerfleetError(str(current), "parent is not a file name", "name a file relative to this one")
        current = current.parent / parent if parent else None
    merged: dict[str, Any] = {}
    for values in reversed(chain):
        merged = _merge_patch(merged, values)
    return merged


def _merge_patch(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_patch(merged.get(key), value)
    return merged


def network_from_json(values: dict[str, Any], where: str) -> NetworkConfig:
    """instant-ngp's network JSON (``encoding``, ``network``, ``rgb_network``, ``loss``, ``optimizer``) -> configuration.

    Missing keys have instant-ngp's meaning (16 levels of 2 features, L2 loss). ``where`` names the file in errors.
    """

    def section(name: str) -> dict[str, Any]:
        found = values.get(name, {})
        if not isinstance(found, dict):
            raise NerfleetError(where, f"{name} is not an object", "see the network presets")
        return found

    def number(found: dict[str, Any], key: str, default: float, kind: type = int) -> Any:
        value = found.get(key, default)
        if not is_number(value, whole=kind is int):
            raise NerfleetError(where, f"{key} is {value!r}", f"use {'a whole number' if kind is int else 'a number'}")
        return kind(value)

    encoding = section("encoding")
    config = NetworkConfig(
        encoding=EncodingConfig(
            otype=encoding.get("otype", "HashGrid"),
            n_levels=number(encoding, "n_levels", 16),
            n_features_per_level=number(encoding, "n_features_per_level", 2),
            log2_hashmap_size=number(encoding, "log2_hashmap_size", 19),
            base_resolution=number(encoding, "base_resolution", 16),
            per_level_scale=number(encoding, "per_level_scale", 0.0, float),
            interpolation=encoding.get("interpolation", "Linear"),
        ),
        density=_mlp_from_json(section("network"), number, MLPConfig(64, 1)),
        rgb=_mlp_from_json(section("rgb_network"), number, MLPConfig(64, 2)),
        loss=section("loss").get("otype", "L2"),
        optimizer=_optimizer_from_json(section("optimizer"), number, where),
    )
    try:
        config.validate()
    except NerfleetError as error:
        raise NerfleetError(where, str(error)) from None
    return config


def _mlp_from_json(found: dict[str, Any], number: Any, default: MLPConfig) -> MLPConfig:
    return MLPConfig(number(found, "n_neurons", default.n_neurons), number(found, "n_hidden_layers", default.n_hidden_layers))


def _optimizer_from_json(found: dict[str, Any], number: Any, where: str) -> OptimizerConfig:
    """Ema > ExponentialDecay > Adam, any of the wrappers missing."""
    keys = {
        "Ema": {"ema_decay": "decay"},
        "ExponentialDecay": {"decay_start": "decay_start", "decay_interval": "decay_interval", "decay_base": "decay_base"},
        "Adam": {name: name for name in ("learning_rate", "beta1", "beta2", "epsilon", "l2_reg")},
    }
    defaults = OptimizerConfig(ema_decay=0.0, decay_base=1.0)
    config = defaults
    for _ in range(len(keys)):
        kind = found.get("otype", "Adam")
        if not isinstance(kind, str) or kind not in keys:
            raise NerfleetError(where, f"optimizer.otype {kind!r} is not supported", "use Ema, ExponentialDecay and Adam")
        names = keys[kind]
        kinds = {ours: type(getattr(defaults, ours)) for ours in names}
        values = {
            ours: number(found, theirs, getattr(config, ours), kinds[ours]) for ours, theirs in names.items() if theirs in found
        }
        config = dataclasses.replace(config, **values)
        nested = found.get("nested")
        if not isinstance(nested, dict):
            break
        found = nested
    return config


def network_to_json(config: NetworkConfig) -> dict[str, Any]:
    """Configuration -> instant-ngp's network JSON (without ``per_level_scale`` where it is derived)."""
    encoding: dict[str, Any] = {
        "otype": config.encoding.otype,
        "n_levels": config.encoding.n_levels,
        "n_features_per_level": config.encoding.n_features_per_level,
        "log2_hashmap_size": config.encoding.log2_hashmap_size,
        "base_resolution": config.encoding.base_resolution,
    }
    if config.encoding.per_level_scale > 0:
        encoding["per_level_scale"] = config.encoding.per_level_scale
    if config.encoding.interpolation != "Linear":
        encoding["interpolation"] = config.encoding.interpolation
    optimizer = config.optimizer
    adam: dict[str, Any] = {"otype": "Adam", "optimize_matrix_params": True, "optimize_non_matrix_params": True} | {
        name: getattr(optimizer, name) for name in ("learning_rate", "beta1", "beta2", "epsilon", "l2_reg")
    }
    decay = {"otype": "ExponentialDecay", "nested": adam} | {
        name: getattr(optimizer, name) for name in ("decay_start", "decay_interval", "decay_base")
    }
    return {
        "loss": {"otype": config.loss},
        "optimizer": {"otype": "Ema", "decay": optimizer.ema_decay, "nested": decay},
        "encoding": encoding,
        "network": _mlp_to_json(config.density),
        "dir_encoding": {
            "otype": "Composite",
            "nested": [{"n_dims_to_encode": 3, "otype": "SphericalHarmonics", "degree": 4}, {"otype": "Identity"}],
        },
        "rgb_network": _mlp_to_json(config.rgb),
    }


def _mlp_to_json(config: MLPConfig) -> dict[str, Any]:
    return {
        "otype": "FullyFusedMLP",
        "activation": "ReLU",
        "output_activation": "None",
        "n_neurons": config.n_neurons,
        "n_hidden_layers": config.n_hidden_layers,
    }


@dataclass(frozen=True)
class Mode:
    """The knobs that a mode sets; ``None`` leaves a knob at its default.

    Attributes:
        batch_units: samples of a step for each rank, in units of ``UNIT_BATCH``.
        screenshot_spp: samples per pixel of pictures.
        random_bg_color: a random background for every ray.
        precision: of tables and weights on the GPU.
        hashgrid_parallelism: split the levels of the hash grid over ranks.
    """

    batch_units: int
    screenshot_spp: int
    nerf_compatibility: bool
    random_bg_color: bool | None
    precision: str | None
    near_distance: float | None
    hashgrid_parallelism: bool


MODES: dict[str, Mode] = {
    "basic": Mode(
        16, 4, nerf_compatibility=True, random_bg_color=False, precision=None, near_distance=None, hashgrid_parallelism=False
    ),
    "advanced": Mode(
        32, 8, nerf_compatibility=False, random_bg_color=None, precision="fp16", near_distance=0.1, hashgrid_parallelism=True
    ),
}
"""The two modes that users of this kind of system know: basic for 2-4 GPUs, advanced for 8 and more or mixed ones."""


def apply_mode(config: TrainConfig, name: str, world_size: int = 1) -> TrainConfig:
    """A configuration with the training knobs of a mode; ``batch_size`` becomes the global batch in samples."""
    mode = MODES.get(name)
    if mode is None:
        raise NerfleetError("preset", f"{name!r} is not a mode", f"use {' or '.join(MODES)}")
    changes: dict[str, Any] = {
        "batch_size": mode.batch_units * world_size * UNIT_BATCH,
        "nerf_compatibility": mode.nerf_compatibility,
    }
    if mode.random_bg_color is not None:
        changes["background"] = "random" if mode.random_bg_color else "black"
    if mode.near_distance is not None:
        changes["near_distance"] = mode.near_distance
    return dataclasses.replace(config, **changes)

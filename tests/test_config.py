"""Knobs: defaults, checks that name the key, and the way to JSON and back."""

from __future__ import annotations

import dataclasses
import json

import pytest

from nerfleet.config import REFERENCE_BATCH, EncodingConfig, NetworkConfig, OptimizerConfig, TrainConfig, check_aabb_scale, to_dict, train_config_from_dict
from nerfleet.errors import NerfleetError
from nerfleet.kernels.march.reference import MAX_SAMPLES


def test_defaults_are_valid_and_survive_json() -> None:
    config = TrainConfig(seed=7, network=NetworkConfig(encoding=EncodingConfig(n_levels=4)))
    config.validate()
    assert train_config_from_dict(json.loads(json.dumps(to_dict(config)))) == config


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("seed", -1),
        ("steps", -1),
        ("max_seconds", -0.5),
        ("batch_size", 100),
        ("initial_rays", 0),
        ("max_rays", 1),
        ("background", "blue"),
        ("cone_angle", 2.0),
        ("near_distance", -1.0),
        ("loss_scale", 0.0),
        ("checkpoint_every_seconds", 0.0),
    ],
)
def test_bad_knob_is_named(knob: str, value: object) -> None:
    config = dataclasses.replace(TrainConfig(), **{knob: value})
    with pytest.raises(NerfleetError, match=f"^{knob}: "):
        config.validate()


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("otype", "Frequency"),
        ("n_levels", 0),
        ("n_features_per_level", 3),
        ("log2_hashmap_size", 40),
        ("base_resolution", 1),
        ("interpolation", "Cubic"),
    ],
)
def test_bad_encoding_is_named(knob: str, value: object) -> None:
    encoding = dataclasses.replace(EncodingConfig(), **{knob: value})
    with pytest.raises(NerfleetError, match=f"^encoding.{knob}: "):
        encoding.validate()


def test_learning_rate_decays_at_parts_of_the_run() -> None:
    def decay(**changes: object) -> tuple[int, int]:
        optimizer = dataclasses.replace(TrainConfig(), **changes).with_schedule().network.optimizer
        return optimizer.decay_start, optimizer.decay_interval

    assert decay() == (10_000, 4_000)
    assert decay(batch_size=REFERENCE_BATCH // 4) == (2_500, 1_000)  # counted in steps of the reference batch
    assert decay(steps=600) == (500, 120)
    own = dataclasses.replace(NetworkConfig(), optimizer=OptimizerConfig(decay_start=0, decay_interval=7))
    assert decay(network=own) == (0, 7)


def test_unknown_key_of_another_version() -> None:
    with pytest.raises(NerfleetError, match="another version"):
        train_config_from_dict({"colour_of_the_sky": 1})


@pytest.mark.parametrize("legal", [1, 2, 4, 8, 16, 32, 64, 128, 16.0])
def test_legal_aabb_scales(legal: float) -> None:
    assert check_aabb_scale(legal) == int(legal)


@pytest.mark.parametrize(("illegal", "nearest"), [(3, "2"), (0, "1"), (-1, "1"), (256, "128"), (100, "128")])
def test_illegal_aabb_scale_names_the_nearest(illegal: int, nearest: str) -> None:
    with pytest.raises(NerfleetError, match=f"nearest legal value is {nearest}$"):
        check_aabb_scale(illegal)


@pytest.mark.parametrize("strange", ["16", None, 1.5, True, float("nan"), float("inf")])
def test_strange_aabb_scale(strange: object) -> None:
    with pytest.raises(NerfleetError, match="whole number"):
        check_aabb_scale(strange)


def test_the_first_rays_fit_the_sample_buffers() -> None:
    """A ray has at most MAX_SAMPLES samples, all of them kept while nothing is opaque."""
    config = TrainConfig()
    assert config.initial_rays * MAX_SAMPLES <= config.batch_size


def test_cone_angle_follows_the_box_unless_given() -> None:
    assert TrainConfig().scene_cone_angle(1) == 0
    assert TrainConfig().scene_cone_angle(4) == 1 / 256
    assert TrainConfig(cone_angle=0.01).scene_cone_angle(1) == 0.01
    assert TrainConfig(nerf_compatibility=True).scene_cone_angle(4) == 0

"""Network presets, network files with parents, and the two modes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nerfleet.config import TrainConfig
from nerfleet.errors import NerfleetError
from nerfleet.presets import NETWORKS, apply_mode, load_network, network_from_json, network_to_json, read_network_json


@pytest.mark.parametrize(("name", "size"), [("small", 15), ("base", 19), ("big", 21)])
def test_presets(name: str, size: int) -> None:
    network = load_network(name)
    network.validate()
    assert network.encoding.log2_hashmap_size == size


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_json_round_trip(name: str) -> None:
    assert network_from_json(json.loads(json.dumps(network_to_json(NETWORKS[name]))), "test") == NETWORKS[name]


def test_missing_keys_have_instant_ngp_defaults() -> None:
    network = network_from_json({}, "test")
    assert (network.encoding.n_levels, network.encoding.n_features_per_level, network.loss) == (16, 2, "L2")
    assert network.optimizer.ema_decay == 0


def test_parents_are_merged(tmp_path: Path) -> None:
    (tmp_path / "grand.json").write_text(
        json.dumps({"loss": {"otype": "L1"}, "encoding": {"n_levels": 4, "log2_hashmap_size": 14, "base_resolution": 8}})
    )
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "parent.json").write_text(json.dumps({"parent": "../grand.json", "encoding": {"log2_hashmap_size": 15}}))
    child = tmp_path / "child.json"
    child.write_text(json.dumps({"parent": "sub/parent.json", "encoding": {"n_levels": 6, "base_resolution": None}}))
    network = load_network(str(child))
    assert network.loss == "L1"
    assert (network.encoding.n_levels, network.encoding.log2_hashmap_size, network.encoding.base_resolution) == (6, 15, 16)


def test_circular_parents_end_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"parent": "b.json"}')
    (tmp_path / "b.json").write_text('{"parent": "a.json"}')
    with pytest.raises(NerfleetError, match="circular"):
        read_network_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not JSON"),
        ("[1]", "not a JSON object"),
        ('{"encoding": 3}', "encoding is not an object"),
        ('{"parent": 3}', "not a file name"),
        ('{"encoding": {"n_levels": "many"}}', "n_levels"),
        ('{"optimizer": {"otype": "Shampoo"}}', "Shampoo"),
        ('{"loss": {"otype": "Nice"}}', "Nice"),
        ('{"network": {"n_neurons": 65}}', "n_neurons"),
        ("[" * 100_000, "is not JSON"),
        ('{"parent": "gone.json"}', "gone.json"),
        ('{"encoding": {"n_levels": 1e999}}', "n_levels"),
        ('{"loss": {"otype": ["Huber"]}}', "Huber"),
        ('{"optimizer": {"otype": {}}}', "optimizer.otype"),
        ('{"encoding": {"n_levels": ' + "9" * 400 + "}}", "n_levels"),
        ('{"parent": "\\u0000"}', "not a file name"),
    ],
)
def test_bad_network_files_end_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "network.json"
    path.write_text(text)
    with pytest.raises(NerfleetError) as caught:
        load_network(str(path))
    assert complaint in str(caught.value)
    assert "network.json" in str(caught.value) or "gone.json" in str(caught.value)


def test_unknown_preset() -> None:
    with pytest.raises(NerfleetError, match="use base, big, small or a .json file"):
        load_network("huge")


def test_modes() -> None:
    basic, advanced = apply_mode(TrainConfig(), "basic", 2), apply_mode(TrainConfig(near_distance=0.3), "advanced", 8)
    assert (basic.batch_size, basic.nerf_compatibility, basic.background) == (1 << 19, True, "black")
    assert (advanced.batch_size, advanced.nerf_compatibility, advanced.background, advanced.near_distance) == (
        1 << 22,
        False,
        "random",
        0.1,
    )
    with pytest.raises(NerfleetError, match="basic or advanced"):
        apply_mode(TrainConfig(), "expert")

"""GPUs, links and cluster files; what is wrong with them is one line that names the place."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from nerfleet.errors import NerfleetError
from nerfleet.planner import topology
from nerfleet.planner.gpus import GPUS, find_gpu
from nerfleet.planner.topology import CLUSTER_EXAMPLE, LINKS, parse_gpus, read_cluster, this_machine, uniform


@pytest.mark.parametrize(
    "name, memory, known",
    [
        ("NVIDIA GeForce RTX 4090", 0, "RTX 4090"),
        ("rtx4090", 0, "RTX 4090"),
        ("3060", 0, "RTX 3060"),
        ("NVIDIA A100-SXM4-80GB", 0, "A100 80GB"),
        ("NVIDIA A100-SXM4-40GB", 0, "A100"),
        ("A100", 85.9e9, "A100 80GB"),
        ("NVIDIA H100 80GB HBM3", 85e9, "H100"),
        ("H100 PCIe", 0, "H100 PCIe"),
        ("NVIDIA H200", 150e9, "H200"),
        ("Tesla T4", 15.8e9, "T4"),
        ("NVIDIA A10G", 0, "A10G"),
        ("Tesla V100-SXM2-16GB", 0, "V100"),
    ],
)
def test_names_that_drivers_and_people_use(name: str, memory: float, known: str) -> None:
    assert find_gpu(name, memory_bytes=memory).name == known


def test_every_gpu_has_a_source_and_plausible_figures() -> None:
    for gpu in GPUS.values():
        assert "NVIDIA" in gpu.source
        assert 8e9 <= gpu.memory_bytes <= 200e9
        assert 2e11 <= gpu.bytes_per_s <= 1e13
        assert gpu.trains == (gpu.name != "V100")
    assert {"RTX 3060", "RTX 5090", "T4", "L4", "A10", "A100", "H100", "H200", "B200", "V100"} <= set(GPUS)


def test_the_example_of_the_help_reads(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER_EXAMPLE)
    cluster = read_cluster(tmp_path / "cluster.yaml")
    assert [card.gpu.name for card in cluster.cards] == ["RTX 4090"] * 4 + ["RTX 3090"] * 2
    assert [card.host for card in cluster.cards] == [0] * 4 + [1] * 2
    assert cluster.cards[-1].speed == 0.8
    assert [host.link.name for host in cluster.hosts] == ["pcie4", "nvlink-bridge"]
    assert cluster.network is LINKS["25gbe"]
    assert len(cluster.first(3).hosts) == 1
    assert cluster.describe() == "4 x RTX 4090, 2 x RTX 3090 in 2 hosts, 25gbe"


def test_gpus_and_links_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    gpu = "{model: Mine, count: 2, memory_gb: 48, bandwidth_gb_s: 700, multiprocessors: 100, clock_ghz: 2, l2_mb: 40}"
    path.write_text(f"hosts:\n  - count: 3\n    link: {{gb_per_s: 30, latency_us: 5}}\n    gpus: [{gpu}]\nnetwork: 100gbe\n")
    cluster = read_cluster(path)
    assert len(cluster.cards) == 6
    assert cluster.cards[5].host == 2
    assert (cluster.cards[0].gpu.name, cluster.cards[0].gpu.memory_bytes) == ("Mine", 48e9)
    assert cluster.hosts[0].link.bytes_per_s == 30e9


@pytest.mark.parametrize(
    "text, line",
    [
        ("hosts:\n  - gpus:\n      - model: RTX 409\n", "line 3, model: 'RTX 409' is not in the catalogue: did you mean RTX 4090?"),
        ("hosts:\n  - gpus:\n      - model: V100\n", "line 3, model: PyTorch for CUDA 13 does not run on a V100"),
        ("hosts:\n  - gpus: [{model: T4, count: 0}]\n", "line 2, count: 0 is out of range: give 1 to 4096"),
        ("hosts:\n  - gpus: [{model: T4, memory_gb: -3}]\n", "line 2, memory_gb: -3 is out of range"),
        ("hosts:\n  - gpus: [{model: T4, speed: .nan}]\n", "line 2, speed: nan is not a number"),
        ("hosts:\n  - gpus: [{model: T4}]\n    lnik: pcie4\n", "line 3, lnik: has no meaning here: did you mean link?"),
        ("hosts:\n  - gpus: [{model: T4}]\n    link: pcie9\n", "line 3, link: 'pcie9' is not known: did you mean pcie5?"),
        ("hosts:\n  - gpus: [{model: T4}]\n    count: 2\n", "line 1, network: is missing, and there are several hosts"),
        ("hosts:\n  - gpus: [{model: T4}\nnetwork: x\n", "line 3: expected ',' or ']'"),
        ("hosts: 3\n", "line 1, hosts: is not a list"),
        ("- 1\n", "line 1: does not start with `name: value`"),
        ("", "line 1: does not start with"),
        ("hosts: []\nhosts: []\n", "line 2, hosts: stands in line 1 already"),
        ("a: &x [1]\nb: *x\n", "line 1: is used again by an alias"),
        ("a: " + "[" * 60 + "]" * 60, "is nested too deeply"),
        ("a: 2024-99-99\n", "line 1: month must be in 1..12"),
        ("a: \x00\n", "special characters are not allowed"),
        ("hosts:\n  - count: 99\n    gpus: [{model: T4, count: 99}]\nnetwork: 10gbe\n", "lists 9801 GPUs"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(NerfleetError) as error:
        read_cluster(tmp_path / "c.yaml")
    assert line in str(error.value)
    assert "c.yaml" in str(error.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(NerfleetError, match="No such file"):
        read_cluster(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff\n")
    with pytest.raises(NerfleetError, match="is not UTF-8"):
        read_cluster(tmp_path / "latin.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * (5 << 20))
    with pytest.raises(NerfleetError, match="is larger than 4 MB"):
        read_cluster(tmp_path / "large.yaml")


def test_gpus_in_words() -> None:
    cluster = parse_gpus("2 x RTX 3090, RTX 3060")
    assert [card.gpu.name for card in cluster.cards] == ["RTX 3090", "RTX 3090", "RTX 3060"]
    assert cluster.hosts[0].link.name == "pcie4"
    assert len(parse_gpus("8 x H100", per_host=4, network="infiniband-ndr").hosts) == 2
    for text, wrong in (("4 x", "'4 x' is"), ("0 x T4", "'0 x T4' is no GPU"), ("3 x ZX Spectrum", "not in the catalogue"), ("", "'' is no GPU")):
        with pytest.raises(NerfleetError, match=wrong):
            parse_gpus(text)


def test_this_machine_through_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    cards = [("NVIDIA GeForce RTX 3090", 25_769_803_776), ("NVIDIA GeForce RTX 3060", 12_884_901_888)]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda i: f"GPU-{i}abc")
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: len(cards))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda i: i)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda i: cards[i][0])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda i: SimpleNamespace(total=cards[i][1]))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetNvLinkState", lambda i, link: 0)
    cluster = this_machine()
    assert cluster is not None
    assert [card.gpu.name for card in cluster.cards] == ["RTX 3090", "RTX 3060"]
    assert cluster.cards[1].gpu.memory_bytes == 12_884_901_888
    assert cluster.hosts[0].link.name == "pcie4"

    for wanted, names in (("1", ["RTX 3060"]), ("GPU-1,0", ["RTX 3060", "RTX 3090"]), ("7", None), ("", None)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", wanted)
        cluster = this_machine()
        assert (cluster and [card.gpu.name for card in cluster.cards]) == names

    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    assert this_machine() is None


def test_usual_links_and_uniform_clusters() -> None:
    assert topology.usual_link(GPUS["H200"]).name == "nvlink4"
    assert topology.usual_link(GPUS["T4"]).name == "pcie3"
    cluster = uniform(GPUS["H200"], 64, per_host=8, network="infiniband-ndr")
    assert len(cluster.hosts) == 8
    assert cluster.cards[63].host == 7

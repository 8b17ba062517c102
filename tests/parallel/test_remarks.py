"""Remarks on machines and their clocks; flags that differ between machines."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nerfleet.cli.train import Arguments
from nerfleet.cli.train_ranks import OWN_TO_A_RANK, _same_flags
from nerfleet.errors import NerfleetError
from nerfleet.parallel import remarks
from nerfleet.parallel.launch import Machines, machines

TORCHRUN = {"TORCHELASTIC_RUN_ID": "fox-7", "TORCHELASTIC_MAX_RESTARTS": "3", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def said(environment: dict[str, str], several_hosts: bool = False, n_local_gpus: int = 0) -> str:
    return "\n".join(remarks.of_this_machine(environment, several_hosts, n_local_gpus))


def test_a_sound_machine_is_not_remarked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remarks, "_own_address", lambda: "10.0.0.7")
    monkeypatch.setattr(remarks, "shared_bytes", lambda: 1 << 34)
    assert said(TORCHRUN, several_hosts=True, n_local_gpus=8) == ""


def test_what_is_wrong_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remarks, "_own_address", lambda: "127.0.1.1")
    monkeypatch.setattr(remarks, "shared_bytes", lambda: 64 << 20)
    assert "--rdzv-id" in said(TORCHRUN | {"TORCHELASTIC_RUN_ID": "none"})
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in said(TORCHRUN | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0"})
    assert said(TORCHRUN) == ""
    assert "GLOO_SOCKET_IFNAME" in said(TORCHRUN, several_hosts=True)
    assert said(TORCHRUN | {"GLOO_SOCKET_IFNAME": "eth0"}, several_hosts=True) == ""
    assert "NVLink" in said(TORCHRUN | {"NCCL_P2P_DISABLE": "1"}, n_local_gpus=1)
    assert said(TORCHRUN | {"NCCL_P2P_DISABLE": "1"}) == ""
    assert "/dev/shm has 64 MiB" in said(TORCHRUN, n_local_gpus=2)


def test_the_size_of_shared_memory(tmp_path: Path) -> None:
    assert (remarks.shared_bytes(tmp_path) or 0) > 0
    assert remarks.shared_bytes(tmp_path / "nowhere") is None


@pytest.mark.parametrize("skew, word", [(0.0, ""), (4.0, ""), (-4.0, ""), (20.0, "20 s ahead of that of a"), (-20.0, "20 s behind that of a")])
def test_clocks_that_differ(skew: float, word: str) -> None:
    found = "\n".join(remarks.of_clocks([("a", 1000.0), ("a", 1000.1), ("b", 1000.0 + skew)]))
    assert (word in found) if word else not found


@pytest.mark.parametrize(
    "words, expected",
    [
        (("1", "", ""), None),
        (("2", "host-a:29400", "fox"), Machines(2, 2, "host-a:29400", "fox")),
        (("1:4", "10.0.0.1:29400", "fox"), Machines(1, 4, "10.0.0.1:29400", "fox")),
        (("1", "host-a:29400", "fox"), Machines(1, 1, "host-a:29400", "fox")),
    ],
)
def test_machines(words: tuple[str, str, str], expected: Machines | None) -> None:
    assert machines(*words) == expected


@pytest.mark.parametrize(
    "words, error",
    [
        (("0", "a:1", "x"), "--nnodes 0: is no number of machines"),
        (("4:2", "a:1", "x"), "--nnodes 4:2"),
        (("two", "a:1", "x"), "--nnodes two"),
        (("2", "", "x"), "--rdzv-endpoint: is not host:port"),
        (("2", "host", "x"), "--rdzv-endpoint host: is not host:port"),
        (("2", "host:99999", "x"), "is not host:port"),
        (("1:2", "host:29400", ""), "--rdzv-id: is missing"),
    ],
)
def test_machines_that_cannot_meet(words: tuple[str, str, str], error: str) -> None:
    with pytest.raises(NerfleetError, match=error):
        machines(*words)


def test_flags_that_differ_are_named() -> None:
    first = Arguments(Path("scene"), batch_size=512)

    def others(*flags: Arguments) -> Any:
        plain = [{name: str(value) for name, value in dataclasses.asdict(one).items() if name not in OWN_TO_A_RANK} for one in flags]
        return SimpleNamespace(exchange=lambda mine: [mine, *(("b", values) for values in plain)])

    _same_flags(first, others(dataclasses.replace(first, scene=Path("elsewhere"), gpus=4)))
    with pytest.raises(NerfleetError, match="rank 2 on b: has --batch-size 1024, rank 0 has 512: give every machine the same flags"):
        _same_flags(first, others(first, dataclasses.replace(first, batch_size=1024)))

"""The doctor's parts: firewalls, interfaces, topology, rounds of pairs, hosts files, the fleet's launcher, the printed table."""

from __future__ import annotations

import contextlib
import itertools
import sys
from pathlib import Path

import pytest

from nerfleet.cli.doctor import Arguments, _print, run
from nerfleet.cli.main import main
from nerfleet.doctor import collectives, worker
from nerfleet.doctor.check import Check
from nerfleet.doctor.collectives import Seat, broken, measured, stalled
from nerfleet.doctor.firewall import from_nftables, from_ufw
from nerfleet.doctor.fleet import examine_fleet
from nerfleet.doctor.gpus import topology
from nerfleet.doctor.interfaces import addresses, choose, route_to
from nerfleet.doctor.meeting import is_open
from nerfleet.doctor.names import read_hosts
from nerfleet.errors import NerfleetError

NFT = """table inet filter {
	chain input {
		type filter hook input priority filter; policy %s;
		ct state established,related accept
		tcp dport { 22, 443 } accept
		%s
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
	}
}"""
UFW = "Status: active\nDefault: deny (incoming), allow (outgoing)\n\nTo                         Action      From\n--\n22/tcp    ALLOW IN    Anywhere\n%s"


@pytest.mark.parametrize(
    "policy, rule, expected",
    [
        ("drop", "", "nftables: table inet filter, chain input: policy drop"),
        ("accept", "", ""),
        ("drop", "tcp dport 29000-30000 accept", ""),
        ("accept", "tcp dport 29500 drop", "nftables: table inet filter, chain input: tcp dport 29500 drop"),
        ("accept", "tcp dport { 80, 29500 } reject with icmpx admin-prohibited", "chain input: tcp dport { 80, 29500 } reject"),
        ("accept", "tcp dport 2950 drop", ""),
    ],
)
def test_rules_of_nftables(policy: str, rule: str, expected: str) -> None:
    found = from_nftables(NFT % (policy, rule), 29500)
    assert expected in found if expected else found == ""


@pytest.mark.parametrize(
    "rule, expected",
    [
        ("", "ufw: default deny (incoming)"),
        ("29500/tcp ALLOW IN 10.0.0.0/8", ""),
        ("29400:29600/tcp DENY IN Anywhere", "ufw: 29400:29600/tcp DENY IN Anywhere"),
    ],
)
def test_rules_of_ufw(rule: str, expected: str) -> None:
    assert from_ufw(UFW % rule, 29500) == expected


@pytest.mark.parametrize(
    "routes, variable, status, part",
    [
        ({"b": "eth0", "c": "eth0"}, "", "ok", "eth0 (MTU "),
        ({"b": "eth0", "c": "ib0"}, "", "warn", "several: eth0, ib0"),
        ({"b": "docker0"}, "", "fail", "does not leave this host"),
        ({"b": None}, "", "fail", "no route to b"),
        ({"b": "bond0"}, "bond0", "ok", "bond0"),
        ({"b": "bond0.2093"}, "bond0", "ok", "bond0.2093"),
        ({"b": "bond0.2093"}, "=bond0", "fail", "NCCL_SOCKET_IFNAME==bond0"),
        ({"b": "eth1"}, "^docker,lo", "ok", "eth1"),
        ({"b": "eth1"}, "eth0", "fail", "reached by eth1"),
    ],
)
def test_the_choice_of_an_interface(routes: dict[str, str | None], variable: str, status: str, part: str) -> None:
    check, _ = choose(routes, {"NCCL_SOCKET_IFNAME": variable} if variable else {})
    assert check.status == status
    assert part in check.found
    assert check.remedy or status == "ok"


def test_the_route_to_this_machine() -> None:
    assert route_to("127.0.0.9", addresses()) == "lo"


def test_topology_of_four_gpus() -> None:
    text = "\t\x1b[4mGPU0\tGPU1\tGPU2\tCPU Affinity\x1b[0m\nGPU0\t X \tNV18\tSYS\t0-31\nGPU1\tNV18\t X \tSYS\t0-31\nGPU2\tSYS\tSYS\t X \t32-63\n"
    check = topology(text)
    assert (check.status, check.found) == ("warn", "NV18: 0-1; SYS: 0-2 1-2")
    assert topology("").status == "skip"


def test_the_board_listens_on_one_address_only() -> None:
    store = collectives.host_store("127.0.0.2", 5.0)
    assert is_open("127.0.0.2", store.port)
    assert not is_open("127.0.0.1", store.port)
    collectives.join_store("127.0.0.2", store.port, 5.0).set("a", "1")
    assert store.get("a") == b"1"


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_rounds_hold_every_pair_once(n: int) -> None:
    found = worker.rounds(range(n))
    assert sorted(pair for pairs in found for pair in pairs) == list(itertools.combinations(range(n), 2))
    assert all(len({player for pair in pairs for player in pair}) == 2 * len(pairs) for pairs in found)


def test_stages_are_named_alike() -> None:
    assert worker.STAGES == collectives.STAGES


SEAT = Seat(["a", "b"], [2, 2], 0, "cuda")


def test_ranks_and_leaders() -> None:
    assert (SEAT.name(3), SEAT.leaders, SEAT.world_size) == ("rank 3 on host b", [0, 2], 4)


def test_who_is_behind() -> None:
    assert "rank 2 on host b: stalled in pairs" in stalled([4, 4, 3, 4], SEAT, 20).found
    assert "rank 3 on host b: did not start" in stalled([1, 1, 1, -1], SEAT, 20).found
    assert "all ranks wait in first all-reduce" in stalled([2, 2, 2, 2], SEAT, 20).found


def test_a_known_error_of_a_rank_is_explained() -> None:
    found = broken("rank 0 on host a", "NCCL WARN Call to posix_fallocate failed\nncclSystemError\n", [1, 1, 1, 0], SEAT)
    assert "rank 3 on host b" in found.found
    assert "--shm-size" in found.remedy


def test_slow_links_between_hosts_warn() -> None:
    checks = {check.name: check for check in measured(SEAT, {"all": 2e9, "0-2": 1.2e9})}
    assert checks["between hosts"].status == "warn"
    assert "a-b 9.6 Gb/s" in checks["between hosts"].found
    assert measured(SEAT, {"all": 9e9, "0-2": 8e9})[1].status == "ok"


def test_a_hosts_file(tmp_path: Path) -> None:
    file = tmp_path / "hosts.txt"
    file.write_text("# cluster\ngpu0 slots=4\n\ngpu1  # the old one\n")
    assert read_hosts(str(file)) == ["gpu0", "gpu1"]
    assert read_hosts("a,b") == ["a", "b"]


@pytest.mark.parametrize("text", ["", "a,a", "a,-oProxyCommand=x", "a;b", "missing/hosts.txt"])
def test_what_is_no_list_of_hosts(text: str) -> None:
    with pytest.raises(NerfleetError):
        read_hosts(text)


def test_the_fleet_is_started_through_the_launcher(tmp_path: Path) -> None:
    program = tmp_path / "there.py"
    program.write_text(
        "import json, sys\n"
        "host, words = sys.argv[1], sys.argv[2:]\n"
        "if host == 'b': sys.exit('Permission denied (publickey).')\n"
        "assert words[:6] == ['doctor', '--cluster', 'a.gpu,b', '--rank', '0', '--json'], words\n"
        "print(json.dumps({'checks': [{'name': 'GPUs', 'status': 'ok', 'found': 'x', 'remedy': '', 'host': 'a'}]}))\n"
    )
    checks = examine_fleet(["a.gpu", "b"], f"{sys.executable} {program} {{short}}", [], 5)
    assert checks[0] == Check("GPUs", "ok", "x", "", "a.gpu")
    assert (checks[1].status, checks[1].found, checks[1].host) == ("fail", "Permission denied (publickey).", "b")
    with pytest.raises(NerfleetError, match="--launch"):
        examine_fleet(["a"], "ssh nerfleet", [], 5)


def test_one_table_for_all_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    _print(
        [
            Check("GPUs", "ok", "4 x [A100]", "", "a"),
            Check("GPUs", "fail", "3 x", "look", "b"),
            Check("clocks", "ok", "0 ms", "", "a"),
            Check("clocks", "ok", "0", "", "b"),
        ]
    )
    out = capsys.readouterr().out
    assert "4 x [A100]" in out
    assert [line.split()[:3] for line in out.splitlines() if line.strip().startswith("clocks")] == [["clocks", "ok", "all"]]
    assert "fail GPUs on b: 3 x\n  -> look" in out


@pytest.mark.parametrize("flags", [["--port", "0"], ["--rank", "1"], ["--cluster", "a,b", "--rank", "2"], ["--gpus", "-1"]])
def test_bad_flags_are_one_line(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *flags]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_this_machine_in_words(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with contextlib.suppress(SystemExit):  # a check may fail here
        run(Arguments(device="cpu", out=tmp_path / "runs"))
    out = capsys.readouterr().out
    assert "shared memory" in out
    assert "disk speed" in out

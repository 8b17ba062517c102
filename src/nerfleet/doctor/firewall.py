"""Which rule of this host's firewall keeps peers out."""

from __future__ import annotations

import re
import subprocess


def blocking_rule(port: int) -> str:
    """The rule of ufw or nftables that keeps TCP to ``port`` out, in words; empty if none was found or may be seen."""
    ufw = _ask(["ufw", "status", "verbose"])
    if "Status: active" in ufw:
        return from_ufw(ufw, port)
    return from_nftables(_ask(["nft", "list", "ruleset"]), port)


def from_ufw(text: str, port: int) -> str:
    """From ``ufw status verbose``."""
    for line in text.splitlines():
        match = re.match(r"(\d+)(?::(\d+))?(?:/tcp)?\s+(ALLOW|DENY|REJECT)", line.strip())
        if match and int(match[1]) <= port <= int(match[2] or match[1]):
            return "" if match[3] == "ALLOW" else f"ufw: {' '.join(line.split())}"
    default = re.search(r"Default: (\w+) \(incoming\)", text)
    return f"ufw: default {default[1]} (incoming)" if default and default[1] != "allow" else ""


def from_nftables(text: str, port: int) -> str:
    """From ``nft list ruleset``: a rule that names the port, else the policy of the input hook if nothing accepts the port."""
    chain, table, hooked, policy = "", "", False, ""
    for line in (raw.strip() for raw in text.splitlines()):
        if line.startswith("table "):
            table = line.removesuffix("{").strip()
        elif line.startswith("chain "):
            chain, hooked = line.split()[1], False
        elif "hook input" in line:
            hooked = True
            if "policy drop" in line:
                policy = f"nftables: {table}, chain {chain}: policy drop"
        elif hooked and "tcp dport" in line and _names(line.split("tcp dport", 1)[1], port):
            if re.search(r"\b(drop|reject)\b", line):
                return f"nftables: {table}, chain {chain}: {line}"
            if re.search(r"\baccept\b", line):
                return ""
    return policy


def _names(condition: str, port: int) -> bool:
    """Whether ``29500``, ``29000-30000`` or ``{ 22, 29500 }`` at the beginning of a rule's rest means the port."""
    head = condition.split("}")[0] if condition.strip().startswith("{") else condition.split()[0]
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", head):
        if int(first) <= port <= int(last or first):
            return True
    return False


def opening(port: int) -> str:
    """Commands that let peers in."""
    return (
        f"open it there: ufw allow from PEERS to any port {port} proto tcp, or nft add rule inet filter input ip saddr PEERS tcp dport {port} accept; "
        "collectives need all TCP ports between the hosts"
    )


def _ask(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""

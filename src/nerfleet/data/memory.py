"""Memory of this machine, as far as this process may use it."""

from __future__ import annotations

from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60
"""What cgroups write for "no limit" is larger."""


def available_bytes() -> int | None:
    """Memory that can be had without swapping, as Linux estimates it, or less where a container's limit leaves less; None elsewhere."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    return min(free, *(limit - used for limit, used in _container_limits()), free)


def _container_limits() -> list[tuple[int, int]]:
    """(limit, used) of the control groups that this process is in, versions 1 and 2; caches that can be dropped count as free."""
    found = []
    for folder in _container_folders():
        for limit_name, used_name, cache_key in (
            ("memory.max", "memory.current", "inactive_file"), ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):  # fmt: skip
            try:
                limit, used = (int((folder / name).read_text()) for name in (limit_name, used_name))
                statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            except (OSError, ValueError):
                continue
            if limit < _UNLIMITED:
                found.append((limit, max(used - int(statistics.get(cache_key, 0)), 0)))
    return found


def _container_folders() -> list[Path]:
    folders = [_CGROUPS, _CGROUPS / "memory"]
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return folders
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            own = (_CGROUPS / controllers) / path.lstrip("/")
            folders += [folder for folder in (own, *own.parents) if folder.is_relative_to(_CGROUPS) and folder not in folders]
    return folders

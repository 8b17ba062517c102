"""What training needs of a machine beside GPUs: shared memory, limits of the system, the disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

from nerfleet.doctor.check import Check

SHARED_MEMORY = Path("/dev/shm")
INFINIBAND = Path("/sys/class/infiniband")
MIB, GIB = 1 << 20, 1 << 30
SHM_LEAST, SHM_WANTED = 256 * MIB, GIB
"""NCCL takes some 10 MB a pair of GPUs, decoded photographs on their way to a GPU the rest; a container has 64 MB by default."""
OPEN_FILES_LEAST, OPEN_FILES_WANTED = 256, 1024
FREE_LEAST, FREE_WANTED = GIB, 5 * GIB
DISK_BYTES = 64 * MIB
DISK_WANTED_BYTES_PER_S = 100e6


def machine_checks(folder: Path) -> list[Check]:
    """Checks of this machine; ``folder``: where runs are written."""
    return [shared_memory(SHARED_MEMORY), open_files(), locked_memory(), free_space(folder), disk_speed(folder)]


def shared_memory(path: Path) -> Check:
    """Size and free bytes of the file system for shared memory."""
    name = "shared memory"
    if not path.is_dir():
        return Check(name, "skip", f"no {path} on this system")
    usage = shutil.disk_usage(path)
    found = f"{path}: {size(usage.total)}, {size(usage.free)} free; needed {size(SHM_WANTED)}"
    remedy = "container: docker run --shm-size 2g; Kubernetes: mount an emptyDir with medium Memory there; else mount -o remount,size=2g /dev/shm"
    if usage.free < SHM_LEAST:
        return Check(name, "fail", found, remedy)
    return Check(name, "ok" if usage.free >= SHM_WANTED else "warn", found, "" if usage.free >= SHM_WANTED else remedy)


def open_files() -> Check:
    """The limit of open files of this process."""
    name = "open files"
    try:
        import resource
    except ImportError:
        return Check(name, "skip", "this system has no such limit")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= OPEN_FILES_WANTED:
        return Check(name, "ok", f"up to {'any number' if soft == resource.RLIM_INFINITY else soft}")
    remedy = "ulimit -n 65536, or LimitNOFILE= of the service, or --ulimit nofile=65536 of the container"
    return Check(name, "fail" if soft < OPEN_FILES_LEAST else "warn", f"up to {soft} (hard limit {hard}); needed {OPEN_FILES_WANTED}", remedy)


def locked_memory() -> Check:
    """The limit of locked memory, which InfiniBand registers its buffers in."""
    name = "locked memory"
    try:
        import resource
    except ImportError:
        return Check(name, "skip", "this system has no such limit")
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if soft == resource.RLIM_INFINITY:
        return Check(name, "ok", "unlimited")
    if not (INFINIBAND.is_dir() and any(INFINIBAND.iterdir())):
        return Check(name, "ok", f"{size(soft)}; no InfiniBand here, which would need more")
    remedy = "memlock unlimited in /etc/security/limits.conf; container: --ulimit memlock=-1; Kubernetes: on the node's container runtime"
    return Check(name, "fail", f"{size(soft)}, and there is InfiniBand, whose buffers are locked", remedy)


def free_space(folder: Path) -> Check:
    """Free bytes where runs are written."""
    place = existing(folder)
    free = shutil.disk_usage(place).free
    if free >= FREE_WANTED:
        return Check("free space", "ok", f"{place}: {size(free)}")
    return Check("free space", "fail" if free < FREE_LEAST else "warn", f"{place}: {size(free)}", "make room, or choose another --out")


def disk_speed(folder: Path) -> Check:
    """Bytes a second of writing a file and having it on the disk."""
    place = existing(folder)
    block = os.urandom(MIB)
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".nerfleet-doctor-") as file:
            begin = time.perf_counter()
            for _ in range(DISK_BYTES // MIB):
                file.write(block)
            file.flush()
            with contextlib.suppress(OSError):
                os.fsync(file.fileno())
            rate = DISK_BYTES / (time.perf_counter() - begin)
    except OSError as error:
        return Check("disk speed", "fail", f"{place}: {error.strerror or error}", "choose a folder that can be written")
    found = f"{place}: {rate / 1e6:,.0f} MB/s written"
    if rate >= DISK_WANTED_BYTES_PER_S:
        return Check("disk speed", "ok", found)
    return Check("disk speed", "warn", found, "checkpoints will be slow: use a local disk or a longer --checkpoint-every")


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    folder = folder.resolve()
    while not folder.is_dir():
        folder = folder.parent
    return folder


def size(n_bytes: int) -> str:
    """ "64 MB", "1.5 GB" (powers of 1024)."""
    return f"{n_bytes / GIB:,.1f} GB" if n_bytes >= GIB else f"{n_bytes / MIB:,.0f} MB"

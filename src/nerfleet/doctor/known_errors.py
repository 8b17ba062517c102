"""Error texts of NCCL, PyTorch, CUDA and Kubernetes: what they mean and what helps. Sources: the public threads and pages linked."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class KnownError:
    """``pattern`` is searched in one line, upper and lower case alike."""

    pattern: re.Pattern[str]
    meaning: str
    remedy: str
    link: str


def _known(pattern: str, meaning: str, remedy: str, link: str) -> KnownError:
    return KnownError(re.compile(pattern, re.IGNORECASE), meaning, remedy, link)


_NCCL = "https://github.com/NVIDIA/nccl/issues"
_TORCH = "https://github.com/pytorch/pytorch/issues"
_TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"

DRIVER_AND_GPU = (
    _known(
        r"driver version is insufficient for CUDA runtime|cudaErrorInsufficientDriver|NVIDIA driver on your system is too old",
        "the driver is older than PyTorch's CUDA needs",
        "install driver 580 or newer for CUDA 13 (525 for CUDA 12), or a PyTorch for the older CUDA",
        "https://github.com/NVIDIA/nvidia-docker/issues/400",
    ),
    _known(
        r"no kernel image is available for execution",
        "the code was not built for this GPU's compute capability",
        "use a GPU of 7.5 or newer and a PyTorch build that lists it: python -c 'import torch; print(torch.cuda.get_arch_list())'",
        "https://github.com/NVIDIA/cuml/issues/2315",
    ),
    _known(
        r"Torch not compiled with CUDA enabled",
        "this PyTorch is a build for the CPU",
        "install PyTorch from an index of CUDA builds, then pip install 'nerfleet[cuda13]'",
        "https://github.com/facebookresearch/detectron2/issues/460",
    ),
    _known(
        r"NVML: Driver/library version mismatch",
        "the driver was updated, but the old kernel module is still loaded",
        "reboot, or unload the nvidia modules; hold the driver's packages back from automatic updates",
        "https://github.com/NVIDIA/ubuntu-packaging-nvidia-driver/issues/3",
    ),
    _known(
        r"initialize NVML: Unknown Error",
        "a running container lost its GPUs, mostly after systemctl daemon-reload on the host",
        "delete and restart the container; for good: use the runtime's cgroupfs driver, or symlinks of the devices under /dev/char",
        "https://github.com/NVIDIA/nvidia-container-toolkit/issues/48",
    ),
    _known(
        r"Error 802|system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY",
        "the switches between the GPUs are not set up",
        "install and start nvidia-fabricmanager of exactly the driver's version",
        f"{_TORCH}/35710",
    ),
    _known(
        r"fallen off the bus|Xid[^\n]{0,40}\b79\b",
        "the GPU no longer answers on PCIe: power, heat, seating or a defect",
        "reboot; check power cables and temperature, limit clocks with nvidia-smi -lgc; replace it if it comes back",
        "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/507",
    ),
    _known(
        r"uncorrectable ECC error|ECC_UNCORRECTABLE",
        "a memory cell of the GPU is broken",
        "reset the GPU or reboot; replace it if it comes back",
        "https://github.com/vllm-project/vllm/issues/5222",
    ),
    _known(
        r"CUDA unknown error - this may be due to an incorrectly set up environment",
        "the driver cannot be initialised: its device files, or the machine slept",
        "unset CUDA_VISIBLE_DEVICES; reload nvidia_uvm (rmmod nvidia_uvm, modprobe nvidia_uvm) or reboot",
        f"{_TORCH}/49327",
    ),
    _known(
        r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|CUDA error: out of memory",
        "the GPU's memory is full",
        "smaller --batch-size or log2_hashmap_size, --downscale, more GPUs with --parallel grid; see nvidia-smi for others who use it",
        f"{_TORCH}/173049",
    ),
    _known(
        r"illegal memory access",
        "a kernel read or wrote outside its memory",
        "run again with CUDA_LAUNCH_BLOCKING=1, which names the kernel; run nerfleet doctor for the GPU's health; report it",
        f"{_TORCH}/42077",
    ),
    _known(
        r"failed to (open|load) (libnvrtc-?)?builtins|libnvrtc[^\s:]*: cannot open shared object",
        "NVRTC, which compiles the kernels, is incomplete or of another CUDA version",
        "pip install --force-reinstall nvidia-cuda-nvrtc of PyTorch's CUDA version; remove other CUDA folders from LD_LIBRARY_PATH",
        "https://github.com/pytorch/TensorRT/issues/3893",
    ),
)

NCCL = (
    _known(
        r"posix_fallocate failed|creating shared memory segment|shm_open failed|/dev/shm.*No space left|No space left.*/dev/shm",
        "/dev/shm is full, too small or not writable; a container has 64 MB by default",
        "docker run --shm-size 2g; Kubernetes: emptyDir with medium Memory at /dev/shm; remove stale /dev/shm/nccl-* files",
        f"{_NCCL}/290",
    ),
    _known(
        r"no socket interface found|neither AF_INET\(2\) nor AF_INET6|NCCL_SOCKET_IFNAME interface found",
        "NCCL found no network interface of the name in NCCL_SOCKET_IFNAME, or none at all",
        "unset NCCL_SOCKET_IFNAME, or name the one that reaches the peers (nerfleet doctor --cluster names it)",
        f"{_NCCL}/1837",
    ),
    _known(
        r"Duplicate GPU detected",
        "two ranks use the same GPU",
        "one rank a GPU: --nproc-per-node at most the number of GPUs; no fixed CUDA_VISIBLE_DEVICES for all ranks",
        f"{_NCCL}/1241",
    ),
    _known(
        r"ibv_(reg_mr|create_cq|create_qp)\S* (with error |)?.*(Cannot allocate memory|failed)|ibv_reg_mr",
        "InfiniBand may not lock enough memory",
        "ulimit -l unlimited in the very process (limits.conf and a new login; --ulimit memlock=-1 for containers)",
        "https://github.com/NVIDIA/nccl-tests/issues/206",
    ),
    _known(
        r"Got completion .*(error|status=) ?(12|5)\b|vendor err (129|249)|transport retry counter",
        "InfiniBand or RoCE lost the connection between two hosts",
        "ibstat on both, same GID index (NCCL_IB_GID_INDEX), same OFED and MTU; ib_write_bw between them; to go on: NCCL_IB_DISABLE=1",
        f"{_NCCL}/1664",
    ),
    _known(
        r"Watchdog caught collective operation timeout|collective operation timeout",
        "a rank never came to a collective: it crashed, hangs or does something else",
        "look for the first error of any rank, before this one; nerfleet names the rank; NCCL_DEBUG=INFO; nerfleet doctor --cluster hosts.txt",
        f"{_TORCH}/118369",
    ),
    _known(
        r"ncclRemoteError|remote process exited or there was a network error|Connection closed by remote peer",
        "another rank died or the network failed: the cause is in the other rank's log",
        "read the first error of all ranks; then nerfleet doctor --cluster hosts.txt",
        f"{_NCCL}/2076",
    ),
    _known(
        r"Mismatched collective detected|collective mismatch error|receiving \d+ bytes instead of",
        "ranks run different programs, versions or settings",
        "same nerfleet, PyTorch and NCCL and the same NCCL_* variables everywhere: nerfleet doctor --cluster hosts.txt compares them",
        f"{_NCCL}/1328",
    ),
    _known(
        r"socketStartConnect|Call to connect (returned|failed)|NCCL.*(Connection refused|No route to host|Network is unreachable)",
        "NCCL cannot reach another host: wrong interface (docker0, veth, link-local) or a firewall",
        "NCCL_SOCKET_IFNAME=<interface that reaches the peers>; open all TCP ports between the hosts of the job",
        f"{_TORCH}/68893",
    ),
    _known(
        r"peer access is not supported|P2P.*(hang|deadlock)|ACSCtl",
        "GPUs cannot reach each other's memory: IOMMU or ACS of the PCIe bridges",
        "disable ACS in the BIOS or iommu=pt on the kernel's command line; to go on: NCCL_P2P_DISABLE=1 (slower)",
        f"{_NCCL}/631",
    ),
    _known(
        r"unhandled system error|ncclSystemError",
        "a system call of NCCL failed: mostly shared memory, sockets or locked memory",
        "NCCL_DEBUG=WARN names the call; check /dev/shm and the limits with nerfleet doctor",
        f"{_NCCL}/328",
    ),
    _known(
        r"unhandled cuda error|ncclUnhandledCudaError",
        "a CUDA call inside NCCL failed",
        "NCCL_DEBUG=INFO names it; the same driver on all hosts; nerfleet doctor for the GPUs' health",
        _TROUBLE,
    ),
)

PYTORCH = (
    _known(
        r"EADDRINUSE|Address already in use",
        "another program, often an earlier run, listens on that port",
        "ss -ltnp names it; choose another port, or leave the choice to nerfleet train --gpus N",
        f"{_TORCH}/85604",
    ),
    _known(
        r"connection to the C10d store has failed|RendezvousConnectionError",
        "the host of the rendezvous is gone, or not reached under that name and port",
        "start it first, use its host name (the same on all), open the port: nerfleet doctor --cluster hosts.txt",
        f"{_TORCH}/67581",
    ),
    _known(
        r"RendezvousTimeoutError|RendezvousClosedError",
        "too few hosts came in time, or the run had ended when this one joined",
        "start all within the join timeout; the same --rdzv-id on all, a new one for every run",
        f"{_TORCH}/147064",
    ),
    _known(
        r"connectFullMesh failed|Gloo.*Connection refused.*127\.0\.[01]\.1|remote=\[?127\.0\.",
        "gloo took the loopback address, because the host's own name stands for it in /etc/hosts",
        "let the host name stand for the real address, or GLOO_SOCKET_IFNAME=<interface>",
        "https://github.com/aws-samples/aws-do-eks/pull/69",
    ),
    _known(
        r"Name or service not known|gai error|nodename nor servname|Temporary failure in name resolution|host not found",
        "a host name has no address (in Kubernetes: not yet)",
        "check the name, /etc/hosts, DNS; Kubernetes: headless Service with publishNotReadyAddresses, and its name as subdomain of the pods",
        f"{_TORCH}/73682",
    ),
    _known(
        r"client socket has timed out|connect\(\) timed out|socketTimedOut",
        "packets to that host and port are lost: mostly a firewall",
        "ufw allow from <peers> to any port <port> proto tcp, or the like for nftables and the cloud's security group",
        f"{_TORCH}/128970",
    ),
    _known(
        r"exitcode *: *-9|exit ?code.*-9\b|signal 9 \(SIGKILL\)|OOMKilled|ended by SIGKILL|exit code 137",
        "the system killed a process, mostly because memory was short",
        "dmesg | grep -i oom; more memory (Kubernetes: resources.limits.memory), fewer ranks, --downscale",
        "https://github.com/OpenBMB/MiniCPM-V/issues/770",
    ),
    _known(
        r"Bus error|insufficient shared memory",
        "a process wrote into shared memory that has no room",
        "enlarge /dev/shm: --shm-size 2g, or emptyDir with medium Memory",
        f"{_TORCH}/5040",
    ),
    _known(
        r"items of ancdata|Too many open files",
        "the limit of open files is reached",
        "ulimit -n 65536",
        f"{_TORCH}/973",
    ),
)

CONTAINERS = (
    _known(
        r"could not select device driver",
        "Docker has no runtime for NVIDIA GPUs",
        "install the NVIDIA container toolkit, nvidia-ctk runtime configure, restart Docker",
        "https://github.com/NVIDIA/nvidia-docker/issues/1034",
    ),
    _known(
        r"Insufficient nvidia\.com/gpu",
        "no node has so many free GPUs, or the device plugin does not run",
        "kubectl describe node | grep nvidia.com/gpu; install the device plugin; ask for fewer GPUs a pod",
        "https://github.com/NVIDIA/k8s-device-plugin/issues/159",
    ),
    _known(
        r"Multi-Attach error|exclusively attached to one node",
        "a ReadWriteOnce volume is wanted by pods of several nodes",
        "use a ReadWriteMany storage class (NFS, CephFS, EFS, Filestore) for the dataset and the runs",
        "https://github.com/longhorn/longhorn/issues/1985",
    ),
)

KNOWN_ERRORS: tuple[KnownError, ...] = DRIVER_AND_GPU + NCCL + PYTORCH + CONTAINERS
"""Particular texts come before general ones of the same family."""

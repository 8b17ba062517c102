"""Runs the CUDA kernels on the CPU: the same ``.cu`` files through g++, their threads as fibers (cuda_on_cpu/).

Slow, exact and without a GPU: what it proves is the kernels' logic, not their speed and not the memory model.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

from nerfleet.kernels.rtc import launch
from nerfleet.kernels.rtc.compile import Defines, generated_header
from nerfleet.kernels.rtc.source import INCLUDE_FOLDER, kernels, read

STAND_INS = Path(__file__).with_name("cuda_on_cpu")
COMPILER = shutil.which("g++")
_SHARED = "extern __shared__ __align__(16) unsigned char shared_memory[];"
_KERNEL = re.compile(r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\(([^)]*)\)')


def _wrapper(name: str, parameters: str) -> str:
    types = [re.sub(r"\w+\s*$", "", parameter).strip() for parameter in parameters.split(",")]
    arguments = ", ".join(f"*reinterpret_cast<std::remove_const_t<{kind}>*>(arguments[{i}])" for i, kind in enumerate(types))
    call = f"run_grid(x, y, z, threads, backwards, [=] {{ {name}({arguments}); }});"
    return f'extern "C" void launch_{name}(int x, int y, int z, int threads, bool backwards, void** arguments) {{ {call} }}\n'


@functools.cache
def build(path: Path, defines: Defines) -> ctypes.CDLL:
    """The shared library of a specialised ``.cu`` file."""
    text = read(path).replace(_SHARED, "static unsigned char* const shared_memory = block_shared_memory;")
    source = "#include <cuda_fp16.h>\n" + generated_header(defines) + text
    source += "#include <type_traits>\n" + "".join(_wrapper(name, parameters) for name, parameters in _KERNEL.findall(read(path)))
    folder = Path(tempfile.gettempdir()) / "nerfleet-cuda-on-cpu"
    parts = [source, *(read(f) for f in (*sorted(INCLUDE_FOLDER.glob("*.cuh")), *sorted(STAND_INS.iterdir())))]
    library = folder / f"{path.stem}-{hashlib.sha256(''.join(parts).encode()).hexdigest()[:16]}.so"
    if not library.exists():
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as build_folder:
            headers = Path(build_folder)
            for header in (*INCLUDE_FOLDER.glob("*.cuh"), *STAND_INS.iterdir()):
                shutil.copy(header, headers / header.name)
            (headers / "kernel.cc").write_text(source)
            flags = ["-std=c++17", "-O1", "-w", "-fno-strict-aliasing", "-fPIC", "-shared", "-Wl,-Bsymbolic"]
            command = [str(COMPILER), *flags, f"-I{headers}", str(headers / "kernel.cc"), "-o", str(headers / "kernel.so")]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode:
                raise RuntimeError(f"{path.name}: {result.stderr[:4000]}")
            (headers / "kernel.so").replace(library)
    return ctypes.CDLL(str(library))


class Emulator:
    """Stands in for a GPU: ``with Emulator(monkeypatch)``-style patching of :mod:`nerfleet.kernels.rtc.launch`.

    ``backwards`` runs the lanes of a warp from the last to the first between two collective operations.
    """

    def __init__(self, monkeypatch: Any, architecture: str = "sm_90", n_multiprocessors: int = 1, backwards: bool = False) -> None:
        self.backwards = backwards

        def run(program: launch.Program, kernel: str, grid: tuple[int, ...], block: int, *arguments: launch.Argument, **_: Any) -> None:
            self.launch(program, kernel, grid, block, *arguments)

        monkeypatch.setattr(launch.Program, "launch", run)
        monkeypatch.setattr(launch, "architecture", lambda device: architecture)
        monkeypatch.setattr(launch, "n_multiprocessors", lambda device: n_multiprocessors)

    def launch(self, program: launch.Program, kernel: str, grid: tuple[int, ...], block: int, *arguments: launch.Argument) -> None:
        if 0 in grid:
            return
        values = launch.pack(kernel, kernels(program.path)[kernel], arguments)
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        function = getattr(build(program.path, program.defines), f"launch_{kernel}")
        function(*(*grid, 1, 1)[:3], block, ctypes.c_bool(self.backwards), pointers)


def marked(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor full of a value that no kernel writes."""
    return torch.full(shape, -12345, dtype=dtype)

"""NVRTC through cuda.core: CUDA C++ to machine code (cubin) for a named architecture; no GPU and no driver needed."""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass
from pathlib import Path

from nerfleet.errors import NerfleetError
from nerfleet.kernels.rtc.source import INCLUDE_FOLDER, read

Defines = tuple[tuple[str, int], ...]
"""Macros of a specialised program, in a fixed order."""
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
"""Architectures that every kernel is compiled for in the tests; others from sm_75 on work too."""
STANDARD = "c++17"
_INSTALL = "install the extra that matches torch's CUDA: pip install 'nerfleet[cuda12]' or 'nerfleet[cuda13]'"


@dataclass(frozen=True)
class Compiled:
    cubin: bytes
    log: str  # what the assembler says about registers, shared memory and spills


def generated_header(defines: Defines) -> str:
    """The lines that specialise a program."""
    return "".join(f"#define {name} {value}\n" for name, value in defines)


@functools.cache
def nvrtc_version() -> tuple[int, int]:
    """Raises: NerfleetError: no NVRTC."""
    try:
        from cuda.bindings import nvrtc

        error, major, minor = nvrtc.nvrtcVersion()
    except Exception as exception:  # a missing library is reported by several types
        raise NerfleetError("NVRTC", f"not found ({exception})", _INSTALL) from exception
    if int(error) != 0:
        raise NerfleetError("NVRTC", f"error {int(error)}", _INSTALL)
    return major, minor


@functools.cache
def runtime_headers() -> str:
    """Folder of CUDA's own headers (cuda_fp16.h). Raises: NerfleetError: none found."""
    from cuda.pathfinder import find_nvidia_header_directory

    folder = find_nvidia_header_directory("cudart")
    if folder is None or not (Path(folder) / "cuda_fp16.h").is_file():
        raise NerfleetError("CUDA headers", "cuda_fp16.h not found", _INSTALL)
    return folder


def compile_cubin(path: Path, defines: Defines, architecture: str) -> Compiled:
    """Compile one ``.cu`` file.

    Args:
        defines: macros, the generated header in front of the source.
        architecture: "sm_90" and the like.

    Raises:
        NerfleetError: no compiler, or the source does not compile.
    """
    nvrtc_version()
    from cuda.core import Program, ProgramOptions

    options = ProgramOptions(
        name=path.name, arch=architecture, std=STANDARD, include_path=[str(INCLUDE_FOLDER), runtime_headers()], ptxas_options="-v", no_cache=True
    )
    log = io.StringIO()
    try:
        program = Program(generated_header(defines) + read(path), "c++", options)
        cubin = program.compile("cubin", logs=log).code
    except Exception as exception:
        raise NerfleetError(path.name, f"does not compile for {architecture}", str(exception)) from exception
    return Compiled(bytes(cubin), log.getvalue())

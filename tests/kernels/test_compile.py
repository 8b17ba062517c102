"""Every kernel compiles to machine code for every architecture, without a GPU; the hot ones fit their registers on sm_90."""

from __future__ import annotations

import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from nerfleet.errors import NerfleetError
from nerfleet.kernels.field.cuda import Sizes, field_defines
from nerfleet.kernels.field.spec import FieldSpec
from nerfleet.kernels.hash_grid.spec import GridSpec, derived_growth
from nerfleet.kernels.march.cuda import march_defines
from nerfleet.kernels.rtc.compile import ARCHITECTURES, Compiled, Defines, compile_cubin
from nerfleet.kernels.rtc.source import INCLUDE_FOLDER, headers, kernels

SOURCES = sorted(INCLUDE_FOLDER.parent.glob("*/*.cu"))
HOT = {"trace_rays": 160, "render_rays": 160, "field_backward": 64, "hash_grid_backward": 0, "adam_fixed": 16, "field_density": 0, "trace_candidates": 0}
"""Kernels where the time goes, and the bytes that a thread may spill (kept for rays, outside the inner loops)."""


def defines(architecture: str, aabb_scale: int, hidden: int = 64, n_levels: int = 8, n_features: int = 4) -> Defines:
    """All macros that any kernel asks for; a kernel that does not know one ignores it."""
    spec = FieldSpec(GridSpec(n_levels, n_features, 19, 16, derived_growth(n_levels, 16, aabb_scale)))
    sizes = Sizes(n_levels * n_features, hidden)
    grid = field_defines(n_features, spec.grid.levels, 0, sizes)
    return (*grid, *march_defines(aabb_scale.bit_length(), 1 / 256 if aabb_scale > 1 else 0.0), ("NF_BACKWARD_WARPS", sizes.backward_warps(architecture)))


def compile_one(job: tuple[Path, Defines, str]) -> Compiled | str:
    try:
        return compile_cubin(*job)
    except NerfleetError as error:
        return str(error)


def compile_all(jobs: list[tuple[Path, Defines, str]]) -> list[Compiled | str]:
    """Two processes: NVRTC compiles one program at a time in each."""
    with ProcessPoolExecutor(2) as pool:
        return list(pool.map(compile_one, jobs))


@pytest.fixture(scope="module")
def compiled() -> dict[tuple[str, str], Compiled | str]:
    jobs = [(path, defines(architecture, 1), architecture) for architecture in ARCHITECTURES for path in SOURCES]
    return {(job[0].name, job[2]): result for job, result in zip(jobs, compile_all(jobs))}


def test_no_kernel_is_missed() -> None:
    expected = {"trace.cu", "render.cu", "field.cu", "field_backward.cu", "hash_grid.cu", "adam.cu", "order.cu", "rays.cu", "occupancy.cu"}
    assert expected <= {path.name for path in SOURCES}
    for path in SOURCES:
        assert len(kernels(path)) == path.read_text().count("__global__"), path.name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kernel_on_every_architecture(architecture: str, compiled: dict[tuple[str, str], Compiled | str]) -> None:
    for path in SOURCES:
        result = compiled[path.name, architecture]
        assert isinstance(result, Compiled), result
        assert result.cubin.startswith(b"\x7fELF")
        for name in kernels(path):
            assert name.encode() in result.cubin


def test_registers_on_sm_90(compiled: dict[tuple[str, str], Compiled | str]) -> None:
    spilled = {}
    for path in SOURCES:
        result = compiled[path.name, "sm_90"]
        assert isinstance(result, Compiled), result
        pattern = r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores"
        spilled |= {name: int(size) for name, size in re.findall(pattern, result.log, re.DOTALL)}
    assert HOT.keys() <= spilled.keys()
    assert {name: spilled[name] for name in HOT if spilled[name] > HOT[name]} == {}


@pytest.mark.slow
def test_other_fields() -> None:
    """Other widths, features and boxes, on the architecture that they are tuned for and the oldest."""
    variants = [(4, 64, 8, 4), (16, 64, 16, 2), (1, 32, 5, 2), (1, 32, 3, 8), (1, 64, 4, 1)]
    jobs = [(path, defines(a, *variant), a) for a in ("sm_75", "sm_90") for variant in variants for path in SOURCES if "NF_LEVELS" in _text(path)]
    jobs += [(path, defines("sm_90", 1, 128), "sm_90") for path in SOURCES if "NF_LEVELS" in _text(path)]
    assert len(jobs) > 20
    assert [result for result in compile_all(jobs) if isinstance(result, str)] == []


def _text(path: Path) -> str:
    return path.read_text() + "".join(header.read_text() for header in headers(path))


def test_an_error_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.cu"
    path.write_text('extern "C" __global__ void k(float* x) { x[0] = nothing; }')
    with pytest.raises(NerfleetError, match=r"broken.cu: does not compile for sm_90: .*nothing"):
        compile_cubin(path, (), "sm_90")

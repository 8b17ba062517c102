"""Signatures and the packing of arguments; on a GPU also launches on streams."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch

from nerfleet.errors import NerfleetError
from nerfleet.kernels.rtc import launch
from nerfleet.kernels.rtc.source import Parameter, kernels

SOURCE = """
extern "C" __global__ void __launch_bounds__(128, 2)
scale(const float* __restrict__ x, float* out, int n, float factor) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = factor * x[i];
}
struct Three { float v[3]; };
extern "C" __global__ void add(float* out, const Three three, long long n, unsigned m) { out[threadIdx.x] += three.v[threadIdx.x] + n + m; }
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "example.cu"
    file.write_text(SOURCE)
    return file


def test_signatures(path: Path) -> None:
    found = kernels(path)
    assert [p.type for p in found["scale"]] == ["*", "*", "int", "float"]
    assert found["add"] == (Parameter("*", "out"), Parameter("Three", "three"), Parameter("long long", "n"), Parameter("unsigned", "m"))


def test_packing(path: Path) -> None:
    x = torch.zeros(4)
    values = launch.pack("scale", kernels(path)["scale"], (x, None, 3, 2))
    assert [type(v) for v in values] == [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_float]
    assert [v.value for v in values] == [x.data_ptr(), None, 3, 2.0]
    assert launch.pack("add", kernels(path)["add"], (x, b"\1" * 12, 1 << 40, 7))[1].raw == b"\1" * 12


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ((torch.zeros(2), None, 3), "takes 4 arguments, got 3: pass x, out, n, factor"),
        ((1, None, 3, 2.0), "scale x: is a \\*: cannot pass int"),
        ((torch.zeros(2), None, torch.zeros(1), 2.0), "scale n: is a int: cannot pass Tensor"),
        ((torch.zeros(4, 4).t(), None, 3, 2.0), "scale x: not contiguous"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[launch.Argument, ...], wrong: str, path: Path) -> None:
    with pytest.raises(NerfleetError, match=wrong):
        launch.pack("scale", kernels(path)["scale"], arguments)


@pytest.mark.gpu
def test_launch_on_the_current_stream(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NERFLEET_CACHE", str(tmp_path / "cubins"))
    program = launch.Program(path)
    x, out = torch.rand(1000, device="cuda"), torch.full((1000,), -1.0, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        program.launch("scale", (8,), 128, x, out, 990, 3.0, device=x.device)
    stream.synchronize()
    torch.testing.assert_close(out[:990], 3 * x[:990])
    assert (out[990:] == -1).all()
    program.launch("scale", (0,), 128, x, out, 0, 3.0, device=x.device)
    with pytest.raises(NerfleetError, match="has no kernel nothing: use one of scale, add"):
        program.launch("nothing", (1,), 1, device=x.device)


@pytest.mark.gpu
def test_importing_the_kernels_starts_no_cuda() -> None:
    import os
    import subprocess
    import sys

    program = "import sys, torch, nerfleet.train.trainer; assert not torch.cuda.is_initialized(); assert 'cuda.bindings' not in sys.modules"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode == 0

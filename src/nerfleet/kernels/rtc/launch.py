"""Programs ready to launch: loaded once a process, arguments packed by the kernel's own signature, on torch's current stream."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerfleet.errors import NerfleetError
from nerfleet.kernels.rtc import cache
from nerfleet.kernels.rtc.compile import Defines, compile_cubin, nvrtc_version
from nerfleet.kernels.rtc.source import Parameter, kernels

Argument = Tensor | int | float | bytes | None
"""Tensor or None for a pointer, number for a scalar, bytes for a structure."""
_SCALARS: dict[str, Any] = {
    "int": ctypes.c_int32,
    "unsigned": ctypes.c_uint32,
    "long long": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}
_DEFAULT_SHARED_BYTES = 48 * 1024
OLDEST = (7, 5)


@functools.cache
def architecture(device: torch.device) -> str:
    """"sm_90" of a device. Raises: NerfleetError: older than sm_75."""
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST:
        raise NerfleetError(torch.cuda.get_device_name(device), f"compute capability {capability[0]}.{capability[1]}", "7.5 or newer is needed")
    return f"sm_{capability[0]}{capability[1]}"


@functools.cache
def n_multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
def machine_code(path: Path, defines: Defines, target: str) -> bytes:
    """The cubin, from the disk if it is there."""
    digest = cache.key(path, defines, target, nvrtc_version())
    return cache.cached(f"{path.stem}-{target}", digest, lambda: compile_cubin(path, defines, target).cubin)


@functools.cache
def _library(path: Path, defines: Defines, target: str) -> Any:
    from cuda.core import ObjectCode

    return ObjectCode.from_cubin(machine_code(path, defines, target), name=path.name)


@dataclass(frozen=True)
class Program:
    """A specialised ``.cu`` file."""

    path: Path
    defines: Defines = ()

    def launch(self, kernel: str, grid: tuple[int, ...], block: int, *arguments: Argument, device: torch.device, shared_bytes: int = 0) -> None:
        """Launch on the current stream of ``device``; an empty grid does nothing.

        Raises:
            NerfleetError: arguments do not fit the kernel's signature, or CUDA refuses.
        """
        if 0 in grid:
            return
        index = torch.cuda.current_device() if device.index is None else device.index
        with torch.cuda.device(index):
            function = _function(self.path, self.defines, kernel, index, shared_bytes)
            values = pack(kernel, kernels(self.path)[kernel], arguments)
            pointers = (ctypes.c_void_p * max(len(values), 1))(*(ctypes.addressof(value) for value in values))
            x, y, z = (*grid, 1, 1)[:3]
            from cuda.bindings import driver

            stream = torch.cuda.current_stream(index).cuda_stream
            (error,) = driver.cuLaunchKernel(function, x, y, z, block, 1, 1, shared_bytes, stream, ctypes.addressof(pointers), 0)
        _check(error, f"launch of {kernel}")


@functools.cache
def _function(path: Path, defines: Defines, kernel: str, device_index: int, shared_bytes: int) -> Any:
    """Handle of a kernel, allowed to use that much dynamic shared memory on the device."""
    from cuda.bindings import driver

    if kernel not in kernels(path):
        raise NerfleetError(path.name, f"has no kernel {kernel}", f"use one of {', '.join(kernels(path))}")
    handle = _library(path, defines, architecture(torch.device("cuda", device_index))).get_kernel(kernel).handle
    if shared_bytes > _DEFAULT_SHARED_BYTES:
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (error,) = driver.cuKernelSetAttribute(attribute, shared_bytes, driver.CUkernel(int(handle)), driver.CUdevice(device_index))
        _check(error, f"{shared_bytes} bytes of shared memory for {kernel}")
    return driver.CUfunction(int(handle))


def pack(kernel: str, parameters: tuple[Parameter, ...], arguments: tuple[Argument, ...]) -> list[Any]:
    """ctypes values, one a parameter. Raises: NerfleetError: number or kind of arguments does not fit."""
    if len(parameters) != len(arguments):
        raise NerfleetError(kernel, f"takes {len(parameters)} arguments, got {len(arguments)}", "pass " + ", ".join(p.name for p in parameters))
    return [_pack_one(kernel, parameter, argument) for parameter, argument in zip(parameters, arguments)]


def _pack_one(kernel: str, parameter: Parameter, argument: Argument) -> Any:
    if parameter.type == "*" and (argument is None or isinstance(argument, Tensor)):
        if argument is not None and not argument.is_contiguous():
            raise NerfleetError(f"{kernel} {parameter.name}", "not contiguous", "pass a contiguous tensor")
        return ctypes.c_void_p(None if argument is None else argument.data_ptr())
    if parameter.type in _SCALARS and isinstance(argument, int | float):
        return _SCALARS[parameter.type](argument)
    if parameter.type not in _SCALARS and isinstance(argument, bytes):
        return ctypes.create_string_buffer(argument, len(argument))
    raise NerfleetError(f"{kernel} {parameter.name}", f"is a {parameter.type}", f"cannot pass {type(argument).__name__}")


def _check(error: Any, what: str) -> None:
    if int(error) == 0:
        return
    from cuda.bindings import driver

    _, name = driver.cuGetErrorName(error)
    raise NerfleetError(what, (name or b"unknown error").decode(), "run with CUDA_LAUNCH_BLOCKING=1 to find the launch that failed")

"""The processor's prefetch instruction for numba: ask for a cache line early, without waiting for it."""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_BYTE_POINTER, _INT = ir.IntType(8).as_pointer(), ir.IntType(32)
_ALL_CACHES, _DATA = 3, 1


def _emit(for_writing: int, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """LLVM's ``llvm.prefetch(address, for writing, locality, data)``."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    address = builder.bitcast(builder.gep(array.data, [arguments[1]]), _BYTE_POINTER)
    kind = ir.FunctionType(ir.VoidType(), [_BYTE_POINTER, _INT, _INT, _INT])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [address, _INT(for_writing), _INT(_ALL_CACHES), _INT(_DATA)])
    return context.get_dummy_value()


@intrinsic
def prefetch_read(_: Any, array: Any, index: Any) -> Any:
    """``array[index]`` of a contiguous 1-D array will be read; the index is not checked and may lie outside."""
    return types.void(array, index), functools.partial(_emit, 0)


@intrinsic
def prefetch_write(_: Any, array: Any, index: Any) -> Any:
    """``array[index]`` of a contiguous 1-D array will be changed; the index is not checked and may lie outside."""
    return types.void(array, index), functools.partial(_emit, 1)

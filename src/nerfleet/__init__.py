"""Trains instant-ngp radiance fields: photographs in; pictures, video and models out.

The Python interface, each part imported when it is first used:

- ``load_scene(path, split="train", ...)``: :func:`nerfleet.data.load_scene`;
- ``train(scene, config, ...)``: :func:`nerfleet.train.trainer.train`;
- ``render(model, camera, ...)``: :func:`nerfleet.render.renderer.render_image`;
- ``evaluate(model, scene, ...)``: :func:`nerfleet.render.evaluate.evaluate`.

``train`` and ``render`` are also packages; a package of this name can be called.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from typing import Any

# torch and numba bring an OpenMP pool each. A pool's idle threads spin while they wait, by default, and then take the cores
# from the other's. The runtimes read this when they are loaded: before torch is imported, so here.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import nerfleet.render
import nerfleet.train

_FUNCTIONS = {
    "load_scene": ("nerfleet.data", "load_scene"),
    "train": ("nerfleet.train.trainer", "train"),
    "render": ("nerfleet.render.renderer", "render_image"),
    "evaluate": ("nerfleet.render.evaluate", "evaluate"),
}
__all__ = ["evaluate", "load_scene", "render", "train"]


def _function(name: str) -> Any:
    module, function = _FUNCTIONS[name]
    return getattr(importlib.import_module(module), function)


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return _function(name)
    raise AttributeError(f"module 'nerfleet' has no attribute {name!r}")


class _CallablePackage(types.ModuleType):
    """A package that is called as the function of its name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _function(self.__name__.rpartition(".")[2])(*args, **kwargs)


for _package in (nerfleet.render, nerfleet.train):
    sys.modules[_package.__name__].__class__ = _CallablePackage

"""PNG files of renderings; each appears under its name only when it is complete."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nerfleet.errors import NerfleetError
from nerfleet.render.renderer import Rendered, to_uint8

MAX_DEPTH = 65_535


def rgba_picture(rendered: Rendered) -> NDArray[np.uint8]:
    """[h, w, 4] sRGB with straight alpha, as PNG stores it."""
    straight = rendered.rgb / rendered.alpha[..., None].clamp_min(1e-9)
    return to_uint8(torch.cat([straight, rendered.alpha[..., None]], -1)).cpu().numpy()


def rgb_picture(rendered: Rendered, background: tuple[float, float, float]) -> NDArray[np.uint8]:
    """[h, w, 3] sRGB in front of an sRGB background."""
    return to_uint8(rendered.over(background)).cpu().numpy()


def depth_picture(depth: Tensor, unit: float) -> NDArray[np.uint16]:
    """[h, w]: multiples of ``unit`` (internal units of distance along the ray); 0: nothing there."""
    return (depth / unit).round().clamp(0, MAX_DEPTH).cpu().numpy().astype(np.uint16)


def write_png(path: Path, picture: NDArray[np.uint8] | NDArray[np.uint16]) -> None:
    """Write uint8 [h, w, 3 or 4] or uint16 [h, w].

    Raises:
        NerfleetError: the place cannot be written.
    """
    from PIL import Image

    temporary = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            Image.fromarray(picture).save(temporary, format="PNG", compress_level=3)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise NerfleetError(str(path), error.strerror or "cannot be written", "choose another place") from None

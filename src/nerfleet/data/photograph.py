"""One photograph with its masks, separate alpha and depth map, from files to pixels. Needs no torch: worker processes import it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nerfleet.data.images import Array, ImageError, ImageHeader, decode_depth, decode_mask, decode_rgba
from nerfleet.data.reduce import is_masked, reduce_depth, reduce_rgba
from nerfleet.data.scene import MASKED_PIXEL
from nerfleet.data.side_files import SideFiles
from nerfleet.errors import NerfleetError

_MAX_HALF_FLOAT = 65504.0


@dataclass(frozen=True)
class PhotographFiles:
    """A photograph and what accompanies it."""

    image: Path
    header: ImageHeader
    side_files: SideFiles


@dataclass(frozen=True)
class Decoding:
    """How all photographs of a scene are decoded.

    Attributes:
        downscale: box filter; sizes are rounded down.
        transparent: a pixel whose red, green and blue all have this value becomes transparent; None: no pixel.
        depth_unit: internal units of one step of a depth map.
    """

    downscale: int = 1
    transparent: int | None = None
    depth_unit: float = 0.0

    def size(self, header: ImageHeader) -> tuple[int, int]:
        """Height and width that are left of a photograph."""
        return header.height // self.downscale, header.width // self.downscale


@dataclass(frozen=True)
class Alpha:
    """Whether any pixel that is not masked is transparent, and how many pixels are masked."""

    has_alpha: bool
    n_masked: int


def decode_photograph(files: PhotographFiles, how: Decoding, out: Array) -> Alpha:
    """Decodes, masks and reduces one photograph.

    Args:
        out: [h, w, 4] uint8 of the reduced size, contiguous, filled.

    Raises:
        ImageError: the photograph cannot be decoded.
        NerfleetError: one of its side files cannot.
    """
    header = files.header
    full = out if how.downscale == 1 else np.empty((header.height, header.width, 4), np.uint8)
    decode_rgba(files.image, header, full)
    if files.side_files.alpha:
        path, alpha_header = files.side_files.alpha
        alpha = np.empty_like(full)
        try:
            decode_rgba(path, alpha_header, alpha)
        except ImageError as error:
            raise NerfleetError(str(path), str(error), "replace or remove it") from error
        full[..., 3] = alpha[..., 0]
    if how.transparent is not None:
        full[(full[..., :3] == how.transparent).all(-1), 3] = 0
    ignored = ignored_pixels(files.side_files)
    if ignored is not None:
        full[ignored] = MASKED_PIXEL
    if how.downscale > 1:
        out[...] = reduce_rgba(full, how.downscale)
    side = files.side_files
    opaque = header.format == "JPEG" and not side.alpha and not side.masks and how.transparent is None  # spares a pass over all pixels
    if opaque or int(out[..., 3].min()) == 255:
        return Alpha(False, 0)
    masked = is_masked(out)
    return Alpha(bool(((out[..., 3] < 255) & ~masked).any()), int(masked.sum()))


def decode_depth_map(files: PhotographFiles, how: Decoding) -> Array:
    """[h, w] float16 of the reduced size, multiples of the unnormalised camera ray in internal units, 0 = unknown.

    Raises:
        NerfleetError: the depth map cannot be decoded.
    """
    path = files.side_files.depth
    assert path is not None
    try:
        steps = decode_depth(path)
    except ImageError as error:
        raise NerfleetError(str(path), str(error), "replace it or set integer_depth_scale to -1") from error
    values = (reduce_depth(steps, how.downscale).astype(np.float32) * how.depth_unit).clip(max=_MAX_HALF_FLOAT)
    return np.asarray(values.astype(np.float16))


def ignored_pixels(side_files: SideFiles) -> Array | None:
    """[h, w] bool at the file's size: what the photograph's masks take out of training; None without masks.

    Raises:
        NerfleetError: a mask that cannot be decoded.
    """
    ignored: Array | None = None
    for mask in side_files.masks:
        try:
            marked = decode_mask(mask.path, mask.header)
        except ImageError as error:
            raise NerfleetError(str(mask.path), str(error), "replace or remove the mask") from error
        marked = ~marked if mask.ignores_zero else marked
        ignored = marked if ignored is None else ignored | marked
    return ignored

"""Photographs, masks and depth maps from files to 8-bit RGBA, booleans and 16-bit steps.

Pixels are taken as stored: an EXIF orientation is NOT applied, because poses and intrinsics belong to the stored pixels
(structure from motion tools work on them). Colour is decided by the file's colour mode, never by its channel count.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS = 178_956_970
"""Cap on the pixels of one file, so that a small damaged or hostile file cannot fill the memory (Pillow's own limit)."""

Array = np.ndarray[Any, np.dtype[Any]]


class ImageError(Exception):
    """One image file cannot be used; the message says why, in words that fit after the file's name."""


@dataclass(frozen=True)
class ImageHeader:
    width: int
    height: int
    format: str
    mode: str


def read_header(path: Path) -> ImageHeader:
    """Size and colour mode without decoding the pixels. Raises ImageError."""
    try:
        if path.stat().st_size == 0:
            raise ImageError("the file is empty")
        with _open(path) as image:
            header = ImageHeader(*image.size, image.format or "", image.mode)
    except ImageError:
        raise
    except Exception as error:  # every decoder has its own exceptions for bytes that it does not understand
        raise ImageError(_reason(error, path)) from error
    if header.width * header.height > MAX_PIXELS:
        raise ImageError(f"{header.width}x{header.height} pixels are above the limit of {MAX_PIXELS // 10**6} million")
    return header


def looks_complete(path: Path, header: ImageHeader) -> bool:
    """Whether a JPEG or PNG ends with its end marker (True for other formats): a cheap check, not a proof."""
    marker = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}.get(header.format, b"")
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - 4096, 0))
        return marker in file.read()


def decode_rgba(path: Path, header: ImageHeader, out: Array) -> None:
    """Decodes a whole photograph to sRGB with straight alpha.

    Grey is repeated, palettes and CMYK are converted, 16 bits become 8 by round(v / 257).

    Args:
        header: of the same file.
        out: [h, w, 4] uint8, contiguous, filled.

    Raises:
        ImageError: truncated or damaged data (never half an image), or another size than the header's.
    """
    try:
        if not (header.format == "JPEG" and header.mode in ("RGB", "L") and _decode_jpeg(path, out)):
            out[...] = _decode_with_pillow(path, out.shape[:2])
    except ImageError:
        raise
    except Exception as error:
        raise ImageError(_reason(error, path)) from error


def decode_mask(path: Path, header: ImageHeader) -> Array:
    """[h, w] bool: where any of red, green and blue is not zero. Raises ImageError."""
    rgba = np.empty((header.height, header.width, 4), np.uint8)
    decode_rgba(path, header, rgba)
    return np.asarray(rgba[..., :3].any(-1))


def decode_depth(path: Path) -> Array:
    """[h, w] uint16 steps of a one-channel depth map. Raises ImageError."""
    try:
        with _open(path) as image:
            if image.mode not in ("L", "I") and not image.mode.startswith("I;16"):
                raise ImageError(f"has colour mode {image.mode}, a depth map must be 16-bit grey")
            values = np.asarray(image)
    except ImageError:
        raise
    except Exception as error:
        raise ImageError(_reason(error, path)) from error
    return values.clip(0, 65535).astype(np.uint16)


def _decode_jpeg(path: Path, out: Array) -> bool:
    """Decodes straight into ``out``; False where simplejpeg is not installed. It reports damage that Pillow lets pass."""
    try:
        import simplejpeg
    except ImportError:
        return False
    data = path.read_bytes()
    height, width, *_ = simplejpeg.decode_jpeg_header(data)
    if (height, width) != out.shape[:2]:
        raise ImageError(f"changed its size to {width}x{height} while it was read")
    try:
        simplejpeg.decode_jpeg(data, "RGBA", buffer=out, strict=True)
    except ValueError as error:
        if "extraneous bytes" not in str(error):  # padding between segments, which some cameras write: no harm
            raise
        simplejpeg.decode_jpeg(data, "RGBA", buffer=out, strict=False)
    return True


def _decode_with_pillow(path: Path, shape: tuple[int, ...]) -> Array:
    with _open(path) as image:
        if image.size[::-1] != shape:
            raise ImageError(f"changed its size to {image.size[0]}x{image.size[1]} while it was read")
        if image.mode.startswith("I"):
            grey = _to_8_bit(np.asarray(image).clip(0, 65535))
            return np.dstack([grey, grey, grey, np.full_like(grey, 255)])
        if image.mode == "F":
            raise ImageError("holds floating-point pixels, which are not read yet")
        low_bytes = _low_bytes_of_16_bit(path, image)
        if low_bytes is not None:
            wide = np.asarray(image).astype(np.uint32) << 8 | low_bytes
            image = _pil_image().fromarray(_to_8_bit(wide))
        if image.mode == "CMYK":
            image = image.convert("RGB")
        return np.asarray(image.convert("RGBA"))


def _low_bytes_of_16_bit(path: Path, image: Image.Image) -> Array | None:
    """Low bytes [h, w, 3 or 4] of a 16-bit colour PNG, None for all else.

    Pillow keeps only the high bytes of such files. Unpacking the same data as if it were little-endian yields the others.
    """
    tiles = getattr(image, "tile", None)
    if image.format != "PNG" or not tiles or tiles[0].args not in ("RGB;16B", "RGBA;16B"):
        return None
    little_endian = tiles[0]._replace(args=tiles[0].args.replace("16B", "16L"))
    with _open(path) as again:
        setattr(again, "tile", [little_endian])  # noqa: B010 (not in Pillow's type of an opened image)
        return np.asarray(again).astype(np.uint32)


def _to_8_bit(values: Array) -> Array:
    return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)


def _pil_image() -> Any:
    """Pillow, without its warning of photographs above half of MAX_PIXELS: they are allowed here."""
    from PIL import Image

    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    return Image


def _open(path: Path) -> Image.Image:
    image: Image.Image = _pil_image().open(path)
    return image


def _reason(error: Exception, path: Path) -> str:
    if type(error).__name__ == "UnidentifiedImageError":
        return "is not an image of a known format"
    text = " ".join(str(error).replace(repr(str(path)), "the file").split())
    return f"cannot be decoded ({text or type(error).__name__})"

"""PNG and OpenEXR files; each appears under its name only when it is complete."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nerfleet.errors import NerfleetError


def write_png(path: Path, picture: NDArray[np.uint8] | NDArray[np.uint16]) -> None:
    """Write uint8 [h, w, 3 or 4] or uint16 [h, w].

    Raises:
        NerfleetError: the place cannot be written.
    """
    from PIL import Image

    with _whole_file(path) as temporary:
        Image.fromarray(picture).save(temporary, format="PNG", compress_level=3)


def write_exr(path: Path, rgba: NDArray[np.float16], depth: NDArray[np.float32] | None = None, normals: NDArray[np.float16] | None = None) -> None:
    """Write one picture in linear light.

    Args:
        rgba: [h, w, 4] premultiplied; channels R, G, B, A (Rec. 709 primaries, half precision).
        depth: [h, w], channel Z, single precision.
        normals: [h, w, 3], channels N.X, N.Y, N.Z.

    Raises:
        NerfleetError: OpenEXR is not installed, or the place cannot be written.
    """
    require_openexr(path)
    import OpenEXR

    channels: dict[str, Any] = {"RGBA": np.ascontiguousarray(rgba)}
    if depth is not None:
        channels["Z"] = np.ascontiguousarray(depth)
    if normals is not None:
        channels |= {f"N.{axis}": np.ascontiguousarray(normals[..., i]) for i, axis in enumerate("XYZ")}
    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    with _whole_file(path) as temporary:
        OpenEXR.File(header, channels).write(str(temporary))


def require_openexr(path: Path) -> None:
    """Raises NerfleetError, which names ``path``, where EXR files cannot be written."""
    try:
        import OpenEXR  # noqa: F401
    except ImportError:
        raise NerfleetError(str(path), "EXR files need OpenEXR", "pip install OpenEXR, or write PNG") from None


@contextlib.contextmanager
def _whole_file(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path``, renamed at the end. Raises NerfleetError where the place cannot be written."""
    temporary = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:  # OpenEXR has no error of its own
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or "cannot be written"
        raise NerfleetError(str(path), reason, "choose another place") from None

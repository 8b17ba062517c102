from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nerfleet.data import images
from nerfleet.data.images import ImageError, decode_depth, decode_rgba, looks_complete, read_header


def decode(path: Path) -> np.ndarray:
    header = read_header(path)
    out = np.full((header.height, header.width, 4), 77, np.uint8)
    decode_rgba(path, header, out)
    return out


def write_png_16(path: Path, values: np.ndarray, colour_type: int) -> None:
    """A 16-bit PNG without filters; values [h, w, c]."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = values.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


@pytest.mark.parametrize("channels, colour_type", [(1, 0), (3, 2), (4, 6)])
def test_16_bits_are_rounded(tmp_path: Path, channels: int, colour_type: int) -> None:
    values = np.random.default_rng(0).integers(0, 65536, (9, 7, channels))
    values[0, 0], values[0, 1], values[0, 2] = 65535, 0, 300  # 300 / 257 = 1.17; the high byte alone would be 1 as well
    values[0, 3] = 240  # rounds to 1, its high byte is 0
    write_png_16(tmp_path / "a.png", values, colour_type)
    expected = np.round(values / 257).astype(np.uint8)
    decoded = decode(tmp_path / "a.png")
    assert (decoded[..., : max(channels, 3)] == expected).all()
    assert channels == 4 or (decoded[..., 3] == 255).all()


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_jpeg_through_both_decoders(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    y, x = np.mgrid[:40, :50]
    image = np.dstack([5 * x, 6 * y, 2 * (x + y)]).astype(np.uint8)
    Image.fromarray(image).convert(mode).save(tmp_path / "a.jpg", quality=95)
    fast = decode(tmp_path / "a.jpg")
    monkeypatch.setattr(images, "_decode_jpeg", lambda path, out: False)
    slow = decode(tmp_path / "a.jpg")
    assert np.abs(fast.astype(int) - slow).max() <= 2
    assert (fast[..., 3] == 255).all()


def test_damaged_middle_of_a_jpeg_is_noticed(tmp_path: Path) -> None:
    pytest.importorskip("simplejpeg", reason="Pillow alone lets damaged JPEG data pass")
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.jpg")
    data = bytearray((tmp_path / "a.jpg").read_bytes())
    data[len(data) // 2 : len(data) // 2 + 40] = b"\xff\xd5" * 20
    (tmp_path / "a.jpg").write_bytes(data)
    with pytest.raises(ImageError, match="cannot be decoded"):
        decode(tmp_path / "a.jpg")


def test_exif_orientation_is_not_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (30, 20)).save(tmp_path / "a.jpg", exif=exif)
    assert decode(tmp_path / "a.jpg").shape == (20, 30, 4)


def test_pixel_bomb_is_refused_by_its_header(tmp_path: Path) -> None:
    write_png_16(tmp_path / "a.png", np.zeros((1, 1, 3)), 2)
    data = bytearray((tmp_path / "a.png").read_bytes())
    data[16:24] = struct.pack(">II", 60_000, 60_000)
    data[29:33] = struct.pack(">I", zlib.crc32(bytes(data[12:29])))
    (tmp_path / "a.png").write_bytes(data)
    with pytest.raises(ImageError):
        read_header(tmp_path / "a.png")


def test_end_marker(tmp_path: Path) -> None:
    for name in ("a.png", "a.jpg"):
        path = tmp_path / name
        Image.new("RGB", (30, 20)).save(path)
        assert looks_complete(path, read_header(path))
        path.write_bytes(path.read_bytes()[:-12])
        assert not looks_complete(path, read_header(path))


def test_depth_map(tmp_path: Path) -> None:
    steps = np.arange(0, 60000, 1000, dtype=np.uint16).reshape(6, 10)
    Image.fromarray(steps).save(tmp_path / "d.png")
    assert (decode_depth(tmp_path / "d.png") == steps).all()
    Image.new("RGB", (10, 6)).save(tmp_path / "rgb.png")
    with pytest.raises(ImageError, match="must be 16-bit grey"):
        decode_depth(tmp_path / "rgb.png")

from __future__ import annotations

import torch

from nerfleet.geometry.color import composite, linear_to_srgb, srgb_to_linear


def test_known_values() -> None:
    srgb = torch.tensor([0.0, 0.04045, 0.5, 1.0, -0.1], dtype=torch.float64)
    expected = torch.tensor([0.0, 0.0031308, 0.2140411, 1.0, -0.1 / 12.92], dtype=torch.float64)
    torch.testing.assert_close(srgb_to_linear(srgb), expected, atol=1e-6, rtol=0)


def test_round_trip_negative_and_bright_included() -> None:
    values = torch.linspace(-1, 3, 801, dtype=torch.float64)
    torch.testing.assert_close(linear_to_srgb(srgb_to_linear(values)), values, atol=1e-6, rtol=1e-6)


def test_gradients_are_finite() -> None:
    values = torch.tensor([-1.0, 0.0, 0.0031308, 0.5], requires_grad=True)
    (linear_to_srgb(values).sum() + srgb_to_linear(values).sum()).backward()
    assert values.grad is not None
    assert values.grad.isfinite().all()


def test_half_alpha_over_white_by_hand() -> None:
    """Straight-alpha red (200, 0, 0, 128) over white: linear light and sRGB (compat) differ as computed by hand."""
    pixel = torch.tensor([[200, 0, 0, 128]], dtype=torch.uint8)
    white = torch.ones(3, dtype=torch.float64)
    alpha = 128 / 255
    red = ((200 / 255 + 0.055) / 1.055) ** 2.4 * alpha + (1 - alpha)
    linear = [1.055 * value ** (1 / 2.4) - 0.055 for value in (red, 1 - alpha, 1 - alpha)]
    torch.testing.assert_close(composite(pixel, white)[0], torch.tensor(linear, dtype=torch.float64))
    compat = [200 / 255 * alpha + 1 - alpha, 1 - alpha, 1 - alpha]
    torch.testing.assert_close(composite(pixel, white, in_srgb=True)[0], torch.tensor(compat, dtype=torch.float64))


def test_opaque_and_empty_pixels() -> None:
    pixels = torch.tensor([[10, 20, 30, 255], [10, 20, 30, 0]], dtype=torch.uint8)
    background = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    expected = torch.stack([torch.tensor([10, 20, 30], dtype=torch.float64) / 255, background])
    for in_srgb in (False, True):
        torch.testing.assert_close(composite(pixels, background, in_srgb=in_srgb), expected, atol=1e-6, rtol=0)


def test_float_photographs_equal_bytes() -> None:
    pixels = torch.randint(0, 256, (7, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    background = torch.tensor([0.1, 0.2, 0.3])
    torch.testing.assert_close(composite(pixels / 255, background), composite(pixels, background))

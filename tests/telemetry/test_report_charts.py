"""Charts: ticks, scales and what becomes of values that cannot be drawn."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nerfleet.telemetry.report_charts import BOTTOM, HEIGHT, LEFT, MAX_POINTS, RIGHT, TOP, WIDTH, line_chart, nice_ticks, number


def points(svg: str, css_class: str) -> np.ndarray:
    found = re.search(rf'class="{css_class}" points="([^"]+)"', svg)
    assert found, svg[:200]
    return np.array([[float(v) for v in pair.split(",")] for pair in found.group(1).split()])


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 100, [0, 20, 40, 60, 80, 100]), (0.03, 0.31, [0.1, 0.2, 0.3]), (-4, 7, [0, 5]), (12, 30, [15, 20, 25, 30])],
)
def test_nice_ticks(low: float, high: float, expected: list[float]) -> None:
    assert nice_ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (31.8123, "31.81"), (12345.6, "12,346"), (0.00421, "0.00421"), (1.234e-7, "1.2e-07"), (float("nan"), "nan")],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


def test_linear_curve_spans_the_frame() -> None:
    curve = points(line_chart([0, 5, 10], [1, 2, 3], "steps", "PSNR"), "curve")
    assert curve[0, 0] == LEFT
    assert curve[-1, 0] == WIDTH - RIGHT
    assert curve[1].tolist() == pytest.approx(curve[[0, 2]].mean(0).tolist(), abs=0.1)
    assert curve[0, 1] > curve[2, 1], "larger is higher"


def test_log_axis_spaces_decades_evenly() -> None:
    curve = points(line_chart([0, 1, 2], [1.0, 0.1, 0.01], "steps", "loss", log=True), "curve")
    assert curve[1, 1] - curve[0, 1] == pytest.approx(curve[2, 1] - curve[1, 1], abs=0.11)


def test_unusable_values_are_left_out() -> None:
    values = [1.0, float("nan"), 0.5, float("inf"), -1.0, 0.25]
    assert len(points(line_chart(range(6), values, "steps", "loss", log=True), "curve")) == 3
    assert len(points(line_chart(range(6), values, "steps", "loss"), "curve")) == 4


@pytest.mark.parametrize("values", [[], [1.0], [float("nan")] * 5])
def test_too_few_values_say_so(values: list[float]) -> None:
    assert "too few values" in line_chart(range(len(values)), values, "steps", "loss")


def test_long_noisy_curves_are_thinned_and_smoothed_but_keep_their_extremes() -> None:
    y = np.random.default_rng(0).normal(size=20_000)
    y[7_777] = 30.0
    svg = line_chart(range(len(y)), y.tolist(), "steps", "loss")
    raw, smooth = points(svg, "raw"), points(svg, "curve")
    assert len(raw) <= 2 * MAX_POINTS
    span = HEIGHT - BOTTOM - TOP
    assert raw[:, 1].min() < TOP + 0.1 * span, "the spike is drawn"
    assert np.abs(np.diff(smooth[:, 1])).mean() < 0.3 * np.abs(np.diff(raw[:, 1])).mean()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=60), st.booleans())
def test_any_curve_is_valid_xml_inside_its_frame(values: list[float], log: bool) -> None:
    svg = line_chart(range(len(values)), values, "steps", "a & b", log)
    ElementTree.fromstring(svg)
    if svg.startswith("<svg"):
        curve = points(svg, "curve")
        assert (curve[:, 1] >= TOP - 0.1).all()
        assert (curve[:, 1] <= HEIGHT - BOTTOM + 0.1).all()

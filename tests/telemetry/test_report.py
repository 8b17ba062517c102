"""The run report is one complete page that needs nothing else, and its parts show what they were given."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nerfleet.errors import NerfleetError
from nerfleet.telemetry.report import (
    DIFFERENCE_RANGE,
    Curve,
    Headline,
    HeldOutView,
    Report,
    difference_picture,
    render_html,
    write_report,
)

VOID = {"meta", "img", "br", "line", "circle", "polyline"}


class Page(HTMLParser):
    """Checks that tags close in order; collects attributes that could load something, and the visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.sources: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [
            value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "poster", "xlink:href")
        ]
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack and self.stack[-1] not in ("style", "title"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def picture(value: int, size: tuple[int, int] = (6, 8)) -> np.ndarray:
    return np.full((*size, 3), value, np.uint8)


@pytest.fixture
def report() -> Report:
    steps = tuple(float(i) for i in range(1, 101))
    return Report(
        title="lego <small>",
        subtitle="built-in & fast",
        headlines=(Headline("Held-out PSNR", "29.41 dB", "mean of 2 views"), Headline("Steps", "900")),
        curves=(
            Curve("loss", steps, tuple(0.1 * s for s in steps), tuple(1 / s for s in steps), log=True),
            Curve("PSNR (dB)", (0, 50, 100), (0, 5, 10), (10, 20, 25.5)),
        ),
        views=(HeldOutView('a"b', picture(100), picture(110), 28.126, 0.9), HeldOutView("r_1", picture(5), picture(5), 40.0)),
        video=b"not really an mp4",
        settings={"seed": 3, "train": {"lr": 0.01, "ema": True, "deep": {"list": [1, 2]}}, "none": None},
        environment={"GPU": "<none>", "threads": 2},
        stages_ms={"march": 10.0, "field": 40.0},
        notes=("17 of 50 images are missing",),
        summary={"steps": 900, "psnr_mean": float("nan"), "train_seconds": np.float32(1.5), "strategy": "single"},
    )


def test_one_well_formed_page_without_outside_resources(report: Report) -> None:
    html = render_html(report)
    page = Page(html)
    assert page.stack == []
    assert len(page.sources) == 2 * 3 + 1
    assert all(source.startswith("data:") for source in page.sources)
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert not re.search(r"https?://|@import|url\(", html)
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html


def test_shows_what_it_was_given(report: Report) -> None:
    text = Page(render_html(report)).text
    wanted = [
        "29.41 dB",
        "mean of 2 views",
        "PSNR 28.13 dB · SSIM 0.900",
        "PSNR 40.00 dB",
        "17 of 50 images",
        "train",
        "deep.list",
    ]
    wanted += ["1, 2", "40 ms", "50 ms", "threads", "lego <small>", "built-in & fast", "<none>", "25.5"]
    assert [word for word in wanted if word not in text] == []


def test_all_text_is_escaped() -> None:
    evil = '<script>alert("x")</script>'
    report = Report(
        evil,
        evil,
        (Headline(evil, evil, evil),),
        (Curve(evil, (1, 2), (1, 2), (1, 2)), Curve(evil, (), (), ())),
        (HeldOutView(evil, picture(1), picture(2), 1.0),),
        settings={evil: {evil: evil}, evil + "2": evil},
        environment={evil: evil},
        stages_ms={evil: 1.0},
        notes=(evil,),
    )
    html = render_html(report)
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 15
    page = Page(html)
    assert page.stack == []
    assert all(source.startswith("data:") for source in page.sources), "a name with quotes opened an attribute"


def test_pictures_survive(report: Report) -> None:
    sources = [source for source in Page(render_html(report)).sources if source.startswith("data:image/png")]
    decoded = [np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2])))) for source in sources]
    assert np.array_equal(decoded[0], report.views[0].truth)
    assert np.array_equal(decoded[1], report.views[0].rendering)
    assert np.array_equal(decoded[2], difference_picture(report.views[0].truth, report.views[0].rendering))


def test_difference_scale() -> None:
    base = picture(0, (1, 4))
    shown = base.copy()
    shown[0, 1] = round(255 * DIFFERENCE_RANGE / 2)
    shown[0, 2] = 255
    result = difference_picture(base, shown)
    assert result[0, 0].tolist() == [0, 0, 4]
    assert np.abs(result[0, 1].astype(int) - [188, 55, 84]).max() <= 2
    assert result[0, 2].tolist() == [252, 255, 164]


@pytest.mark.parametrize(
    ("change", "absent"),
    [
        (lambda r: Report(r.title), ["section", "svg", "img", "video", "table"]),
        (lambda r: Report(r.title, curves=r.curves), ["img", "video", "table"]),
        (lambda r: Report(r.title, stages_ms={"march": 0.0}), ["svg", "img", "video"]),
    ],
)
def test_empty_parts_are_left_out(report: Report, change: Callable[[Report], Report], absent: list[str]) -> None:
    page = Page(render_html(change(report)))
    assert page.stack == []
    assert [tag for tag in absent if tag in page.tags] == []


def test_writes_both_files_and_nothing_else(tmp_path: Path, report: Report) -> None:
    write_report(tmp_path / "report.html", report)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report.html", "report.json"]
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == render_html(report)
    summary = json.loads((tmp_path / "report.json").read_text())
    assert summary == {"steps": 900, "psnr_mean": None, "train_seconds": 1.5, "strategy": "single"}


@pytest.mark.parametrize("name", ["report.html", "report.json"])
def test_a_place_that_cannot_be_written_is_named(name: str, tmp_path: Path, report: Report) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(NerfleetError, match=f"{name}: Is a directory: make room"):
        write_report(tmp_path / "report.html", report)
    assert not list(tmp_path.glob("*.part"))


def test_without_summary_no_json(tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", Report("a"))
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]

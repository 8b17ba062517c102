"""Flags that several verbs share."""

from __future__ import annotations

import json
import math

import pytest

from nerfleet.cli.eval import picture_name
from nerfleet.cli.flags import parse_color, parse_views, print_json
from nerfleet.errors import NerfleetError


@pytest.mark.parametrize("text, expected", [("", [0, 1, 2, 3]), ("2", [2]), ("0,2-3", [0, 2, 3]), ("5, 1 - 2,1", [5, 1, 2])])
def test_views(text: str, expected: list[int]) -> None:
    assert parse_views(text, 6 if text else 4) == expected


@pytest.mark.parametrize(
    "text, wrong", [("6", "0 to 5"), ("4-9", "0 to 5"), ("3-1", "backwards"), ("a", "'a'"), ("1,", "''"), ("-1", "'-1'")]
)
def test_wrong_views(text: str, wrong: str) -> None:
    with pytest.raises(NerfleetError, match=wrong):
        parse_views(text, 6)


def test_colors() -> None:
    assert parse_color("white") == (1.0, 1.0, 1.0)
    assert parse_color("#ff8000") == (1.0, 128 / 255, 0.0)
    for text in ("#fff", "red", "ff8000", "#gg0000"):
        with pytest.raises(NerfleetError, match="use black, white or #rrggbb"):
            parse_color(text)


def test_json_has_no_infinity(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": math.inf, "b": [math.nan, 1.5], "c": {"d": None}})
    out = capsys.readouterr().out
    assert json.loads(out) == {"a": None, "b": [None, 1.5], "c": {"d": None}}
    assert out.count("\n") == 1


def test_picture_names() -> None:
    views = {"./train/r_0": "train_r_0.png", "images/0001.jpg": "images_0001.png", "../a/v1.5": "a_v1.5.png", "/y.PNG": "y.png"}
    assert {view: picture_name(view) for view in views} == views

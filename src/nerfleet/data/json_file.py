"""Reading JSON as people write it: UTF-8 with or without BOM, UTF-16, and // or /* */ comments."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from nerfleet.config import is_number
from nerfleet.errors import NerfleetError

_COMMENT_OR_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; ``NaN`` and ``Infinity`` are read as such (poses are checked later).

    Raises:
        NerfleetError: unreadable file, wrong encoding, wrong syntax (with its line) or not an object.
    """
    try:
        text = _decode(path.read_bytes())
    except OSError as error:
        raise NerfleetError(str(path), error.strerror or "cannot be read", "check the path and its permissions") from error
    except UnicodeDecodeError as error:
        raise NerfleetError(str(path), "is neither UTF-8 nor UTF-16", "save it as UTF-8") from error
    try:
        value = json.loads(_COMMENT_OR_STRING.sub(_blank_comment, text))
    except json.JSONDecodeError as error:
        raise NerfleetError(f"{path}, line {error.lineno}", error.msg, "correct the JSON there") from error
    except RecursionError as error:
        raise NerfleetError(str(path), "is nested too deeply", "this is not a scene file") from error
    except ValueError as error:  # Python reads no number of more than 4300 digits
        raise NerfleetError(str(path), "holds a number that is too long", "correct the JSON there") from error
    if not isinstance(value, dict):
        raise NerfleetError(str(path), f"holds a {type(value).__name__}, not an object", "a scene file starts with {")
    return value


def read_number(value: object, where: str, key: str) -> float:
    """``value`` as a finite float.

    Raises:
        NerfleetError: it is something else.
    """
    if not is_number(value):
        raise NerfleetError(
            f"{where}, {key}", f"{json.dumps(value)[:60]} is not a finite number", f"write {key} as a plain number"
        )
    assert isinstance(value, int | float)
    return float(value)


def read_vector(value: object, n: int, where: str, key: str) -> tuple[float, ...]:
    """``value`` as n finite floats.

    Raises:
        NerfleetError: it is something else.
    """
    if not isinstance(value, list) or len(value) != n:
        raise NerfleetError(f"{where}, {key}", f"{json.dumps(value)[:60]} is not a list of {n} numbers", f"write {n} numbers")
    return tuple(read_number(item, where, key) for item in value)


def _decode(data: bytes) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16")
    return data.decode("utf-8-sig")


def _blank_comment(match: re.Match[str]) -> str:
    """Strings stay; a comment becomes blanks with the same line breaks, so that errors name the right line."""
    text = match.group()
    return text if text[0] == '"' else re.sub(r"[^\n]", " ", text)

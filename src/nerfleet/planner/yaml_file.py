"""YAML files of people: values with the line that an error should name. No aliases (a file cannot explode), no duplicate keys."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    import yaml

MAX_FILE_BYTES = 4 << 20
MAX_DEPTH = 32


@dataclass(frozen=True)
class Section:
    """A mapping of a YAML file.

    Attributes:
        file: its name. line: where the mapping begins, from 1. values: key -> value; nested mappings are Sections.
        lines: key -> line.
    """

    file: str
    line: int
    values: dict[str, Any]
    lines: dict[str, int]

    def error(self, key: str, wrong: str, remedy: str) -> NerfleetError:
        """For a key that is there (its line), or for one that is missing (the mapping's line)."""
        return NerfleetError(f"{self.file}, line {self.lines.get(key, self.line)}, {key}", wrong, remedy)

    def only(self, known: Collection[str]) -> None:
        """Raise NerfleetError for a key that has no meaning here."""
        import difflib

        for key in self.values:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                raise self.error(key, "has no meaning here", f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}")

    def number(self, key: str, default: float | None = None, least: float = 0.0, *, positive: bool = False, most: float = math.inf) -> float:
        """A finite number of at least ``least`` (``positive``: above 0).

        Raises:
            NerfleetError: missing without a default, or something else.
        """
        if key not in self.values:
            if default is None:
                raise self.error(key, "is missing", f"give {key} as a number")
            return default
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.error(key, f"{_shown(value)} is not a number", f"give {key} as a plain number")
        if value < least or value > most or (positive and value <= 0):
            wanted = "a number above 0" if positive else f"{least:g} or more" if most == math.inf else f"{least:g} to {most:g}"
            raise self.error(key, f"{value:g} is out of range", f"give {wanted}")
        return float(value)

    def whole(self, key: str, default: int | None = None, least: int = 1, most: int = 1_000_000) -> int:
        """As :meth:`number`, without a fraction."""
        value = self.number(key, default, least, most=most)
        if not value.is_integer() if isinstance(value, float) else False:
            raise self.error(key, f"{value:g} is not a whole number", f"give {least} or more")
        return int(value)

    def text(self, key: str, default: str | None = None) -> str:
        """A string; a plain number is taken as it is written.

        Raises:
            NerfleetError: missing without a default, or something else.
        """
        if key not in self.values:
            if default is None:
                raise self.error(key, "is missing", f"give {key}")
            return default
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
            raise self.error(key, f"{_shown(value)} is not a text", f"give {key} as a word")
        return str(value)

    def sections(self, key: str) -> list[Section]:
        """A list of mappings, at least one. Raises NerfleetError."""
        value = self.values.get(key)
        if not isinstance(value, list) or not value:
            raise self.error(key, "is missing" if key not in self.values else "is not a list", "give a list, each entry beginning with `- `")
        for entry in value:
            if not isinstance(entry, Section):
                raise self.error(key, f"{_shown(entry)} is not a set of `name: value` lines", "see the example in --help")
        return value

    def words(self, key: str) -> list[str]:
        """A list of texts, or one text; [] if missing. Raises NerfleetError."""
        value = self.values.get(key, [])
        entries = value if isinstance(value, list) else [value]
        if any(isinstance(entry, bool) or not isinstance(entry, str | int | float) for entry in entries):
            raise self.error(key, f"{_shown(value)} is not a list of words", "write [a, b]")
        return [str(entry) for entry in entries]


def read_yaml(path: Path) -> Section:
    """The mapping in a YAML file.

    Raises:
        NerfleetError: unreadable, too large, not YAML (the line is named), or not a mapping.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise NerfleetError(str(path), f"is larger than {MAX_FILE_BYTES >> 20} MB", "this is not such a file")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise NerfleetError(str(path), error.strerror or "cannot be read", "check the path") from None
    except UnicodeDecodeError:
        raise NerfleetError(str(path), "is not UTF-8", "save it as UTF-8") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, file: str) -> Section:
    """As :func:`read_yaml`, of a text."""
    import yaml

    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        value = None if node is None else _value(node, file, 0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise NerfleetError(f"{file}, line {mark.line + 1 if mark else 1}", error.problem or "is not YAML", "correct the YAML there") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise NerfleetError(file, f"is not YAML ({' '.join(str(error).split())[:120]})", "correct the file") from None
    if not isinstance(value, Section):
        raise NerfleetError(f"{file}, line 1", "does not start with `name: value`", "see the example in --help")
    return value


def _value(node: yaml.Node, file: str, depth: int) -> Any:
    import yaml

    if depth > MAX_DEPTH:
        raise NerfleetError(f"{file}, line {node.start_mark.line + 1}", "is nested too deeply", "this is not such a file")
    if getattr(node, "seen", False):
        raise NerfleetError(f"{file}, line {node.start_mark.line + 1}", "is used again by an alias (*)", "write it out")
    node.seen = True  # type: ignore[attr-defined]
    if isinstance(node, yaml.MappingNode):
        values: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = key_node.value
            if not isinstance(key, str):
                raise NerfleetError(f"{file}, line {line}", "a name is not a word", "write `name: value`")
            if key in values:
                raise NerfleetError(f"{file}, line {line}, {key}", f"stands in line {lines[key]} already", "remove one of them")
            values[key], lines[key] = _value(value_node, file, depth + 1), line
        return Section(file, node.start_mark.line + 1, values, lines)
    if isinstance(node, yaml.SequenceNode):
        return [_value(entry, file, depth + 1) for entry in node.value]
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (ValueError, OverflowError, yaml.YAMLError) as error:
        raise NerfleetError(f"{file}, line {node.start_mark.line + 1}", " ".join(str(error).split())[:120], "put it in quotes") from None


def _shown(value: Any) -> str:
    if isinstance(value, Section):
        return "a set of `name: value` lines"
    return repr(value)[:60]

"""Sizes that keep the project pleasant: the test lists what is over."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
MAX_FILE, MAX_FUNCTION, MAX_KERNEL = 500, 60, 120
ALLOWED: dict[str, str] = {}
"""``path`` or ``path:name`` -> the reason why it may be longer."""


def sources(*suffixes: str) -> list[Path]:
    folders = [REPOSITORY / name for name in ("src", "tests", "examples", "benchmarks", "scripts")]
    return sorted(p for folder in folders for suffix in suffixes for p in folder.rglob(f"*{suffix}"))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and number of lines of each Python function, decorators left out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def kernels(source: str) -> Iterator[tuple[str, int]]:
    """Name and number of lines of each ``__global__`` function: from its signature to the brace that closes it."""
    source = source.replace("__launch_bounds__(", "__launch_bounds__[")  # not the kernel's own bracket
    for match in re.finditer(r"__global__[^;{]*?(\w+)\s*\((?=[^;{]*{)", source):
        depth, end = 0, match.end()
        for end in range(source.index("{", match.end()), len(source)):
            depth += {"{": 1, "}": -1}.get(source[end], 0)
            if depth == 0:
                break
        yield match.group(1), source.count("\n", match.start(), end) + 1


def too_long() -> list[str]:
    over = []
    for path in sources(".py", ".cu", ".cuh"):
        name, text = str(path.relative_to(REPOSITORY)), path.read_text(encoding="utf-8")
        parts = [(name, len(text.splitlines()), MAX_FILE)]
        if path.suffix == ".py":
            parts += [(f"{name}:{function}", lines, MAX_FUNCTION) for function, lines in functions(path)]
        else:
            parts += [(f"{name}:{kernel}", lines, MAX_KERNEL) for kernel, lines in kernels(text)]
        over += [f"{what}: {lines} lines, at most {most}" for what, lines, most in parts if lines > most and what not in ALLOWED]
    return over


def test_nothing_is_too_long() -> None:
    assert too_long() == []


def test_lengths_are_counted(tmp_path: Path) -> None:
    kernel = 'extern "C" __global__ void __launch_bounds__(128)\nfill(float* out) {\n  if (true) {\n    *out = 1;\n  }\n}\n'
    assert list(kernels("__global__ void fill(float*);\n" + kernel)) == [("fill", 6)]
    source = tmp_path / "two.py"
    source.write_text("def one():\n    return 1\n\n\nclass A:\n    @cache\n    def three(self):\n        x = 1\n        return x")
    assert sorted(functions(source)) == [("one", 2), ("three", 3)]

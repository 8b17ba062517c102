"""The documents: both READMEs in step, links that lead somewhere, commands that exist, and Python examples that run."""

from __future__ import annotations

import importlib
import re
import runpy
import shlex
from pathlib import Path

import pytest

from nerfleet.cli.main import VERBS, parse

REPOSITORY = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md"), *(REPOSITORY / "deploy").rglob("*.md")])


def read(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def code_blocks(text: str) -> list[str]:
    return re.findall(r"^```.*?^```$", text, flags=re.MULTILINE | re.DOTALL)


def outline(text: str) -> list[str]:
    """What two translations share: heading levels, pictures, tables' rows, list items, links' targets."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    marks = re.findall(r"^#+ |^\||^- |\]\([^)]*\)", prose, flags=re.MULTILINE)
    return [mark for mark in marks if "README" not in mark]


def test_readmes_are_in_step() -> None:
    english, chinese = read("README.md"), read("README.zh-CN.md")
    assert code_blocks(english) == code_blocks(chinese)
    assert outline(english) == outline(chinese)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (document.parent / target).exists()] == []


def commands(text: str) -> list[list[str]]:
    """The words of every line of a code block that starts with ``nerfleet``."""
    lines = [line for block in code_blocks(text) for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("nerfleet ")]


def test_readme_shows_every_verb() -> None:
    assert {words[0] for words in commands(read("README.md"))} == set(VERBS)


@pytest.mark.parametrize("words", commands(read("README.md")), ids=" ".join)
def test_commands_of_the_readme_parse(words: list[str]) -> None:
    verb = importlib.import_module(f"nerfleet.cli.{words[0]}")
    assert isinstance(parse(verb.Arguments, words[0], words[1:]), verb.Arguments)


@pytest.fixture(scope="module")
def working_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which ``data/fox`` is a small scene."""
    from nerfleet.data.synthetic import write_scene

    folder = tmp_path_factory.mktemp("documents")
    write_scene(folder / "data" / "fox", n_train=6, n_val=0, n_test=2, width=128, height=128, supersample=1)
    return folder


def test_python_block_of_the_readme_runs(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", read("README.md"), flags=re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(working_folder)
    exec(compile(block.replace("steps=1000", "steps=2"), "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert 0 < float(lines[0].split()[0]) < 60
    assert lines[1] == "torch.Size([16, 16, 3]) torch.Size([16, 16])"


def test_example_compare(working_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    monkeypatch.chdir(working_folder)
    runpy.run_path(str(REPOSITORY / "examples" / "compare.py"))["main"]("data/fox", "compare.png", 2)
    assert "worst view ./test/view_00" in capsys.readouterr().out
    with Image.open("compare.png") as picture:
        assert picture.size == (32, 16)

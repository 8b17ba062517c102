"""1024^3 cells: the field itself would take 4 GB, as floats alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = """
import math, resource
from nerfleet.mesh.surface import extract
from tests.support.shapes import LEVEL, ball, solid_model

mesh = extract(solid_model(ball()), 1024, math.exp(LEVEL))
radius = (mesh.vertices - 0.5).norm(dim=-1)
print(len(mesh.faces), float((radius - 0.25).abs().max()), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux only")
def test_a_fine_surface_fits_two_gigabytes() -> None:
    environment = os.environ | {"PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=environment)
    faces, error, peak_bytes = map(float, done.stdout.split())
    assert faces > 2_000_000
    assert error < 0.002
    assert peak_bytes < 2e9

"""Files of strangers: whatever they hold, the answer is a value or one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nerfleet.errors import NerfleetError
from nerfleet.planner.calibration import read_calibration
from nerfleet.planner.prices import EXAMPLE, read_prices
from nerfleet.planner.tasks import TASKS_EXAMPLE, read_tasks
from nerfleet.planner.topology import CLUSTER_EXAMPLE, read_cluster

VERBS = ("train", "render", "convert")
READERS = {
    "cluster": (read_cluster, CLUSTER_EXAMPLE),
    "prices": (read_prices, EXAMPLE.read_text(encoding="utf-8")),
    "tasks": (lambda path: read_tasks(path, VERBS), TASKS_EXAMPLE),
}
WORDS = ["", ":", "- ", "[", "}", "*a", "&a ", "!!python/object:os.system ", "0x", "1e999", "-1", "null", "true", "\t", "'", '"', "\x00", "<<: "]
WORDS += ["2024-13-45", "é"]
PIECES = st.sampled_from(WORDS)
LEAVES = st.none() | st.booleans() | st.floats() | st.text(max_size=4)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=5)


@pytest.mark.parametrize("kind", READERS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), PIECES), min_size=1, max_size=4))
def test_damaged_yaml(kind: str, tmp_path: Path, cuts: list[tuple[float, int, str]]) -> None:
    read, text = READERS[kind]
    for where, length, piece in cuts:
        at = int(where * len(text))
        text = text[:at] + piece + text[at + length :]
    path = tmp_path / "file.yaml"
    path.write_bytes(text.encode("utf-8"))
    complaint = ""
    try:
        read(path)
    except NerfleetError as error:
        complaint = str(error)
    assert not complaint or "file.yaml" in complaint
    assert "\n" not in complaint


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=VALUES, key=st.sampled_from(["stages_ms", "collectives", "gpu"]))
def test_damaged_calibrations(tmp_path: Path, values: object, key: str) -> None:
    import json

    path = tmp_path / "file.json"
    path.write_text(json.dumps({"stages_ms": {}, key: values}))
    with pytest.raises(NerfleetError, match=r"file\.json: is no calibration"):
        read_calibration([path])

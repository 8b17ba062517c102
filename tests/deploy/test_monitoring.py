"""Rules and dashboards: real Prometheus reads them, promtool's tests pass, every metric in them exists."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from tests.deploy.render import K8S, MONITORING
from tests.doctor.hosts import free_port

from nerfleet.deploy.manifests import RULE_FILES, prometheus_rule
from nerfleet.telemetry.metric_names import METRICS

DASHBOARD = MONITORING / "dashboards" / "fleet.json"


def promtool(*words: object) -> str:
    if shutil.which("promtool") is None:
        pytest.skip("promtool (Debian: prometheus) is not installed")
    answer = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def test_promtool_reads_the_rules() -> None:
    assert promtool("check", "rules", *(MONITORING / name for name in RULE_FILES)).count("SUCCESS") == 2


def test_promtool_tests_of_alerts_and_autoscaling() -> None:
    files = sorted((MONITORING / "tests").glob("*.test.yaml"))
    assert [file.name for file in files] == ["alerts.test.yaml", "autoscaling.test.yaml"]
    assert promtool("test", "rules", *files).count("SUCCESS") == 2


def test_a_damaged_rule_is_seen(tmp_path: Path) -> None:
    """With a threshold of 99 % nothing is added any more, and promtool says so."""
    promtool("--version")
    for path in (*MONITORING.glob("*.yaml"), *MONITORING.glob("tests/*.yaml")):
        target = tmp_path / path.relative_to(MONITORING)
        target.parent.mkdir(exist_ok=True)
        target.write_text(path.read_text().replace("> bool 0.8", "> bool 0.99"))
    test = tmp_path / "tests" / "autoscaling.test.yaml"
    assert subprocess.run(["promtool", "test", "rules", str(test)], capture_output=True).returncode != 0


def test_the_operator_gets_the_same_rules() -> None:
    """To write the component's file again: dump(prometheus_rule(Path("deploy/monitoring"))) below its first line."""
    yaml = pytest.importorskip("yaml")
    written = yaml.safe_load((K8S / "components" / "monitoring" / "rules.yaml").read_text())
    assert written == prometheus_rule(MONITORING)


def test_every_metric_in_rules_and_dashboards_exists() -> None:
    yaml = pytest.importorskip("yaml")
    rules = [rule for name in RULE_FILES for group in yaml.safe_load((MONITORING / name).read_text())["groups"] for rule in group["rules"]]
    panels = json.loads(DASHBOARD.read_text())["panels"]
    expressions = [str(rule["expr"]) for rule in rules] + [target["expr"] for panel in panels for target in panel["targets"]]
    used = set(re.findall(r"\bnerfleet_[a-z_]+", " ".join(expressions)))
    assert used <= {metric.name for metric in METRICS}
    assert len(used) > 10
    recorded = {rule["record"] for rule in rules if "record" in rule}
    assert set(re.findall(r"nerfleet:[a-z_:]+[a-z]", " ".join(str(rule["expr"]) for rule in rules))) <= recorded


def test_names_keep_prometheus_conventions() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS) > 20
    for metric in METRICS:
        assert re.fullmatch(r"nerfleet_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.help.endswith(".")


def test_the_dashboard_is_complete() -> None:
    board = json.loads(DASHBOARD.read_text())
    assert board["uid"]
    assert {variable["name"] for variable in board["templating"]["list"]} == {"source", "namespace"}
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)


@pytest.mark.slow
def test_real_prometheus_loads_the_rules(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    files = "".join(f"  - {MONITORING / name}\n" for name in RULE_FILES)
    (tmp_path / "prometheus.yml").write_text(f"rule_files:\n{files}")
    port = free_port()
    flags = [f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(["prometheus", *flags], stdout=log, stderr=log)
    try:
        begin = time.monotonic()
        while True:
            assert server.poll() is None, (tmp_path / "log").read_text()[-2000:]
            assert time.monotonic() - begin < 60
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/rules", timeout=5) as answer:
                    groups = json.load(answer)["data"]["groups"]
                break
            except OSError:
                time.sleep(0.2)
    finally:
        server.kill()
        server.wait()
    assert {group["name"]: len(group["rules"]) for group in groups} == {"nerfleet": 8, "nerfleet-autoscaling": 9}
    assert all(rule["health"] in ("unknown", "ok") for group in groups for rule in group["rules"])

"""A finished run over HTTP: its report, and its last figures as Prometheus reads them. Nothing else of the folder is shown."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from nerfleet.telemetry.metric_names import PSNR, RUN_COMPLETE, STEPS, TRAIN_SECONDS

FIGURES = {"steps": STEPS, "psnr_mean": PSNR, "train_seconds": TRAIN_SECONDS}
"""Key of report.json -> metric."""


def serve(host: str, port: int, run: Path, leave: threading.Event, give_sign: Callable[[], None], period_seconds: float) -> None:
    """Serve until ``leave`` is set; ``give_sign`` is called all the while."""
    with ThreadingHTTPServer((host, port), handler(run)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        while not leave.wait(period_seconds):
            give_sign()
        server.shutdown()
        thread.join()


def handler(run: Path) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(metrics(run).encode(), "text/plain; version=0.0.4; charset=utf-8")
            elif self.path in ("/", "/report.html") and (run / "report.html").is_file():
                self._answer((run / "report.html").read_bytes(), "text/html; charset=utf-8")
            else:
                self.send_error(404)

        def _answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Scrapes every few seconds are not worth a line."""

    return Handler


def metrics(run: Path) -> str:
    """In Prometheus' text format."""
    values: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        values = json.loads((run / "report.json").read_text())
    lines = [f"# HELP {RUN_COMPLETE.name} {RUN_COMPLETE.help}", f"# TYPE {RUN_COMPLETE.name} {RUN_COMPLETE.kind}", f"{RUN_COMPLETE.name} 1"]
    for key, metric in FIGURES.items():
        value = values.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}", f"{metric.name} {value}"]
    return "\n".join(lines) + "\n"

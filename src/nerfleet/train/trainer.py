"""The training loop: steps, progress, checkpoints, evaluation, and ending in good order."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nerfleet.config import TrainConfig, to_dict
from nerfleet.data.scene import Scene
from nerfleet.errors import NerfleetError
from nerfleet.nn.field import field_spec
from nerfleet.nn.model import Model
from nerfleet.render.evaluate import Evaluation, evaluate
from nerfleet.train.checkpoint import MARKER, CheckpointStore, Write, unreadable
from nerfleet.train.graph import GraphedStep
from nerfleet.train.photographs import Photographs
from nerfleet.train.ranks import Parallel, SingleDevice
from nerfleet.train.stats import StatsReader, StepStats
from nerfleet.train.step import Start, TrainStep, is_refresh

RATE_WINDOW_SECONDS = 3.0
WISH_STOP, WISH_END, WISH_SAVE = 1, 2, 4
"""Bits that ranks agree on: a signal came; the time is over; a checkpoint is due."""
SHOWN_VIEWS = 6
HISTORY_LENGTH = 2000
"""Points of the loss curve that are kept; when there are more, every second one is dropped."""


@dataclass(frozen=True)
class Progress:
    """What the terminal shows. ``psnr`` is estimated from the training loss, smoothed."""

    step: int
    steps: int
    loss: float
    psnr: float
    rays_per_s: float
    samples_per_s: float
    seconds: float
    seconds_left: float | None
    skipped_steps: int


@dataclass
class History:
    """Curves of a run: one entry a recorded step."""

    steps: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    evaluations: list[tuple[int, float, float]] = field(default_factory=list)  # (step, seconds, held-out PSNR)

    def record(self, step: int, seconds: float, loss: float) -> None:
        self.steps.append(step)
        self.seconds.append(seconds)
        self.losses.append(loss)
        if len(self.steps) > HISTORY_LENGTH:
            self.steps, self.seconds, self.losses = self.steps[::2], self.seconds[::2], self.losses[::2]


@dataclass(frozen=True)
class TrainResult:
    """A finished (or stopped) run.

    Attributes:
        model: averaged weights. trained_samples: samples with a gradient, all steps. train_seconds: without loading,
            compiling and evaluating. evaluation: held-out scores, None without held-out views.
        stopped_by: "steps", "max_seconds" or "signal". images: how the photographs were read, if they were read while training ran.
    """

    model: Model
    steps: int
    trained_samples: int
    train_seconds: float
    world_size: int
    strategy: str
    skipped_steps: int
    history: History
    evaluation: Evaluation | None
    stopped_by: str
    last_step: StepStats | None
    images: dict[str, Any] = field(default_factory=dict)


def choose_device(name: str) -> torch.device:
    """"auto", "cpu" or "cuda" -> device; a missing GPU is an error only when it was asked for."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise NerfleetError("device", f"{name!r} is not a device", "use auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise NerfleetError("device", "no CUDA GPU can be used here", "use --device cpu, or see `nvidia-smi`")
    return torch.device(name)


def train(
    scene: Scene,
    config: TrainConfig | None = None,
    *,
    device: str = "auto",
    out: Path | None = None,
    held_out: Scene | None = None,
    parallel: Parallel | None = None,
    photographs: Photographs | None = None,
    write: Write | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    say: Callable[[str], None] | None = None,
    start: Start | None = None,
) -> TrainResult:
    """Train a radiance field on a scene.

    Args:
        config: knobs; None: defaults.
        device: "auto", "cpu" or "cuda".
        out: run folder for checkpoints; a complete checkpoint in it is continued. None: nothing is written.
        held_out: views to score the result on (and every ``config.eval_every_steps`` steps).
        write: has checkpoints written by another process (:meth:`nerfleet.pipeline.writer.Writer.submit`).
        photographs: where the pixels come from if not from ``scene.pixels`` (nerfleet.pipeline); closed at the end.
        on_progress: called about four times a second. say: called with remarks, one line each.
        start: a model to go on from, where ``out`` holds no checkpoint.

    Raises:
        NerfleetError: bad knobs, nothing to train on, or training that does not recover from non-finite steps.
    """
    config = config or TrainConfig()
    config.validate()
    if len(scene) == 0:
        raise NerfleetError(scene.name, "has no photographs to train on", "see `nerfleet info`")
    if start is not None:
        _must_suit(start, config, scene)
    if photographs is None and len(scene.pixels) == 0:
        raise NerfleetError(scene.name, "its photographs are not decoded", "read it with load_scene, or hand over `photographs`")
    with contextlib.ExitStack() as ending:
        if photographs is not None:
            ending.callback(photographs.close)
        ranks, told = parallel or SingleDevice(), say or (lambda _: None)
        run = _Run(scene, config, choose_device(device), out, held_out, ranks, photographs, write, on_progress, told, start)
        return run.run()


class _Run:
    def __init__(
        self, scene: Scene, config: TrainConfig, device: torch.device, out: Path | None, held_out: Scene | None, parallel: Parallel,
        photographs: Photographs | None, write: Write | None, on_progress: Callable[[Progress], None] | None, say: Callable[[str], None],
        start: Start | None,
    ) -> None:  # fmt: skip
        self.config, self.device, self.held_out, self.parallel = config, device, held_out, parallel
        self.on_progress, self.say = on_progress, say
        self.store = CheckpointStore(out, write, say) if out is not None else None
        found = self._found(scene)
        start = start if found is None else None
        with _reading_marker(found[0]) if found is not None else contextlib.nullcontext():
            parallel.recall(found[1].get("parallel", {}) if found is not None else {})
            self.step = TrainStep(scene, config, device, parallel, start, photographs, fresh=found is None)
        self.step.compile()
        self.advance: Callable[[int], None] = GraphedStep(self.step) if device.type == "cuda" else self.step
        self.done = self.first = start.step if start is not None else 0  # steps issued, of these before this session
        self.trained_samples = 0
        self.skipped = 0
        self.skipped_in_a_row = 0
        self.history = History()
        self.last: StepStats | None = None
        self.smoothed_loss = math.nan
        self.clock = _Clock()
        self.recent: deque[tuple[float, int, int]] = deque()  # (time, rays, kept)
        if found is not None:
            with _reading_marker(found[0]):
                self._resume(*found)
        self.reader = StatsReader(self.step.control.stats, self.done)

    def _found(self, scene: Scene) -> tuple[Path, dict[str, Any]] | None:
        """The checkpoint to continue from, as the first rank sees it."""
        answer: Any = None
        try:
            found = self.store.latest() if self.store and self.parallel.rank == 0 else None
            if found is not None:
                with _reading_marker(found[0]):
                    _must_fit(*found, self.config, scene)
            answer = found
        except NerfleetError as error:
            answer = error
        first = self.parallel.exchange(answer)[0]
        if isinstance(first, NerfleetError):
            raise first
        return first

    def run(self) -> TrainResult:
        """Train to the end."""
        self._wait_for_photographs()
        last_saved = last_shown = time.monotonic()
        with _stop_signals() as stop:
            self.clock.start()
            stopped_by = "steps" if self.done >= self.config.steps else self._reason_to_stop(self._wishes(stop, last_saved))
            while stopped_by is None:
                self.step.photographs.before_step(self.last.rays // self.parallel.world_size if self.last else 0)
                if self.parallel.wants_time(self.done):
                    self._timed_step()
                else:
                    self.advance(self.done)
                self._account(self.reader.after_step(self.done))
                self.done += 1
                agreed = self.parallel.agree(self.done, self._wishes(stop, last_saved))
                stopped_by = self._reason_to_stop(agreed)
                if stopped_by is not None:
                    break
                now = time.monotonic()
                if now - last_shown > 0.25:
                    last_shown = now
                    self._show()
                if agreed & WISH_SAVE:
                    last_saved = now
                    self._save()
                if self.config.eval_every_steps and self.held_out and self.done % self.config.eval_every_steps == 0:
                    self._evaluate()
            self._account(self.reader.finish(self.done - 1))
            self.clock.stop()
            self._show()
            self._save_for_good()
        evaluation = self._evaluate(shown_views(len(self.held_out))) if self.held_out is not None and stopped_by != "signal" else None
        model = self.step.model()
        self.parallel.finished()
        return TrainResult(
            model, self.done, self.trained_samples, self.clock.seconds, self.parallel.world_size, self.parallel.strategy,
            self.skipped, self.history, evaluation, stopped_by, self.last, self.step.photographs.report(),
        )  # fmt: skip

    def _wait_for_photographs(self) -> None:
        """Until all ranks have enough to begin with; an error of one is raised on all."""
        try:
            self.step.photographs.wait()
        except NerfleetError as error:
            self.parallel.exchange(error)
            raise
        self.parallel.exchange(None)

    def _wishes(self, stop: threading.Event, last_saved: float) -> int:
        """What this rank wants to happen after this step, as bits: all ranks must do it at the same step."""
        late = bool(self.config.max_seconds) and self.clock.seconds >= self.config.max_seconds
        due = self.store is not None and time.monotonic() - last_saved > self.config.checkpoint_every_seconds
        return WISH_STOP * stop.is_set() | WISH_END * late | WISH_SAVE * due

    def _reason_to_stop(self, agreed: int) -> str | None:
        if self.done >= self.config.steps:
            return "steps"
        return "signal" if agreed & WISH_STOP else "max_seconds" if agreed & WISH_END else None

    def _timed_step(self) -> None:
        """A step outside of any graph whose rays are timed, so that faster ranks can be given more of them."""
        if is_refresh(self.done, self.config.reference_step_ratio):
            self.step.refresh_occupancy(self.done)
        self._wait_for_device()
        begin = time.perf_counter()
        self.step.forward_backward()
        self._wait_for_device()
        self.parallel.balance(self.step.rank_state, time.perf_counter() - begin)
        self.step.update()

    def _wait_for_device(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _account(self, rows: list[StepStats]) -> None:
        capacity = self.step.capacity
        for row in rows:
            self.last = row
            self.trained_samples += row.kept if row.kept <= capacity else 0
            self.recent.append((time.monotonic(), row.rays, row.kept))
            self.skipped += row.skipped
            self.skipped_in_a_row = self.skipped_in_a_row + 1 if row.skipped else 0
            if not row.skipped:
                self.smoothed_loss = row.loss if math.isnan(self.smoothed_loss) else 0.95 * self.smoothed_loss + 0.05 * row.loss
            if row.step % max(self.config.steps // HISTORY_LENGTH, 1) == 0:
                self.history.record(row.step, self.clock.seconds, row.loss)
        if self.skipped_in_a_row > self.config.max_skipped_steps:
            found = f"{self.skipped_in_a_row} steps in a row were not finite"
            raise NerfleetError(f"step {self.done}", found, "lower the learning rate, or resume from a checkpoint")
        while len(self.recent) > 2 and self.recent[-1][0] - self.recent[0][0] > RATE_WINDOW_SECONDS:
            self.recent.popleft()

    def _show(self) -> None:
        if self.on_progress is None or self.last is None:
            return
        span = max(self.recent[-1][0] - self.recent[0][0], 1e-9)
        rays, samples = (sum(entry[i] for entry in list(self.recent)[1:]) / span for i in (1, 2))
        left = (self.config.steps - self.done) * self.clock.seconds / max(self.done - self.first, 1)
        if self.config.max_seconds:
            left = min(left, max(self.config.max_seconds - self.clock.seconds, 0))
        psnr = -10 * math.log10(self.smoothed_loss) if self.smoothed_loss > 0 else math.inf if self.smoothed_loss == 0 else math.nan
        self.on_progress(Progress(self.done, self.config.steps, self.last.loss, psnr, rays, samples, self.clock.seconds, left, self.skipped))

    def _evaluate(self, pictures_of: Sequence[int] = ()) -> Evaluation:
        """All ranks together, each on the pixels that it holds."""
        assert self.held_out is not None

        def alive(_: float) -> None:
            self.parallel.alive("evaluating")

        with self.clock.paused():
            options: dict[str, Any] = {"background": scored_background(self.config), "n_pixels": self.config.eval_pixels, "pictures_of": pictures_of}
            result = evaluate(self.step.model(), self.held_out, **options, exchange=self.parallel.exchange, progress=alive)
        self.history.evaluations.append((self.done, self.clock.seconds, result.psnr_mean))
        return result

    def _save(self) -> None:
        tensors = self.parallel.collect(self.step.state_tensors(), self.step.sharded_tensors()) if self.store and self.done > 0 else None
        if tensors is None or self.store is None:
            return
        history = {name: getattr(self.history, name) for name in ("steps", "seconds", "losses", "evaluations")}
        values: dict[str, Any] = {"step": self.done, "train_seconds": self.clock.seconds, "trained_samples": self.trained_samples}
        values |= {"skipped": self.skipped, "history": history, "config": to_dict(self.config), "world_size": self.parallel.world_size}
        values |= {"aabb_scale": self.step.aabb_scale, "parallel": self.parallel.remember()}
        self.store.save(tensors, values)

    def _save_for_good(self) -> None:
        """The last checkpoint; once more if the process that was writing it is lost."""
        for _ in range(2):
            self._save()
            if self.store is None or self.store.wait():
                return
        raise NerfleetError(str(self.store.folder) if self.store else "checkpoints", "the last one was lost twice", "run the same command again")

    def _resume(self, folder: Path, values: dict[str, Any]) -> None:
        store = self.store
        assert store is not None
        before = values["config"]
        changed = [f"{key} {before.get(key)} -> {value}" for key, value in to_dict(self.config).items() if before.get(key) != value]
        self.parallel.spread(self.step.state_tensors(), self.step.sharded_tensors(), lambda tensors: store.load(folder, tensors))
        self.step.restore()
        self.done = self.first = int(values["step"])
        self.trained_samples, self.skipped = int(values["trained_samples"]), int(values["skipped"])
        self.clock.seconds_before = float(values["train_seconds"])
        self.history = History(**values["history"])
        self.say(f"continues at step {self.done} from {folder}" + (f"; changed since: {', '.join(changed)}" if changed else ""))


@contextlib.contextmanager
def _reading_marker(folder: Path) -> Iterator[None]:
    """Values of a marker that are missing or of another kind make its checkpoint unreadable."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise unreadable(folder, f"{MARKER}: {type(error).__name__}: {error}") from None


def _must_fit(folder: Path, values: dict[str, Any], config: TrainConfig, scene: Scene) -> None:
    """Whether a checkpoint can be continued, before anything large is made."""
    if values["config"]["network"] != to_dict(config)["network"]:
        raise NerfleetError(str(folder), "holds a model of another network configuration", "choose another --out, or the same --network")
    if values["aabb_scale"] != scene.aabb_scale:
        box = f"holds a model of a box of edge {values['aabb_scale']}, the scene's is {scene.aabb_scale}"
        raise NerfleetError(str(folder), box, "choose another --out")


def _must_suit(start: Start, config: TrainConfig, scene: Scene) -> None:
    """Whether training can go on from a model. Raises NerfleetError."""
    if start.model.spec != field_spec(config.network, scene.aabb_scale) or start.model.aabb_scale != scene.aabb_scale:
        box = f"has another network, or another box: its edge is {start.model.aabb_scale}, the scene's is {scene.aabb_scale}"
        raise NerfleetError("the model to start from", box, "train it on the scene that it was made from")


class _Clock:
    """Training time: counts while it runs, over all sessions of a run."""

    def __init__(self) -> None:
        self.seconds_before = 0.0
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        return self.seconds_before + (time.perf_counter() - self._since if self._since is not None else 0.0)

    def start(self) -> None:
        self._since = time.perf_counter()

    def stop(self) -> None:
        self.seconds_before, self._since = self.seconds, None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        running = self._since is not None
        if running:
            self.stop()
        yield
        if running:
            self.start()


@contextlib.contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """SIGINT and SIGTERM set the event (the step at hand is finished, the run is saved); a second SIGINT interrupts."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: object) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def shown_views(n_views: int) -> range:
    """Held-out views, spread out, whose pictures are kept with the last scores."""
    return range(0, n_views, max(1, n_views // SHOWN_VIEWS))[:SHOWN_VIEWS]


def scored_background(config: TrainConfig) -> tuple[float, float, float]:
    """sRGB colour that held-out views are scored in front of."""
    return (1.0, 1.0, 1.0) if config.background == "white" else (0.0, 0.0, 0.0)

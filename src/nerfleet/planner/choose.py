"""Which number of GPUs, strategy and grid degree: every possibility simulated, the best one chosen, and why in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from nerfleet.config import TrainConfig
from nerfleet.errors import NerfleetError
from nerfleet.planner.calibration import Calibration
from nerfleet.planner.memory import USABLE_SHARE
from nerfleet.planner.simulate import Simulated, simulate
from nerfleet.planner.stages import FIXED, HALF
from nerfleet.planner.topology import Cluster
from nerfleet.planner.workload import Profile, SceneFacts, adapted, workload

DECODED_PIXELS_PER_S = 250e6
"""Of one CPU core: a JPEG of 1080x1920 takes 6.5 to 10 ms (docs/log.md); PNG files take longer."""
START_SECONDS = 8.0
"""From the command to the first step, kernels cached, several ranks (docs/performance.md)."""
MEASURED_MARGIN, ESTIMATED_MARGIN = 1.05, 1.25
"""How much faster than data parallelism a split grid must be where the prediction rests on measurements, or only on data sheets."""
FEWER_GPUS_MARGIN = 1.03


@dataclass(frozen=True)
class Option:
    """One possibility.

    Attributes:
        steps: that train on as many samples as the configuration's steps on one GPU. train_seconds: with start and loading.
        load_seconds: decoding the photographs on all CPU cores.
        measured: the prediction rests on measurements of these GPUs (and of the links between them).
    """

    simulated: Simulated
    steps: int
    train_seconds: float
    load_seconds: float
    measured: bool

    @property
    def n_gpus(self) -> int:
        return self.simulated.n_gpus

    @property
    def strategy(self) -> str:
        return self.simulated.strategy

    @property
    def samples_per_s(self) -> float:
        return self.simulated.load.batch / self.simulated.step_seconds


@dataclass(frozen=True)
class Choice:
    """Attributes: why: sentences, the decisive one first."""

    option: Option
    why: tuple[str, ...]


def possibilities(
    scene: SceneFacts, config: TrainConfig, cluster: Cluster, calibration: Calibration, counts: Sequence[int] = (), fixed_batch: bool = False
) -> list[Option]:
    """Options for so many of the cluster's GPUs (default: all, and the powers of two below), every grid degree that is possible.

    Args:
        config: of one GPU; its batch grows with the GPUs and its steps shrink, unless ``fixed_batch``.
    """
    profile = calibration.profile_for(scene.name) or adapted(calibration.steps[0].load.profile, scene)
    total = len(cluster.cards)
    wanted = sorted({n for n in counts or [1 << k for k in range(total.bit_length())] if n <= total} | (set() if counts else {total}))
    found = []
    for n in wanted:
        part = cluster.first(n)
        n_columns = config.network.encoding.n_levels * config.network.encoding.n_features_per_level
        for grid in (degree for degree in range(1, n + 1) if n % degree == 0 and degree <= min(n_columns, 32)):
            found.append(_option(scene, config, profile, part, grid, calibration, fixed_batch))
    return found


def _option(scene: SceneFacts, config: TrainConfig, profile: Profile, cluster: Cluster, grid: int, calibration: Calibration, fixed_batch: bool) -> Option:
    n = len(cluster.cards)
    batch = config.batch_size if fixed_batch else config.batch_size * n
    samples = config.steps * config.batch_size
    steps = -(-samples // batch)
    load = workload(scene, dataclasses.replace(config, batch_size=batch, max_rays=config.max_rays), profile)
    simulated = simulate(load, cluster, grid, calibration)
    measured = all(calibration.measured(card.gpu) for card in cluster.cards)
    if n > 1:
        measured = measured and calibration.collectives_for(n, len(cluster.hosts)) is not None
    cpus = sum(host.n_cpus for host in cluster.hosts)
    load_seconds = scene.n_pixels / DECODED_PIXELS_PER_S / max(cpus, 1)
    return Option(simulated, steps, START_SECONDS + load_seconds + steps * simulated.step_seconds, load_seconds, measured)


def choose(options: Sequence[Option]) -> Choice:
    """The fastest option that leaves a fifth of every GPU's memory free, with a bias to fewer GPUs and to data parallelism.

    Raises:
        NerfleetError: nothing fits any of the GPUs; says what would.
    """
    fitting = [option for option in options if option.simulated.comfortable] or [option for option in options if option.simulated.fits]
    if not fitting:
        raise _nothing_fits(options)
    best = min(fitting, key=lambda option: option.train_seconds)
    fewer = [option for option in fitting if option.n_gpus < best.n_gpus and option.train_seconds <= FEWER_GPUS_MARGIN * best.train_seconds]
    best = min(fewer, key=lambda option: (option.n_gpus, option.train_seconds), default=best)
    same = {option.simulated.grid: option for option in options if option.n_gpus == best.n_gpus}
    data = same[1]
    margin = MEASURED_MARGIN if best.measured else ESTIMATED_MARGIN
    if best.simulated.grid > 1 and data in fitting and data.simulated.step_seconds <= margin * best.simulated.step_seconds:
        best = data
    return Choice(best, tuple(_reasons(best, data, same, options)))


def _nothing_fits(options: Sequence[Option]) -> NerfleetError:
    nearest = min(options, key=lambda option: option.simulated.fills)
    fullest = max(nearest.simulated.ranks, key=lambda rank: rank.fills)
    load, memory = nearest.simulated.load, fullest.memory
    encoding = load.network.encoding
    what = f"{load.scene.name} with 2^{encoding.log2_hashmap_size} entries a level"
    wrong = f"needs {memory.device / 1e9:.1f} GB of a {fullest.gpu} of {fullest.card_bytes / 1e9:.0f} GB even as {nearest.strategy} on {nearest.n_gpus} GPU(s)"
    remedies = []
    others = memory.device - memory.table
    if memory.pixels > 0.5 * fullest.card_bytes:
        remedies.append(f"--downscale {max(2, int((memory.pixels / (0.4 * fullest.card_bytes)) ** 0.5) + 1)}")
        others -= 0.75 * memory.pixels
    room = USABLE_SHARE * fullest.card_bytes - others
    if room > 0:
        shrink = 0
        while memory.table / 2**shrink > room and encoding.log2_hashmap_size - shrink > 14:
            shrink += 1
        if shrink:
            remedies.append(f"log2_hashmap_size {encoding.log2_hashmap_size - shrink}")
    elif memory.buffers > memory.pixels:
        remedies.append(f"--batch-size {max(1 << 14, load.batch // 4)}")
    return NerfleetError(what, wrong, f"what would fit: {' and '.join(remedies) or 'a GPU with more memory'}")


def _reasons(best: Option, data: Option, same: dict[int, Option], options: Sequence[Option]) -> list[str]:
    found = [_strategy_reason(best, data, same)]
    alone = next((option for option in options if option.n_gpus == 1), None)
    if alone is not None and best.n_gpus > 1:
        gain = best.samples_per_s / alone.samples_per_s
        found.append(f"{best.n_gpus} GPUs train {gain:.2f} times as many samples a second as one ({gain / best.n_gpus:.0%} of {best.n_gpus} times).")
    most = max(options, key=lambda option: option.n_gpus)
    if most.n_gpus > best.n_gpus:
        rival = min((option for option in options if option.n_gpus == most.n_gpus), key=lambda option: option.train_seconds)
        if not rival.simulated.fits:
            found.append(f"{rival.n_gpus} GPUs: not enough memory.")
        else:
            found.append(f"{rival.n_gpus} GPUs would take {rival.train_seconds:.0f} s: {_exchange_share(rival):.0%} of each step would go into exchanges.")
    shares = [rank.share for rank in best.simulated.ranks]
    if max(shares) > 1.02 * min(shares):
        listed = ", ".join(f"{share:.0%}" for share in shares[:8]) + (", ..." if len(shares) > 8 else "")
        found.append(f"The GPUs differ: rays are shared out by speed ({listed}).")
    if not best.measured:
        remedy = "`nerfleet bench step --save FILE` and `bench collectives --save FILE` measure them"
        found.append(f"These GPUs or their links were not measured: predictions rest on data sheets ({remedy}).")
    return found


def _strategy_reason(best: Option, data: Option, same: dict[int, Option]) -> str:
    simulated, load = best.simulated, best.simulated.load
    table = f"{1e-6 * (FIXED + HALF) * load.n_params:.0f} MB together"
    if best.n_gpus == 1:
        return f"One GPU: nothing has to be exchanged; {simulated.fills:.0%} of its memory is used."
    if simulated.grid == 1:
        rivals = [option for grid, option in same.items() if grid > 1 and option.simulated.placed]
        rival = min(rivals, key=lambda option: option.simulated.step_seconds, default=None)
        text = f"Data parallel: the table of {load.n_params / 1e6:.1f} M parameters fits every GPU ({simulated.fills:.0%} of the fullest is used)"
        if rival is None:
            return text + "."
        exchanged = f"{1e3 * simulated.exchange_seconds:.2f} ms a step, a split grid's features {1e3 * rival.simulated.exchange_seconds:.2f} ms"
        return f"{text}; its gradients and weights ({table}) travel in {exchanged}."
    groups = f" in {simulated.data} groups" if simulated.data > 1 else ""
    split = f"The grid is split over {simulated.grid} GPUs{groups}"
    if not data.simulated.fits:
        return f"{split}: whole, it needs {_fullest_bytes(data) / 1e9:.1f} GB a GPU, which no longer fits."
    if not data.simulated.comfortable:
        return f"{split}: with data parallelism a GPU would be {data.simulated.fills:.0%} full (limit {USABLE_SHARE:.0%})."
    travel = f"gradients and weights of the whole table ({table}) would take {1e3 * data.simulated.exchange_seconds:.2f} ms a step to travel"
    return f"{split}: {travel}, the samples' features {1e3 * simulated.exchange_seconds:.2f} ms."


def _fullest_bytes(option: Option) -> float:
    return max(option.simulated.ranks, key=lambda rank: rank.fills).memory.device


def _exchange_share(option: Option) -> float:
    return option.simulated.exchange_seconds / option.simulated.step_seconds

"""``nerfleet plan``: which GPUs, which strategy, how long, how much memory; and which task goes to which GPU."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from nerfleet.cli.flags import print_json
from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    from nerfleet.config import TrainConfig
    from nerfleet.planner.calibration import Calibration
    from nerfleet.planner.topology import Cluster

SUMMARY = "which GPUs and strategy, how long, how much memory"
PIPE_WIDTH = 170


@dataclass(frozen=True)
class Arguments:
    """Predict step time, training time and memory of a scene on a cluster, and choose a strategy; or assign tasks to GPUs.

    Examples:
        nerfleet plan data/fox --gpus "4 x RTX 4090"
        nerfleet plan data/fox --cluster cluster.yaml --calibration step.json collectives.json
        nerfleet plan data/lego --network big --gpus "2 x RTX 3090, 1 x RTX 3060" --json
        nerfleet plan --tasks tasks.yaml --gpus "2 x RTX 3090, 1 x RTX 3060"

    Without --cluster and --gpus the GPUs of this machine are meant.

    Attributes:
        scene: a transforms.json, or a folder that holds one.
        cluster: YAML file of hosts, GPUs and links.
        gpus: GPUs in words instead of a file, such as "4 x RTX 4090".
        link: with --gpus: what joins them, such as nvlink4, pcie4.
        gpus_per_host: with --gpus: how many are in a host; 0: all.
        network_link: with --gpus-per-host: what joins the hosts.
        calibration: files that bench step --save and bench collectives --save wrote.
        network: base, small, big, or a network JSON file.
        log2_hashmap_size: entries of a level as a power of two, instead of the network's; 0: the network's.
        preset: basic or advanced.
        batch_size: samples of a step, all GPUs together; 0: 2^18 a GPU.
        steps: of one GPU; more GPUs take fewer steps, of larger batches.
        downscale: photographs reduced by this factor.
        tasks: YAML file of tasks, to be assigned to the GPUs.
        json: print one JSON object.
    """

    scene: tyro.conf.Positional[Path | None] = None
    cluster: Path | None = None
    gpus: str = ""
    link: str = ""
    gpus_per_host: int = 0
    network_link: str = "25gbe"
    calibration: tuple[Path, ...] = ()
    network: str = "base"
    log2_hashmap_size: int = 0
    preset: Literal["none", "basic", "advanced"] = "none"
    batch_size: int = 0
    steps: int = 20_000
    downscale: int = 1
    tasks: Path | None = None
    json: bool = False


def run(arguments: Arguments) -> None:
    from nerfleet.planner.calibration import read_calibration

    if (arguments.scene is None) == (arguments.tasks is None):
        raise NerfleetError("plan", "needs either a scene or --tasks", "for example `nerfleet plan data/fox`")
    calibration = read_calibration(arguments.calibration)
    cluster = find_cluster(arguments, calibration)
    if arguments.tasks is not None:
        _plan_tasks(arguments, arguments.tasks, cluster, calibration)
    else:
        _plan_scene(arguments, cluster, calibration)


def find_cluster(arguments: Arguments, calibration: Calibration) -> Cluster:
    """The cluster that the flags describe; without them this machine's GPUs, else the GPU of a calibration file.

    Raises:
        NerfleetError: contradictory flags, an unknown GPU, no GPU.
    """
    from nerfleet.planner.topology import parse_gpus, read_cluster, this_machine, uniform

    if arguments.cluster and arguments.gpus:
        raise NerfleetError("--cluster and --gpus", "contradict each other", "give one of them")
    if arguments.gpus_per_host < 0:
        raise NerfleetError(f"--gpus-per-host {arguments.gpus_per_host}", "is negative", "use 0 (all in one host) or more")
    if arguments.cluster:
        return read_cluster(arguments.cluster)
    if arguments.gpus:
        cluster = parse_gpus(arguments.gpus, arguments.link, arguments.gpus_per_host, arguments.network_link)
        too_old = next((card.gpu for card in cluster.cards if not card.gpu.trains), None)
        if too_old is not None:
            raise NerfleetError(f"--gpus {arguments.gpus}", f"PyTorch for CUDA 13 does not run on a {too_old.name}", "use a T4, an RTX 20 or newer")
        return cluster
    found = this_machine()
    if found is not None:
        return found
    if arguments.calibration:
        return uniform(calibration.steps[0].gpu, 1, link="none")
    raise NerfleetError("this machine", "has no NVIDIA GPU", 'name some: --gpus "4 x RTX 4090", or --cluster FILE')


def config_of(arguments: Any) -> TrainConfig:
    """Flags -> configuration of one GPU. Raises NerfleetError."""
    from nerfleet.config import TrainConfig
    from nerfleet.presets import apply_mode, load_network

    network = load_network(arguments.network)
    if arguments.log2_hashmap_size:
        network = dataclasses.replace(network, encoding=dataclasses.replace(network.encoding, log2_hashmap_size=arguments.log2_hashmap_size))
    config = TrainConfig(network=network, steps=arguments.steps)
    if arguments.preset != "none":
        config = apply_mode(config, arguments.preset)
    if arguments.batch_size:
        config = dataclasses.replace(config, batch_size=arguments.batch_size)
    config.validate()
    return config


def _plan_scene(arguments: Arguments, cluster: Cluster, calibration: Calibration) -> None:
    from nerfleet.cli.scene_facts import scene_facts
    from nerfleet.parallel.auto import GRID_ON_CUDA
    from nerfleet.planner.choose import choose, possibilities
    from nerfleet.planner.explain import plan_values

    assert arguments.scene is not None
    facts = scene_facts(arguments.scene, arguments.downscale)
    options = possibilities(facts, config_of(arguments), cluster, calibration, fixed_batch=arguments.batch_size > 0)
    choice = choose(options)
    if choice.option.simulated.grid > 1 and not GRID_ON_CUDA:
        choice = dataclasses.replace(choice, why=(*choice.why, "This version splits the grid on CPUs only: on GPUs use --parallel data until it does."))
    if arguments.json:
        print_json(plan_values(choice, options))
        return
    _print(cluster, choice, options)


def _plan_tasks(arguments: Arguments, tasks: Path, cluster: Cluster, calibration: Calibration) -> None:
    from nerfleet.cli.task_plan import plan_tasks, print_schedule, schedule_values

    _, machines, schedule = plan_tasks(tasks, cluster, calibration)
    if arguments.json:
        print_json(schedule_values(machines, schedule))
    else:
        print_schedule(machines, schedule)


def _print(cluster: Cluster, choice: Any, options: Any) -> None:
    from nerfleet.planner.explain import flags, option_rows, rank_rows, stage_rows

    console = wide_console()
    console.print(f"cluster: {cluster.describe()}")
    shown = [option for option in options if option is choice.option or option.simulated.grid == 1 or option.n_gpus == choice.option.n_gpus]
    marked = [(">" if option is choice.option else "", *row) for option, row in zip(shown, option_rows(shown))]
    console.print(table(("", "GPUs", "strategy", "ms a step", "samples/s", "memory of a GPU", "training", "remark"), marked))
    console.print(table(("stage", "ms"), stage_rows(choice.option)))
    if choice.option.n_gpus > 1:
        console.print(table(("rank", "host", "GPU", "rays", "rays a step", "room for samples", "levels", "memory"), rank_rows(choice.option)[:16]))
    for sentence in choice.why:
        console.print(sentence)
    console.print(f"nerfleet train SCENE {flags(choice.option)}")


def table(titles: tuple[str, ...], rows: Any) -> Any:
    """Columns of texts; those that begin with a figure are set to the right."""
    from rich import box
    from rich.table import Table

    found = Table(box=box.SIMPLE, pad_edge=False)
    for i, title in enumerate(titles):
        numeric = all(row[i][:1].isdigit() or not row[i] for row in rows)
        found.add_column(title, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        found.add_row(*row)
    return found


def wide_console() -> Any:
    """The terminal; a file or a pipe gets lines that are long enough for every table."""
    from rich.console import Console

    console = Console(markup=False, highlight=False)
    return console if console.is_terminal else Console(markup=False, highlight=False, width=PIPE_WIDTH)

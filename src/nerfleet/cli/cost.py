"""``nerfleet cost``: time and money for numbers of GPUs and kinds of machines."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from nerfleet.cli.flags import print_json, say
from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    from nerfleet.planner.calibration import Calibration
    from nerfleet.planner.choose import Option
    from nerfleet.planner.cost import Offer
    from nerfleet.planner.prices import Instance
    from nerfleet.planner.workload import SceneFacts

SUMMARY = "time and money for numbers of GPUs and kinds of machines"
DEFAULT_COUNTS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Arguments:
    """What a training takes in time and money, on machines that are rented whole; cheapest, fastest and best value are marked.

    Examples:
        nerfleet cost data/fox --catalog prices.yaml
        nerfleet cost data/fox --gpu-counts 1 4 8 --plot cost.svg
        nerfleet cost --measured 1=36h 4=8.5h 8=4.5h --machine-gpus 4 --machine-price 12

    Without --catalog an example of prices is used, which `nerfleet cost --print-catalog` prints to be edited.

    Attributes:
        scene: a transforms.json, or a folder that holds one; with --measured not needed.
        catalog: YAML file of machines and prices.
        print_catalog: print the example of a price file and stop.
        calibration: files that bench step --save and bench collectives --save wrote.
        gpu_counts: numbers of GPUs.
        measured: training times that are known, as GPUs=TIME, such as 1=36h 4=8.5h.
        machine_gpus: with --measured: GPUs of a machine.
        machine_price: with --measured: price of a machine and hour.
        spot_price: with --measured: price as a spot machine; 0: not asked.
        interruptions_per_hour: with --measured: of one spot machine, expected.
        checkpoint_seconds: that a checkpoint holds training up; 0: from the model's size.
        network: base, small, big, or a network JSON file.
        log2_hashmap_size: entries of a level as a power of two; 0: the network's.
        preset: basic or advanced.
        batch_size: samples of a step; 0: 2^18 a GPU.
        steps: of one GPU.
        downscale: photographs reduced by this factor.
        currency: with --measured: for the table.
        plot: write a picture of cost against time (.svg).
        json: print one JSON object.
    """

    scene: tyro.conf.Positional[Path | None] = None
    catalog: Path | None = None
    print_catalog: bool = False
    calibration: tuple[Path, ...] = ()
    gpu_counts: tuple[int, ...] = ()
    measured: tuple[str, ...] = ()
    machine_gpus: int = 1
    machine_price: float = 0.0
    spot_price: float = 0.0
    interruptions_per_hour: float = 0.0
    checkpoint_seconds: float = 0.0
    network: str = "base"
    log2_hashmap_size: int = 0
    preset: Literal["none", "basic", "advanced"] = "none"
    batch_size: int = 0
    steps: int = 20_000
    downscale: int = 1
    currency: str = "USD"
    plot: Path | None = None
    json: bool = False


def run(arguments: Arguments) -> None:
    from nerfleet.planner.cost import marked, offer_values, why
    from nerfleet.planner.prices import EXAMPLE, read_prices

    if arguments.print_catalog:
        print(EXAMPLE.read_text(encoding="utf-8"), end="")
        return
    for key in ("machine_price", "spot_price", "interruptions_per_hour", "checkpoint_seconds"):
        value = getattr(arguments, key)
        if not math.isfinite(value) or value < 0:
            raise NerfleetError(f"--{key.replace('_', '-')} {value:g}", "is no price, rate or time", "use a number of 0 or more")
    if arguments.measured:
        offers, currency, note = measured_offers(arguments), arguments.currency, ""
    else:
        if arguments.scene is None:
            raise NerfleetError("cost", "needs a scene or --measured", "for example `nerfleet cost data/fox`, or --measured 1=36h 4=8.5h")
        prices = read_prices(arguments.catalog or EXAMPLE)
        offers, currency = predicted_offers(arguments, prices.instances), prices.currency
        origin = "the example that nerfleet brings (`--print-catalog`)" if arguments.catalog is None else str(arguments.catalog)
        note = f"prices: {origin}{f', of {prices.date}' if prices.date else ''}: check them before renting"
    offers = marked(offers)
    words = why(offers, currency)
    if arguments.plot is not None:
        _write_picture(arguments.plot, offers, currency, arguments.scene.name if arguments.scene else "measured times")
    if arguments.json:
        values = [offer_values(offer, offers) for offer in offers]
        chosen = next((value for value, offer in zip(values, offers) if "best value" in offer.marks), None)
        print_json({"options": values, "chosen": chosen, "why": words, "currency": currency})
        return
    _print(offers, currency, words, note)


def measured_offers(arguments: Arguments) -> list[Offer]:
    """From training times that the user knows. Raises NerfleetError."""
    from nerfleet.planner.cost import RESTART_SECONDS, Offer, as_spot

    if arguments.machine_gpus < 1:
        raise NerfleetError(f"--machine-gpus {arguments.machine_gpus}", "is no number of GPUs", "use 1 or more")
    if arguments.machine_price <= 0:
        raise NerfleetError(f"--machine-price {arguments.machine_price:g}", "is no price", "give the price of a machine and hour, above 0")
    offers = []
    for n_gpus, seconds in sorted(_times(arguments.measured).items()):
        machines = -(-n_gpus // arguments.machine_gpus)
        offer = Offer("machine", "measured", n_gpus, machines, arguments.machine_price * machines, seconds)
        offers.append(offer)
        if arguments.spot_price > 0:
            offers.append(as_spot(offer, arguments.spot_price, arguments.interruptions_per_hour, arguments.checkpoint_seconds or 5.0, RESTART_SECONDS))
    return offers


def _times(words: Sequence[str]) -> dict[int, float]:
    """``4=8.5h`` -> {4: 30600}. Raises NerfleetError."""
    found: dict[int, float] = {}
    for word in words:
        match = re.fullmatch(r"(\d{1,5})=(\d+(?:\.\d+)?)(s|m|min|h|d)", word)
        if match is None or int(match[1]) < 1 or float(match[2]) <= 0:
            raise NerfleetError(f"--measured {word}", "is not GPUs=TIME", "write for example 1=36h 4=8.5h")
        if int(match[1]) in found:
            raise NerfleetError(f"--measured {word}", f"{match[1]} GPUs are given twice", "give one time for each number")
        found[int(match[1])] = float(match[2]) * {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}[match[3]]
    return found


def predicted_offers(arguments: Arguments, instances: Sequence[Instance]) -> list[Offer]:
    """Every kind of machine with every number of GPUs that makes whole machines or a part of one. Raises NerfleetError."""
    from nerfleet.cli.scene_facts import scene_facts
    from nerfleet.planner.calibration import read_calibration

    assert arguments.scene is not None
    if any(count < 1 or count > 1024 for count in arguments.gpu_counts):
        raise NerfleetError(f"--gpu-counts {min(arguments.gpu_counts)}", "is no number of GPUs", "use 1 to 1024")
    facts = scene_facts(arguments.scene, arguments.downscale)
    calibration = read_calibration(arguments.calibration)
    offers = []
    failure: NerfleetError | None = None
    for instance in instances:
        counts = arguments.gpu_counts or sorted({n for n in DEFAULT_COUNTS if n >= instance.n_gpus} | {instance.n_gpus})
        for n_gpus in counts:
            try:
                offers += _offers(arguments, instance, n_gpus, facts, calibration)
            except NerfleetError as error:
                failure = error
    if not offers and failure is not None:
        raise failure
    return offers


def _offers(arguments: Arguments, instance: Instance, n_gpus: int, facts: SceneFacts, calibration: Calibration) -> list[Offer]:
    """On demand and, if it is offered, spot."""
    from nerfleet.cli.plan import config_of
    from nerfleet.planner.choose import choose, possibilities
    from nerfleet.planner.cost import CHECKPOINT_BYTES, CHECKPOINT_BYTES_PER_S, Offer, as_spot

    options = possibilities(facts, config_of(arguments), instance.cluster(n_gpus), calibration, (n_gpus,), arguments.batch_size > 0)
    option: Option = choose(options).option
    machines, simulated = instance.machines(n_gpus), option.simulated
    fullest = max(simulated.ranks, key=lambda rank: rank.fills)
    offer = Offer(
        instance.name, simulated.strategy, n_gpus, machines, machines * instance.price_per_hour, option.train_seconds,
        ms_per_step=1e3 * simulated.step_seconds, bytes_per_gpu=int(fullest.memory.peak), trains=instance.gpu.trains,
    )  # fmt: skip
    if not instance.spot_price_per_hour:
        return [offer]
    checkpoint = arguments.checkpoint_seconds or CHECKPOINT_BYTES * simulated.load.n_params / CHECKPOINT_BYTES_PER_S
    return [offer, as_spot(offer, instance.spot_price_per_hour, instance.interruptions_per_hour, checkpoint)]


def _write_picture(path: Path, offers: Sequence[Offer], currency: str, name: str) -> None:
    from nerfleet.cli.calibration_file import write_text
    from nerfleet.planner.cost import worthwhile
    from nerfleet.planner.cost_picture import cost_picture

    if path.suffix.lower() != ".svg":
        raise NerfleetError(f"--plot {path}", "is no .svg file", "name it cost.svg")
    shown = [offer for offer in worthwhile(offers) if offer.trains]
    write_text(path, cost_picture(shown, currency, f"{name}: cost against training time"), "--plot")
    say(f"picture: {path}")


def _print(offers: Sequence[Offer], currency: str, words: str, note: str) -> None:
    from nerfleet.cli.plan import table, wide_console
    from nerfleet.planner.cost import saving, worthwhile
    from nerfleet.planner.explain import duration

    shown = worthwhile(offers)
    rows = [
        (
            f"{offer.name}{' spot' if offer.spot else ''}", str(offer.n_gpus), str(offer.n_machines), offer.strategy, duration(offer.total_seconds),
            f"{offer.price_per_hour:,.2f}", f"{offer.cost:,.2f}", f"{saving(offer, offers):.0%}",
            duration(offer.checkpoint_every_seconds) if 0 < offer.checkpoint_every_seconds < 0.99 * offer.seconds else "",
            ", ".join(offer.marks) or ("" if offer.trains else "does not run"),
        )
        for offer in shown
    ]  # fmt: skip
    titles = ("machine", "GPUs", "machines", "strategy", "time", f"{currency}/h", currency, "saved", "checkpoint every", "")
    console = wide_console()
    console.print(table(titles, rows))
    if len(shown) < len(offers):
        console.print(f"{len(offers) - len(shown)} more are slower and dearer than fewer GPUs of the same machine (--json lists all).")
    console.print(words)
    if note:
        console.print(note)

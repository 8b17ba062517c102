"""Time and money of a training on rented machines, on demand and as spot instances, and advice by use."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nerfleet.planner.explain import duration

CHECKPOINT_BYTES = 16
"""Of a parameter: master, average, two moments, step count (train/checkpoint.py)."""
CHECKPOINT_BYTES_PER_S = 1e9
RESTART_SECONDS = 120.0
"""Until a lost spot machine is replaced and training goes on."""
USES = {
    "cheapest": "prototype: cheapest, it may take longer",
    "best value": "production: least cost times time",
    "fastest": "urgent: fastest",
}


@dataclass(frozen=True)
class Offer:
    """One way to train, with its price.

    Attributes:
        seconds: of training without interruptions; ``expected_seconds``: with those of spot machines and with checkpoints.
        price_per_hour: of all machines together. checkpoint_seconds: best time between two checkpoints; 0: on demand.
    """

    name: str
    strategy: str
    n_gpus: int
    n_machines: int
    price_per_hour: float
    seconds: float
    spot: bool = False
    expected_seconds: float = 0.0
    checkpoint_every_seconds: float = 0.0
    ms_per_step: float | None = None
    bytes_per_gpu: int | None = None
    trains: bool = True
    marks: tuple[str, ...] = ()

    @property
    def total_seconds(self) -> float:
        return self.expected_seconds or self.seconds

    @property
    def cost(self) -> float:
        return self.price_per_hour * self.total_seconds / 3600


def optimal_interval(checkpoint_seconds: float, mean_seconds_between_failures: float) -> float:
    """Best computing time between two checkpoints.

    Young (1974) is sqrt(2 d M); this is the higher-order estimate of Daly (2006, "A higher order estimate of the optimum checkpoint
    interval for restart dumps", eq. 37): sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + d / 18M) - d for d < 2M, else M.
    """
    d, m = checkpoint_seconds, mean_seconds_between_failures
    if d >= 2 * m:
        return m
    return math.sqrt(2 * d * m) * (1 + math.sqrt(d / (2 * m)) / 3 + d / (18 * m)) - d


def expected_seconds(work_seconds: float, interval: float, checkpoint_seconds: float, mean_seconds_between_failures: float, restart_seconds: float) -> float:
    """Wall time with failures at random moments (Daly 2006, eq. 20): M exp(R/M) (exp((t + d)/M) - 1) W / t."""
    m = mean_seconds_between_failures
    exponent = (interval + checkpoint_seconds) / m
    if exponent > 500 or restart_seconds / m > 100:
        return math.inf
    return m * math.exp(restart_seconds / m) * math.expm1(exponent) * work_seconds / interval


def as_spot(offer: Offer, price_per_hour: float, interruptions_per_hour: float, checkpoint_seconds: float, restart_seconds: float = RESTART_SECONDS) -> Offer:
    """The same machines as spot instances: any one that is taken away interrupts all.

    Args:
        price_per_hour, interruptions_per_hour: of one machine.
    """
    rate = interruptions_per_hour * offer.n_machines / 3600
    price = price_per_hour * offer.n_machines
    if rate <= 0:
        return dataclasses.replace(offer, spot=True, price_per_hour=price)
    interval = min(optimal_interval(checkpoint_seconds, 1 / rate), offer.seconds)
    expected = expected_seconds(offer.seconds, interval, checkpoint_seconds, 1 / rate, restart_seconds)
    return dataclasses.replace(offer, spot=True, price_per_hour=price, expected_seconds=expected, checkpoint_every_seconds=interval)


def marked(offers: Sequence[Offer]) -> list[Offer]:
    """The offers, with cheapest, fastest and best value (least cost times time) marked among those that can train."""
    able = [offer for offer in offers if offer.trains and math.isfinite(offer.cost)]
    if not able:
        return list(offers)
    best = {
        "cheapest": min(able, key=lambda offer: (offer.cost, offer.total_seconds)),
        "fastest": min(able, key=lambda offer: (offer.total_seconds, offer.cost)),
        "best value": min(able, key=lambda offer: offer.cost * offer.total_seconds),
    }
    return [dataclasses.replace(offer, marks=tuple(mark for mark, one in best.items() if one is offer)) for offer in offers]


def worthwhile(offers: Sequence[Offer]) -> list[Offer]:
    """Without those that are slower and dearer than another number of GPUs of the same machines."""

    def beaten(offer: Offer) -> bool:
        same = (one for one in offers if (one.name, one.spot) == (offer.name, offer.spot))
        return any(one.cost < offer.cost and one.total_seconds < offer.total_seconds for one in same)

    return [offer for offer in offers if offer.marks or not beaten(offer)]


def saving(offer: Offer, offers: Sequence[Offer]) -> float:
    """Part of the cost that is saved against the fewest GPUs on demand (the first such offer of the same machines, else of all)."""
    base = min((one for one in offers if not one.spot), key=lambda one: (one.name != offer.name, one.n_gpus), default=offer)
    return 1 - offer.cost / base.cost if base.cost > 0 else 0.0


def offer_values(offer: Offer, offers: Sequence[Offer]) -> dict[str, Any]:
    """An entry of ``options`` in ``nerfleet cost --json``."""
    return {
        "name": offer.name,
        "strategy": offer.strategy,
        "n_gpus": offer.n_gpus,
        "n_machines": offer.n_machines,
        "spot": offer.spot,
        "predicted_ms_per_step": offer.ms_per_step,
        "predicted_bytes_per_gpu": offer.bytes_per_gpu,
        "predicted_train_seconds": offer.total_seconds,
        "cost": round(offer.cost, 4),
        "cost_per_hour": offer.price_per_hour,
        "saving": round(saving(offer, offers), 4),
        "checkpoint_every_seconds": offer.checkpoint_every_seconds or None,
        "advice": advice(offer),
    }


def advice(offer: Offer) -> str:
    if not offer.trains:
        return "for comparison only: PyTorch for CUDA 13 does not run on this GPU"
    return "; ".join(USES[mark] for mark in offer.marks)


def why(offers: Sequence[Offer], currency: str) -> str:
    """In words: what to take for which use."""
    sentences = []
    for mark, use in USES.items():
        found = next((offer for offer in offers if mark in offer.marks), None)
        if found is not None:
            kind = f"{found.name}{' (spot)' if found.spot else ''}, {found.n_gpus} GPU{'s' if found.n_gpus > 1 else ''}"
            sentences.append(f"{use}: {kind}, {duration(found.total_seconds)}, {found.cost:,.2f} {currency}.")
    return " ".join(sentence[0].upper() + sentence[1:] for sentence in sentences)

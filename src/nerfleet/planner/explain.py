"""A plan as rows for a table and as the object of ``--json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nerfleet.planner.choose import Choice, Option
from nerfleet.planner.placement import Piece
from nerfleet.planner.simulate import RankPlan


def option_values(option: Option) -> dict[str, Any]:
    """An entry of ``options``. ``predicted_bytes_per_gpu``: torch's peak, as ``bench step`` measures; ``device_bytes_per_gpu``: with CUDA's context."""
    simulated = option.simulated
    fullest = max(simulated.ranks, key=lambda rank: rank.fills)
    return {
        "strategy": simulated.strategy,
        "n_gpus": simulated.n_gpus,
        "data_degree": simulated.data,
        "grid_degree": simulated.grid,
        "predicted_ms_per_step": 1e3 * simulated.step_seconds,
        "predicted_bytes_per_gpu": int(fullest.memory.peak),
        "device_bytes_per_gpu": int(fullest.memory.device),
        "memory_share": fullest.fills,
        "fits": simulated.fits,
        "predicted_train_seconds": option.train_seconds,
        "load_seconds": option.load_seconds,
        "samples_per_s": option.samples_per_s,
        "batch_size": simulated.load.batch,
        "steps": option.steps,
        "stages_ms": {name: 1e3 * seconds for name, seconds in simulated.stages.items()},
        "measured": option.measured,
        "advice": advice(option),
    }


def rank_values(rank: RankPlan) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "host": rank.host,
        "gpu": rank.gpu,
        "share_of_rays": rank.share,
        "rays": rank.rays,
        "sample_capacity": rank.capacity,
        "levels": pieces_text(rank.pieces),
        "bytes": int(rank.memory.peak),
        "memory_share": rank.fills,
        "busy_ms": 1e3 * rank.busy_seconds,
    }


def plan_values(choice: Choice, options: Sequence[Option]) -> dict[str, Any]:
    """The object of ``nerfleet plan --json``."""
    chosen = option_values(choice.option)
    return {
        "options": [option_values(option) for option in options],
        "chosen": chosen,
        "why": " ".join(choice.why),
        "ranks": [rank_values(rank) for rank in choice.option.simulated.ranks],
        "flags": flags(choice.option),
    }


def flags(option: Option) -> str:
    """Flags of ``nerfleet train`` that run this option."""
    simulated = option.simulated
    words = [f"--steps {option.steps}", f"--batch-size {simulated.load.batch}"]
    if simulated.n_gpus > 1:
        words = [f"--gpus {simulated.n_gpus}", f"--parallel {simulated.strategy}", *words]
    if simulated.strategy == "hybrid":
        words.append(f"--grid-degree {simulated.grid}")
    shares = [rank.share for rank in simulated.ranks]
    if max(shares) > 1.02 * min(shares):
        words.append("--rank-speed " + ",".join(f"{share / max(shares):.3g}" for share in shares))
    return " ".join(words)


def advice(option: Option) -> str:
    simulated = option.simulated
    if not simulated.placed or not simulated.fits:
        return "does not fit"
    if not simulated.comfortable:
        return f"tight: {simulated.fills:.0%} of a GPU's memory"
    share = simulated.exchange_seconds / simulated.step_seconds
    return f"{share:.0%} of a step are exchanges" if share > 0.3 else "fits"


def option_rows(options: Sequence[Option]) -> list[tuple[str, ...]]:
    """GPUs, strategy, ms a step, samples a second, memory, training time, remark."""
    rows: list[tuple[str, ...]] = []
    for option in options:
        simulated = option.simulated
        fullest = max(simulated.ranks, key=lambda rank: rank.fills)
        degree = f" {simulated.data} x {simulated.grid}" if simulated.strategy == "hybrid" else ""
        rows.append(
            (
                str(simulated.n_gpus), simulated.strategy + degree, f"{1e3 * simulated.step_seconds:.2f}", f"{option.samples_per_s / 1e6:,.0f} M",
                f"{fullest.memory.device / 1e9:.1f} GB ({fullest.fills:.0%})", duration(option.train_seconds), advice(option),
            )
        )  # fmt: skip
    return rows


def stage_rows(option: Option) -> list[tuple[str, str]]:
    """Stages of a step, longest first, those under 1 % together."""
    simulated = option.simulated
    ordered = sorted(simulated.stages.items(), key=lambda item: -item[1])
    shown = [(name, seconds) for name, seconds in ordered if seconds >= 0.01 * simulated.step_seconds]
    rest = simulated.step_seconds - sum(seconds for _, seconds in shown)
    return [(name.replace("_", " "), f"{1e3 * seconds:.3f}") for name, seconds in shown] + ([("the rest", f"{1e3 * rest:.3f}")] if rest > 0 else [])


def rank_rows(option: Option) -> list[tuple[str, ...]]:
    """Rank, host, GPU, share of the rays, rays a step, room for samples, levels, memory."""
    return [
        (
            str(rank.rank), rank.host, rank.gpu, f"{rank.share:.1%}", f"{rank.rays:,}", f"{rank.capacity:,}", pieces_text(rank.pieces) or "all",
            f"{rank.memory.device / 1e9:.1f} of {rank.card_bytes / 1e9:.0f} GB",
        )
        for rank in option.simulated.ranks
    ]  # fmt: skip


def pieces_text(pieces: Sequence[Piece]) -> str:
    """"0 1 7[0:2]": levels, and columns of those that are split."""
    widest = max((piece.n for piece in pieces), default=0)
    parts: dict[int, list[Piece]] = {}
    for piece in pieces:
        parts.setdefault(piece.level, []).append(piece)
    return " ".join(
        str(level) if sum(p.n for p in own) == widest and own[0].first == 0 else ",".join(f"{level}[{p.first}:{p.first + p.n}]" for p in own)
        for level, own in parts.items()
    )


def duration(seconds: float) -> str:
    """ "45 s", "12 min", "3.4 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5940 else f"{seconds / 3600:.1f} h"

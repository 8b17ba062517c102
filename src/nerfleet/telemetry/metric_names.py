"""Every metric's name, kind and meaning, once: exporter, rules, dashboards and their tests take them from here.

Prometheus' conventions: base units in the name (seconds, bytes, ratio), ``_total`` for what only grows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ("rank",)


STEPS = Metric("nerfleet_steps_total", "counter", "Training steps done.")
LOSS = Metric("nerfleet_loss", "gauge", "Loss of the last step that was looked at; NaN if it was not finite.")
PSNR = Metric("nerfleet_psnr_decibels", "gauge", "PSNR of the held-out views.", ())
SAMPLES = Metric("nerfleet_samples_total", "counter", "Samples trained on.")
RAYS = Metric("nerfleet_rays_total", "counter", "Rays trained on.")
STEP_SECONDS = Metric("nerfleet_step_seconds", "histogram", "Duration of a training step, by stage.", ("rank", "stage"))
COMMUNICATION_SECONDS = Metric("nerfleet_communication_seconds_total", "counter", "Time spent waiting for other ranks.")
COMMUNICATION_BYTES = Metric("nerfleet_communication_bytes_total", "counter", "Bytes sent to other ranks.")
RING_FILL = Metric("nerfleet_ring_fill_ratio", "gauge", "Filled part of the ring that feeds the GPU.")
GPU_WAIT_SECONDS = Metric("nerfleet_gpu_wait_seconds_total", "counter", "Time the GPU waited for data.")
CHECKPOINT_TIME = Metric("nerfleet_checkpoint_timestamp_seconds", "gauge", "Unix time of the last complete checkpoint.", ())
CHECKPOINT_SECONDS = Metric("nerfleet_checkpoint_seconds", "histogram", "Duration of writing a checkpoint.", ())
SKIPPED_STEPS = Metric("nerfleet_skipped_steps_total", "counter", "Steps left out because a gradient was not finite.")
RESTARTS = Metric("nerfleet_restarts_total", "counter", "Times the ranks were started again.", ())
WORLD_SIZE = Metric("nerfleet_world_size", "gauge", "Ranks that train together.", ())
TRAIN_SECONDS = Metric("nerfleet_train_seconds_total", "counter", "Training time.", ())
RUN_COMPLETE = Metric("nerfleet_run_complete", "gauge", "1 once the run has come to its end.", ())
GPU_UTILISATION = Metric("nerfleet_gpu_utilisation_ratio", "gauge", "Part of the time the GPU computed (NVML).", ("rank", "gpu"))
GPU_MEMORY_USED = Metric("nerfleet_gpu_memory_used_bytes", "gauge", "GPU memory in use (NVML).", ("rank", "gpu"))
GPU_MEMORY = Metric("nerfleet_gpu_memory_bytes", "gauge", "GPU memory in all (NVML).", ("rank", "gpu"))
GPU_TEMPERATURE = Metric("nerfleet_gpu_temperature_celsius", "gauge", "Temperature of the GPU (NVML).", ("rank", "gpu"))
GPU_POWER = Metric("nerfleet_gpu_power_watts", "gauge", "Power of the GPU (NVML).", ("rank", "gpu"))
COST = Metric("nerfleet_cost_dollars_total", "counter", "Cost of the run so far.", ())
COST_RATE = Metric("nerfleet_cost_dollars_per_hour", "gauge", "Price of one pod.", ("rank",))

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))

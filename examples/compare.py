"""Trains on a scene, scores the result on photographs that training did not see, and saves the worst view beside its photograph.

    python examples/compare.py data/fox compare.png 1000
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from PIL import Image

import nerfleet
from nerfleet.config import TrainConfig
from nerfleet.geometry.color import composite
from nerfleet.render.renderer import to_uint8

BLACK = (0.0, 0.0, 0.0)


def main(folder: str, picture: str, steps: int) -> None:
    """Train ``steps`` steps at an eighth of the photographs' size; write ``picture``: photograph | rendering."""
    scene = nerfleet.load_scene(folder, downscale=8)
    held_out = nerfleet.load_scene(folder, split="test", downscale=8)
    result = nerfleet.train(scene, TrainConfig(steps=steps))

    scores = nerfleet.evaluate(result.model, held_out, background=BLACK)
    worst = min(range(len(held_out)), key=lambda i: scores.views[i].psnr)
    print(f"mean {scores.psnr_mean:.2f} dB; worst view {held_out.names[worst]}: {scores.views[worst].psnr:.2f} dB")

    rendering = nerfleet.render(result.model, held_out.cameras[worst : worst + 1]).over(BLACK)
    photograph = composite(held_out.image(worst), torch.tensor(BLACK))
    both = torch.cat([photograph, rendering.cpu()], dim=1)
    Image.fromarray(to_uint8(both).numpy()).save(Path(picture))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))

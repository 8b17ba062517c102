"""Makes the picture of the README from a run of `nerfleet demo`: held-out views above, what the model shows there below.

    nerfleet demo --out runs/demo
    python examples/readme_picture.py runs/demo docs/images/demo.jpg
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from PIL import Image

import nerfleet
from nerfleet.data.synthetic import synthetic_scene
from nerfleet.geometry.color import composite
from nerfleet.render.renderer import to_uint8
from nerfleet.snapshot.load import load_model

N_TEST = 12
"""Held-out views of the demo: the same number gives the same cameras."""
SHOWN = (0, 4, 7, 10)
WHITE = (1.0, 1.0, 1.0)


def main(run_folder: str, picture: str, size: int = 240) -> None:
    """Write ``picture``: one column of two squares of ``size`` pixels for each view."""
    model = load_model(run_folder)
    views = synthetic_scene("test", n_views=N_TEST, width=size, height=size)
    columns = []
    for i in SHOWN:
        photograph = composite(views.image(i), torch.tensor(WHITE))
        rendering = nerfleet.render(model, views.cameras[i : i + 1], spp=2).over(WHITE)
        columns.append(torch.cat([photograph, rendering]))
    Image.fromarray(to_uint8(torch.cat(columns, dim=1)).numpy()).save(Path(picture), quality=90)


if __name__ == "__main__":
    main(*sys.argv[1:])

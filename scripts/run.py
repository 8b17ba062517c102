"""instant-ngp's scripted command line for nerfleet: the same flags with the same meaning, and training on several GPUs.

    python scripts/run.py data/fox --n_steps 2000 --save_snapshot fox.ingp
    python scripts/run.py --scene data/fox --train --n_steps 1000 --distributed --world_size 4
    python scripts/run.py --load_snapshot fox.ingp --video_camera_path path.json --video_n_seconds 5 --video_output fox.mp4

Runs from a checkout as well as where nerfleet is installed. ``--help`` lists the flags.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
if SOURCE.is_dir():
    sys.path.insert(0, str(SOURCE))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])  # for the ranks

if __name__ == "__main__":
    from nerfleet.cli.instant_ngp import main

    sys.exit(main())

"""The doctor's examination of a machine with GPUs, without the command line's packages: `PYTHONPATH=src python3 benchmarks/doctor.py --out doctor.json`.

Tells what the checks that need GPUs find there (driver, links, NCCL's bandwidths between all pairs), and how long all takes.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path

from nerfleet.doctor.examine import Wishes, examine_machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("doctor.json"))
    parser.add_argument("--gpus", type=int, default=0, help="GPUs that should be there")
    flags = parser.parse_args()
    begin = time.monotonic()
    checks = examine_machine(Wishes("auto", flags.gpus, 29500, Path.cwd(), 30.0))
    answer = {"seconds": time.monotonic() - begin, "checks": [dataclasses.asdict(check) for check in checks]}
    flags.out.write_text(json.dumps(answer, indent=1) + "\n")
    for check in checks:
        print(f"{check.status:5s} {check.name:20s} {check.found}" + (f"\n      -> {check.remedy}" if check.remedy else ""))
    print(f"{answer['seconds']:.1f} s")


if __name__ == "__main__":
    main()

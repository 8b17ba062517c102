"""``python -m nerfleet``: the same as the ``nerfleet`` command (torchrun starts it this way)."""

from __future__ import annotations

import sys

from nerfleet.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

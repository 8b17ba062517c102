"""What a training takes of a GPU's memory, for the rule that chooses between data and grid."""

from __future__ import annotations

BYTES_READ = 2 + 4
"""Of a parameter of the table on every rank that reads it: weights, float16, and gradient, fixed point."""
BYTES_OWNED = 4 + 2 + 4 + 4 + 2
"""Of a parameter at its owner: master weights, average, two moments, step count."""
BYTES_SENT = 2 + 4
"""More at the owner where the table is read elsewhere too: the slice's weights and gradient, as they travel."""
BYTES_SAMPLE = 4 * (2 + 3 + 1 + 1 + 3 + 1 + 1 + 1 + 3 + 3 + 1 + 1)
"""A record of a kept sample without its features (train/buffers.py)."""
BYTES_RAY = 4 * (6 * 3 + 3)


def training_bytes(n_params: int, n_output: int, n_samples: int, n_rays: int, n_pixels: int, n_ranks: int) -> int:
    """Bytes of one rank of ``n_ranks`` data-parallel ones.

    Args:
        n_params: of the table. n_output: features of a sample. n_samples, n_rays, n_pixels: of this rank.
    """
    table = n_params * BYTES_READ + n_params * (BYTES_OWNED + BYTES_SENT * (n_ranks > 1)) // n_ranks
    return table + n_samples * (BYTES_SAMPLE + 2 * 2 * n_output) + n_rays * BYTES_RAY + n_pixels * 4

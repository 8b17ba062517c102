"""Triangles to pixels on the CPU (numba): which face lies nearest in every pixel, and where in it.

Used to see what cameras see (visibility.py), to find the surface of every texel (texture.py), and to look at a textured mesh
(preview.py). Threads take images of their own; a kernel has no shared state.
"""

from __future__ import annotations

import math

import numba
import numpy as np

NOTHING = -1


@numba.njit(cache=True, nogil=True)
def raster(screen, inverse_depth, valid, faces, face_index, nearest, weights):
    """Draw faces into one image; a pixel belongs to a face if its centre lies inside, edges included.

    Args:
        screen: [n, 2] float32 pixels (centre of the top left one: 0.5, 0.5). inverse_depth: [n] float32, larger is nearer; it is
            interpolated linearly on the screen, as perspective demands.
        valid: [n] bool; a face with an invalid vertex is left out.
        faces: [m, 3] int32.
        face_index: [h, w] int32, NOTHING where there is none yet: written.
        nearest: [h, w] float32, the inverse depth drawn so far: written.
        weights: [h, w, 2] float32 barycentric coordinates of the face's second and third vertex on the screen: written.
    """
    height, width = face_index.shape
    for f in range(faces.shape[0]):
        a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
        if not (valid[a] and valid[b] and valid[c]):
            continue
        ax, ay = np.float64(screen[a, 0]), np.float64(screen[a, 1])
        bx, by = np.float64(screen[b, 0]) - ax, np.float64(screen[b, 1]) - ay
        cx, cy = np.float64(screen[c, 0]) - ax, np.float64(screen[c, 1]) - ay
        area = bx * cy - by * cx
        if area == 0.0:
            continue
        left = max(math.ceil(ax + min(0.0, bx, cx) - 0.5), 0)
        right = min(math.floor(ax + max(0.0, bx, cx) - 0.5), width - 1)
        top = max(math.ceil(ay + min(0.0, by, cy) - 0.5), 0)
        bottom = min(math.floor(ay + max(0.0, by, cy) - 0.5), height - 1)
        za, zb, zc = inverse_depth[a], inverse_depth[b], inverse_depth[c]
        for y in range(top, bottom + 1):
            py = y + 0.5 - ay
            for x in range(left, right + 1):
                px = x + 0.5 - ax
                u = (px * cy - py * cx) / area
                v = (bx * py - by * px) / area
                if u < 0.0 or v < 0.0 or u + v > 1.0:
                    continue
                z = np.float32(za + u * (zb - za) + v * (zc - za))
                if z > nearest[y, x]:
                    nearest[y, x] = z
                    face_index[y, x] = f
                    weights[y, x, 0] = u
                    weights[y, x, 1] = v

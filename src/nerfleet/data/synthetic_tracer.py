"""Numba ray tracer of the built-in scene: analytic primitives, textures, light (the scene itself: synthetic_still_life.py).

Everything that numba compiles lives in this one file, because numba's disk cache only notices changes of the file that holds the
compiled entry point. Entry points take a range of rows and release the GIL; they run in threads, not with ``parallel=True``,
which would double the time to compile. Lengths are internal units, y is up, colours are linear until they are stored.

A scene is a tuple ``(kinds, frames, centres, sizes, materials, group_bounds, group_starts)``:
    kinds [p] int64, frames [p, 3, 3] (rows = local axes), centres [p, 3], sizes [p, 4] (three of its kind, radius of the bounding
    sphere), materials [p, 9] (colour, second colour, pattern, repetitions, gloss), group_bounds [g, 4] (bounding sphere),
    group_starts [g + 1].
"""

from __future__ import annotations

import math

import numba
import numpy as np

SPHERE, FRUSTUM, TORUS, BOX = 0, 1, 2, 3
PLAIN, MOSAIC, BANDS, CHECKER, SECTORS = 0, 1, 2, 3, 4
FAR = 1e9
MAP_EDGE = 0.9
"""Edge of the square that the table's light map covers, centred on the table's axis."""

N_SUN_RAYS, N_SKY_RAYS = 24, 32
SUN_SPREAD = 0.05  # tangent of the sun's half angle: soft shadows
SUN = np.array([-0.60, 0.72, -0.35]) / math.sqrt(0.60**2 + 0.72**2 + 0.35**2)
SUN_COLOUR = np.array([1.02, 0.94, 0.80])
SKY_COLOUR = np.array([0.30, 0.35, 0.43])
BOUNCE_COLOUR = np.array([0.20, 0.17, 0.14])
DARK_TILES = np.array([[0.035, 0.070, 0.170], [0.045, 0.150, 0.160], [0.240, 0.050, 0.035]])
LIGHT_TILES = np.array([[0.66, 0.56, 0.40], [0.70, 0.66, 0.58], [0.62, 0.35, 0.10]])
EDGE_GOLD = np.array([0.62, 0.40, 0.12])

_FLAGS = {"contract", "reassoc", "arcp", "nsz"}  # not "nnan", "ninf"
_jit = numba.njit(fastmath=_FLAGS, error_model="numpy")
_entry = numba.njit(fastmath=_FLAGS, error_model="numpy", cache=True, nogil=True)


# ---------------------------------------------------------------- distances (local coordinates)


@_jit
def _frustum_distance(radial, y, bottom, top, half):
    """Signed distance in the half plane (radial, y) to the trapezoid of radii ``bottom`` (y = -half) and ``top`` (y = half)."""
    cap_radius = bottom if y < 0.0 else top
    cap_r, cap_y = radial - min(radial, cap_radius), abs(y) - half
    edge_r, edge_y = top - bottom, 2.0 * half
    along = ((radial - bottom) * edge_r + (y + half) * edge_y) / (edge_r * edge_r + edge_y * edge_y)
    along = min(max(along, 0.0), 1.0)
    side_r, side_y = radial - bottom - along * edge_r, y + half - along * edge_y
    inside = edge_y * (radial - bottom) - edge_r * (y + half) < 0.0 and cap_y < 0.0
    cap = cap_r * cap_r + cap_y * cap_y
    nearest = math.sqrt(min(cap, side_r * side_r + side_y * side_y))
    return -nearest if inside else nearest


@_jit
def _local_distance(kind, x, y, z, s0, s1, s2):
    """Signed distance (negative inside) from a local point to one primitive."""
    if kind == SPHERE:
        return math.sqrt(x * x + y * y + z * z) - s0
    if kind == FRUSTUM:
        return _frustum_distance(math.sqrt(x * x + z * z), y, s0, s1, s2)
    if kind == TORUS:
        ring = math.sqrt(x * x + z * z) - s0
        return math.sqrt(ring * ring + y * y) - s1
    qx, qy, qz = abs(x) - s0, abs(y) - s1, abs(z) - s2
    ox, oy, oz = max(qx, 0.0), max(qy, 0.0), max(qz, 0.0)
    return math.sqrt(ox * ox + oy * oy + oz * oz) + min(max(qx, qy, qz), 0.0)


@_jit
def _to_local(frames, k, x, y, z):
    return (
        frames[k, 0, 0] * x + frames[k, 0, 1] * y + frames[k, 0, 2] * z,
        frames[k, 1, 0] * x + frames[k, 1, 1] * y + frames[k, 1, 2] * z,
        frames[k, 2, 0] * x + frames[k, 2, 1] * y + frames[k, 2, 2] * z,
    )


@_entry
def distance_rows(first_row, last_row, scene, points, first, last, out):
    """Signed distance out [n] of points [n, 3] to the union of primitives ``first .. last - 1``."""
    kinds, frames, centres, sizes = scene[0], scene[1], scene[2], scene[3]
    for i in range(first_row, last_row):
        nearest = FAR
        for k in range(first, last):
            wx, wy, wz = points[i, 0] - centres[k, 0], points[i, 1] - centres[k, 1], points[i, 2] - centres[k, 2]
            x, y, z = _to_local(frames, k, wx, wy, wz)
            nearest = min(nearest, _local_distance(kinds[k], x, y, z, sizes[k, 0], sizes[k, 1], sizes[k, 2]))
        out[i] = nearest


# ---------------------------------------------------------------- ray and primitive (local coordinates, unit direction)


@_jit
def _hit_sphere(ox, oy, oz, dx, dy, dz, radius):
    b = ox * dx + oy * dy + oz * dz
    h = b * b - (ox * ox + oy * oy + oz * oz - radius * radius)
    if h < 0.0:
        return FAR
    root = math.sqrt(h)
    if -b - root > 0.0:
        return -b - root
    return -b + root if -b + root > 0.0 else FAR


@_jit
def _hit_frustum(ox, oy, oz, dx, dy, dz, bottom, top, half):
    best = FAR
    if abs(dy) > 1e-12:
        for sign in (-1.0, 1.0):
            t = (sign * half - oy) / dy
            limit = top if sign > 0.0 else bottom
            if 0.0 < t < best and (ox + t * dx) ** 2 + (oz + t * dz) ** 2 <= limit * limit:
                best = t
    slope = (top - bottom) / (2.0 * half)
    radius = 0.5 * (top + bottom) + slope * oy
    a = dx * dx + dz * dz - slope * slope * dy * dy
    b = ox * dx + oz * dz - slope * dy * radius
    c = ox * ox + oz * oz - radius * radius
    h = b * b - a * c
    if h < 0.0 or abs(a) < 1e-12:
        return best
    root = math.sqrt(h)
    for sign in (-1.0, 1.0):
        t = (-b + sign * root) / a
        if 0.0 < t < best and abs(oy + t * dy) <= half and radius + slope * t * dy >= 0.0:
            best = t
    return best


@_jit
def _hit_torus(ox, oy, oz, dx, dy, dz, ring_radius, tube):
    """Sphere tracing of the exact distance between the two planes and the sphere that enclose the torus."""
    near, far = 0.0, FAR
    if abs(dy) > 1e-9:
        t0, t1 = (-tube - oy) / dy, (tube - oy) / dy
        near, far = max(near, min(t0, t1)), max(t0, t1)
    elif abs(oy) > tube:
        return FAR
    outer = ring_radius + tube
    b = ox * dx + oy * dy + oz * dz
    h = b * b - (ox * ox + oy * oy + oz * oz - outer * outer)
    if h < 0.0:
        return FAR
    near, far = max(near, -b - math.sqrt(h)), min(far, -b + math.sqrt(h))
    t = near
    for _ in range(96):
        if t > far:
            return FAR
        x, y, z = ox + t * dx, oy + t * dy, oz + t * dz
        ring = math.sqrt(x * x + z * z) - ring_radius
        distance = math.sqrt(ring * ring + y * y) - tube
        if distance < 2e-6:
            return t if t > 0.0 else FAR
        t += distance
    return FAR


@_jit
def _slab(near, far, o, d, half):
    """Narrow the interval [near, far] of a ray to |coordinate| <= half along one axis."""
    if abs(d) < 1e-12:
        return (near, far) if abs(o) <= half else (FAR, -FAR)
    t0, t1 = (-half - o) / d, (half - o) / d
    return max(near, min(t0, t1)), min(far, max(t0, t1))


@_jit
def _hit_box(ox, oy, oz, dx, dy, dz, hx, hy, hz):
    near, far = _slab(-FAR, FAR, ox, dx, hx)
    near, far = _slab(near, far, oy, dy, hy)
    near, far = _slab(near, far, oz, dz, hz)
    if near > far or far <= 0.0:
        return FAR
    return near if near > 0.0 else far


@_jit
def _trace(scene, ox, oy, oz, dx, dy, dz, any_hit):
    """(distance, primitive) of the first hit along a unit ray, or (FAR, -1); ``any_hit`` stops at whichever comes first."""
    kinds, frames, centres, sizes, _, bounds, starts = scene
    best, found = FAR, -1
    for g in range(bounds.shape[0]):
        x, y, z = ox - bounds[g, 0], oy - bounds[g, 1], oz - bounds[g, 2]
        b = x * dx + y * dy + z * dz
        c = x * x + y * y + z * z - bounds[g, 3] * bounds[g, 3]
        h = b * b - c
        if h < 0.0 or (c > 0.0 and (b > 0.0 or -b - math.sqrt(h) > best)):
            continue
        for k in range(starts[g], starts[g + 1]):
            x, y, z = ox - centres[k, 0], oy - centres[k, 1], oz - centres[k, 2]
            b = x * dx + y * dy + z * dz
            if b * b < x * x + y * y + z * z - sizes[k, 3] * sizes[k, 3]:
                continue
            if kinds[k] == SPHERE:
                t = _hit_sphere(x, y, z, dx, dy, dz, sizes[k, 0])
            else:
                px, py, pz = _to_local(frames, k, x, y, z)
                vx, vy, vz = _to_local(frames, k, dx, dy, dz)
                if kinds[k] == FRUSTUM:
                    t = _hit_frustum(px, py, pz, vx, vy, vz, sizes[k, 0], sizes[k, 1], sizes[k, 2])
                elif kinds[k] == TORUS:
                    t = _hit_torus(px, py, pz, vx, vy, vz, sizes[k, 0], sizes[k, 1])
                else:
                    t = _hit_box(px, py, pz, vx, vy, vz, sizes[k, 0], sizes[k, 1], sizes[k, 2])
            if t < best:
                best, found = t, k
                if any_hit:
                    return best, found
    return best, found


# ---------------------------------------------------------------- textures


@_jit
def _hash(i, j):
    """Pseudo-random number in [0, 1) of two small integers (a fixed 32-bit mix: no state, the same on every machine)."""
    h = (i * 374761393 + j * 668265263 + 1013904223) & 0xFFFFFFFF
    h = ((h ^ (h >> 13)) * 1274126177) & 0xFFFFFFFF
    return ((h ^ (h >> 16)) & 0xFFFFFF) / 16777216.0


@_jit
def _noise(x, y):
    """Value noise in [0, 1], smooth between integer lattice points."""
    i, j = math.floor(x), math.floor(y)
    u, v = x - i, y - j
    u, v = u * u * (3.0 - 2.0 * u), v * v * (3.0 - 2.0 * v)
    i, j = int(i), int(j)
    low = _hash(i, j) * (1.0 - u) + _hash(i + 1, j) * u
    high = _hash(i, j + 1) * (1.0 - u) + _hash(i + 1, j + 1) * u
    return low * (1.0 - v) + high * v


@_jit
def _mosaic(x, z):
    """Round table: gold centre and rim, rings of alternating dark and light tiles whose tints never repeat by rotation."""
    radius = math.sqrt(x * x + z * z)
    grain = 0.90 + 0.20 * _noise(x * 18.0 + 50.0, z * 18.0 + 50.0)
    if radius > 0.412 or radius < 0.022:
        return EDGE_GOLD[0] * grain, EDGE_GOLD[1] * grain, EDGE_GOLD[2] * grain
    ring = int((radius - 0.022) / 0.0975)
    n_sectors = 6 + 6 * ring
    sector = int((math.atan2(z, x) / (2.0 * math.pi) + 1.0 + 0.021 * ring) * n_sectors) % n_sectors
    tint = min(int(_hash(ring + 3, sector + 11) * 3.0), 2)
    tile = LIGHT_TILES[tint] if (ring + sector) % 2 == 0 else DARK_TILES[tint]
    return tile[0] * grain, tile[1] * grain, tile[2] * grain


@_jit
def _albedo(materials, k, x, y, z):
    """Linear colour of a material at a local point."""
    pattern, count = int(materials[k, 6]), materials[k, 7]
    if pattern == MOSAIC:
        return _mosaic(x, z)
    second = False
    if pattern == BANDS:
        second = math.floor(y * count + 100.0) % 2 == 1
    elif pattern == CHECKER:
        cells = math.floor(x * count + 100.001) + math.floor(y * count + 100.001) + math.floor(z * count + 100.001)
        second = cells % 2 == 1
    elif pattern == SECTORS:
        second = math.floor((math.atan2(z, x) / (2.0 * math.pi) + 1.0) * count) % 2 == 1
    if second:
        return materials[k, 3], materials[k, 4], materials[k, 5]
    return materials[k, 0], materials[k, 1], materials[k, 2]


# ---------------------------------------------------------------- light


@_jit
def _disc_direction(axis, index, count, spread):
    """Direction ``index`` of ``count`` around a unit axis, on a Vogel spiral of radius ``spread`` (tangent of the half angle)."""
    radius, angle = spread * math.sqrt((index + 0.5) / count), 2.39996323 * index
    if abs(axis[1]) < 0.9:
        tx, ty, tz = axis[2], 0.0, -axis[0]
    else:
        tx, ty, tz = 0.0, -axis[2], axis[1]
    norm = math.sqrt(tx * tx + ty * ty + tz * tz)
    tx, ty, tz = tx / norm, ty / norm, tz / norm
    bx, by, bz = axis[1] * tz - axis[2] * ty, axis[2] * tx - axis[0] * tz, axis[0] * ty - axis[1] * tx
    u, v = radius * math.cos(angle), radius * math.sin(angle)
    x, y, z = axis[0] + u * tx + v * bx, axis[1] + u * ty + v * by, axis[2] + u * tz + v * bz
    norm = math.sqrt(x * x + y * y + z * z)
    return x / norm, y / norm, z / norm


@_jit
def _sees_sun(scene, x, y, z, index, count):
    """Whether the ray towards point ``index`` of ``count`` on the sun's disc is free."""
    dx, dy, dz = _disc_direction(SUN, index, count, SUN_SPREAD)
    return _trace(scene, x, y, z, dx, dy, dz, True)[1] < 0


@_entry
def bake_rows(first_row, last_row, scene, height, out):
    """Light map of the table's top: out [m, m, 2] (visible share of the sun; of the sky, cosine weighted)."""
    resolution = out.shape[0]
    for task in range(first_row * resolution, last_row * resolution):
        row, column = task // resolution, task % resolution
        x = ((column + 0.5) / resolution - 0.5) * MAP_EDGE
        z = ((row + 0.5) / resolution - 0.5) * MAP_EDGE
        if x * x + z * z > 0.2:
            continue
        lit, free = 0, 0
        for i in range(N_SUN_RAYS + N_SKY_RAYS):
            if i < N_SUN_RAYS:
                dx, dy, dz = _disc_direction(SUN, i, N_SUN_RAYS, SUN_SPREAD)
            else:
                radius, angle = math.sqrt((i - N_SUN_RAYS + 0.5) / N_SKY_RAYS), 2.39996323 * i
                dx, dy, dz = radius * math.cos(angle), math.sqrt(1.0 - radius * radius), radius * math.sin(angle)
            seen = _trace(scene, 0.5 + x, height + 1e-4, 0.5 + z, dx, dy, dz, True)[1] < 0
            lit += seen and i < N_SUN_RAYS
            free += seen and i >= N_SUN_RAYS
        out[row, column, 0], out[row, column, 1] = lit / N_SUN_RAYS, free / N_SKY_RAYS


@_jit
def _table_light(light_map, x, z, channel):
    """Bilinear look-up of one channel of the light map at a point of the table relative to its axis."""
    n = light_map.shape[0]
    u = min(max((x / MAP_EDGE + 0.5) * n - 0.5, 0.0), n - 1.001)
    v = min(max((z / MAP_EDGE + 0.5) * n - 0.5, 0.0), n - 1.001)
    i, j = int(u), int(v)
    u, v = u - i, v - j
    low = light_map[j, i, channel] * (1.0 - u) + light_map[j, i + 1, channel] * u
    high = light_map[j + 1, i, channel] * (1.0 - u) + light_map[j + 1, i + 1, channel] * u
    return low * (1.0 - v) + high * v


@_jit
def _normal(scene, k, x, y, z):
    """Outward unit normal of primitive k at a world point: central differences of its exact distance."""
    kinds, frames, centres, sizes = scene[0], scene[1], scene[2], scene[3]
    kind, s0, s1, s2, step = kinds[k], sizes[k, 0], sizes[k, 1], sizes[k, 2], 1e-5
    px, py, pz = _to_local(frames, k, x - centres[k, 0], y - centres[k, 1], z - centres[k, 2])
    gx = _local_distance(kind, px + step, py, pz, s0, s1, s2) - _local_distance(kind, px - step, py, pz, s0, s1, s2)
    gy = _local_distance(kind, px, py + step, pz, s0, s1, s2) - _local_distance(kind, px, py - step, pz, s0, s1, s2)
    gz = _local_distance(kind, px, py, pz + step, s0, s1, s2) - _local_distance(kind, px, py, pz - step, s0, s1, s2)
    norm = math.sqrt(gx * gx + gy * gy + gz * gz) + 1e-30
    gx, gy, gz = gx / norm, gy / norm, gz / norm
    return (
        frames[k, 0, 0] * gx + frames[k, 1, 0] * gy + frames[k, 2, 0] * gz,
        frames[k, 0, 1] * gx + frames[k, 1, 1] * gy + frames[k, 2, 1] * gz,
        frames[k, 0, 2] * gx + frames[k, 1, 2] * gy + frames[k, 2, 2] * gz,
    )


@_jit
def _environment(height, x, y, z, dx, dy, dz):
    """What a mirror sees without further bounces: the table's mosaic below, a pale sky with a darker horizon elsewhere."""
    if dy < -1e-3 and y > height:
        t = (height - y) / dy
        u, v = x + t * dx - 0.5, z + t * dz - 0.5
        if u * u + v * v < 0.18:
            r, g, b = _mosaic(u, v)
            return 0.8 * r, 0.8 * g, 0.8 * b
    up = 0.5 + 0.5 * dy
    return 0.20 + 0.55 * up, 0.22 + 0.62 * up, 0.26 + 0.74 * up


@_jit
def _light(scene, light_map, height, k, x, y, z, nx, ny, nz, index, count):
    """(sunlight, skylight) that reaches a point of primitive k: light map on the table's top, elsewhere one shadow ray."""
    facing = max(nx * SUN[0] + ny * SUN[1] + nz * SUN[2], 0.0)
    if k == 0 and ny > 0.5:
        return facing * _table_light(light_map, x - 0.5, z - 0.5, 0), _table_light(light_map, x - 0.5, z - 0.5, 1)
    lift = min(max((y - height) / 0.10, 0.0), 1.0)
    sky = 0.60 + 0.40 * lift * (2.0 - lift)
    if facing > 0.0 and not _sees_sun(scene, x + 2e-4 * nx, y + 2e-4 * ny, z + 2e-4 * nz, index, count):
        facing = 0.0
    return facing, sky


@_jit
def _shade(scene, light_map, height, k, x, y, z, dx, dy, dz, index, count):
    """Linear colour, clipped to [0, 1], that leaves a hit point of primitive k against the unit ray (dx, dy, dz).

    ``index`` of ``count`` picks the point of the sun's disc, so that the samples of a pixel see all of it together.
    """
    centres, materials = scene[2], scene[4]
    nx, ny, nz = _normal(scene, k, x, y, z)
    px, py, pz = _to_local(scene[1], k, x - centres[k, 0], y - centres[k, 1], z - centres[k, 2])
    red, green, blue = _albedo(materials, k, px, py, pz)
    sun, sky = _light(scene, light_map, height, k, x, y, z, nx, ny, nz, index, count)
    up = 0.5 + 0.5 * ny
    red *= sun * SUN_COLOUR[0] + sky * (SKY_COLOUR[0] * up + BOUNCE_COLOUR[0] * (1.0 - up))
    green *= sun * SUN_COLOUR[1] + sky * (SKY_COLOUR[1] * up + BOUNCE_COLOUR[1] * (1.0 - up))
    blue *= sun * SUN_COLOUR[2] + sky * (SKY_COLOUR[2] * up + BOUNCE_COLOUR[2] * (1.0 - up))
    gloss = materials[k, 8]
    if gloss > 0.0:
        away = -(nx * dx + ny * dy + nz * dz)
        rx, ry, rz = dx + 2.0 * away * nx, dy + 2.0 * away * ny, dz + 2.0 * away * nz
        grazing = 1.0 - min(max(away, 0.0), 1.0)
        mirror = gloss * sky * (0.05 + 0.60 * grazing * grazing * grazing * grazing * grazing)
        er, eg, eb = _environment(height, x, y, z, rx, ry, rz)
        spark = max(rx * SUN[0] + ry * SUN[1] + rz * SUN[2], 0.0) ** 40 if sun > 0.0 else 0.0
        spark *= gloss
        red, green, blue = red + mirror * er + spark, green + mirror * eg + spark, blue + mirror * eb + spark
    return min(red, 1.0), min(green, 1.0), min(blue, 1.0)


# ---------------------------------------------------------------- pictures


@_jit
def _to_srgb8(linear):
    """Linear [0, 1] to an sRGB byte (IEC 61966-2-1)."""
    encoded = 12.92 * linear if linear <= 0.0031308 else 1.055 * linear ** (1.0 / 2.4) - 0.055
    return np.uint8(min(max(encoded, 0.0), 1.0) * 255.0 + 0.5)


@_jit
def _pixel_ray(poses, intrinsics, n, px, py):
    """Origin, unit direction and length of the unnormalised ray through pixel coordinates (px, py) of camera n."""
    u, v = (px - intrinsics[n, 2]) / intrinsics[n, 0], (py - intrinsics[n, 3]) / intrinsics[n, 1]
    dx = poses[n, 0, 0] * u + poses[n, 0, 1] * v + poses[n, 0, 2]
    dy = poses[n, 1, 0] * u + poses[n, 1, 1] * v + poses[n, 1, 2]
    dz = poses[n, 2, 0] * u + poses[n, 2, 1] * v + poses[n, 2, 2]
    length = math.sqrt(dx * dx + dy * dy + dz * dz)
    return poses[n, 0, 3], poses[n, 1, 3], poses[n, 2, 3], dx / length, dy / length, dz / length, length


@_entry
def render_rows(first_row, last_row, scene, light_map, height, poses, intrinsics, supersample, out):
    """Photographs: poses [n, 3, 4], intrinsics [n, 4] (fx, fy, cx, cy; pixels) -> out [n, h, w, 4] uint8 sRGB, straight alpha.

    A pixel is the mean of ``supersample``^2 premultiplied linear samples, un-premultiplied, encoded. Rows run through all views.
    """
    n_rows, n_columns, n_samples = out.shape[1], out.shape[2], supersample * supersample
    for task in range(first_row * n_columns, last_row * n_columns):
        view, row, column = task // n_columns // n_rows, task // n_columns % n_rows, task % n_columns
        red, green, blue, hits = 0.0, 0.0, 0.0, 0
        for s in range(n_samples):
            sx, sy = (s % supersample + 0.5) / supersample, (s // supersample + 0.5) / supersample
            ox, oy, oz, dx, dy, dz, _ = _pixel_ray(poses, intrinsics, view, column + sx, row + sy)
            t, k = _trace(scene, ox, oy, oz, dx, dy, dz, False)
            if k >= 0:
                x, y, z = ox + t * dx, oy + t * dy, oz + t * dz
                r, g, b = _shade(scene, light_map, height, k, x, y, z, dx, dy, dz, s, n_samples)
                red, green, blue, hits = red + r, green + g, blue + b, hits + 1
        if hits > 0:
            out[view, row, column, 0] = _to_srgb8(red / hits)
            out[view, row, column, 1] = _to_srgb8(green / hits)
            out[view, row, column, 2] = _to_srgb8(blue / hits)
            out[view, row, column, 3] = np.uint8(255.0 * hits / n_samples + 0.5)


@_entry
def centre_rows(first_row, last_row, scene, poses, intrinsics, depth, primitive):
    """First hit through pixel centres: depth [n, h, w] (multiples of the unnormalised ray, 0 = none), primitive (-1 = none)."""
    n_rows, n_columns = depth.shape[1], depth.shape[2]
    for task in range(first_row * n_columns, last_row * n_columns):
        view, row, column = task // n_columns // n_rows, task // n_columns % n_rows, task % n_columns
        ox, oy, oz, dx, dy, dz, length = _pixel_ray(poses, intrinsics, view, column + 0.5, row + 0.5)
        t, k = _trace(scene, ox, oy, oz, dx, dy, dz, False)
        if k >= 0:
            depth[view, row, column], primitive[view, row, column] = t / length, k

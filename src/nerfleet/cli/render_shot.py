"""Which cameras ``nerfleet render`` renders: a scene's, a camera path's, or an orbit around the model."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from nerfleet.cli.eval import picture_name
from nerfleet.cli.flags import parse_views, say
from nerfleet.errors import NerfleetError

if TYPE_CHECKING:
    from nerfleet.cli.render import Arguments
    from nerfleet.geometry.cameras import Cameras
    from nerfleet.nn.model import Model
    from nerfleet.render.camera_path import CameraPath
    from nerfleet.render.orbit import Orbit
    from nerfleet.render.sequence import Shot
    from nerfleet.snapshot.placement import Placement

DEFAULT_SIZE = (1280, 720)
MAX_FRAMES = 100_000
FLIGHT_FOV = 50.0
SMOOTH_SPP = 16
"""Samples per pixel under which blur shows as grain."""


def make_shot(arguments: Arguments, model: Model, placement: Placement) -> Shot:
    """The cameras that the flags name. Raises NerfleetError."""
    if arguments.scene is not None and not arguments.flight:
        shot = _scene_shot(arguments)
    else:
        shot = _path_shot(arguments, _path(arguments, model, placement))
    shot = _with_aperture(arguments, shot, model, placement)
    if any(not lens.is_pinhole for lens in shot.lenses) and arguments.spp < SMOOTH_SPP:
        say(f"warning: depth of field with --spp {arguments.spp} is grainy: use --spp {SMOOTH_SPP} or more")
    return shot


def _path(arguments: Arguments, model: Model, placement: Placement) -> CameraPath:
    from nerfleet.render.camera_path import read_camera_path, write_camera_path
    from nerfleet.render.orbit import flight_path, orbit_path

    if arguments.camera_path is not None:
        return read_camera_path(arguments.camera_path)
    seconds = arguments.seconds or 5.0
    if arguments.scene is not None:
        path = flight_path(_scene_shot(arguments).cameras, arguments.fov or FLIGHT_FOV, seconds)
    else:
        path = orbit_path(_orbit(arguments, model, placement), seconds)
    if arguments.save_path is not None:
        write_camera_path(arguments.save_path, path)
    return path


def _orbit(arguments: Arguments, model: Model, placement: Placement) -> Orbit:
    """Around what the photographs look at; without their cameras, around the middle of the (cropped) scene box."""
    import math

    from nerfleet.render.orbit import Orbit, find_orbit
    from nerfleet.render.renderer import render_box

    up = internal_up(placement)
    orbit = find_orbit(placement.cameras, up) if placement.cameras is not None else None
    if orbit is None:
        box = render_box(model)
        x, y, z = box.mean(0).tolist()
        edge = min(float((box[1] - box[0]).max()), 1.0)
        orbit = Orbit((x, y, z), up, 1.2 * edge, 0.6 * edge)
    distance = orbit.distance
    if arguments.elevation is not None:
        angle = math.radians(arguments.elevation)
        orbit = dataclasses.replace(orbit, radius=distance * math.cos(angle), height=distance * math.sin(angle))
    orbit = dataclasses.replace(orbit, radius=orbit.radius * arguments.distance, height=orbit.height * arguments.distance)
    if arguments.whole_turn:
        orbit = dataclasses.replace(orbit, last=orbit.first + 2 * math.pi)
    return dataclasses.replace(orbit, fov=arguments.fov or orbit.fov)


def internal_up(placement: Placement) -> tuple[float, float, float]:
    """Unit vector in internal axes; file z, which is internal y, where the model does not tell."""
    import torch

    x, y, z = torch.nn.functional.normalize(torch.tensor(placement.up), dim=0).tolist()
    return (x, y, z)


def _path_shot(arguments: Arguments, path: CameraPath) -> Shot:
    from nerfleet.render.camera_path import keyframe_cameras, path_keyframes, smoothed
    from nerfleet.render.depth_of_field import ThinLens
    from nerfleet.render.sequence import Shot

    width, height = path_size(arguments.width, arguments.height)
    n = arguments.turntable or arguments.frames or max(round((arguments.seconds or path.duration_seconds) * arguments.fps), 1)
    if n > MAX_FRAMES:
        raise NerfleetError(f"{n:,} pictures", f"are more than {MAX_FRAMES:,}", "lower --fps or --seconds, or give --frames")
    chosen = parse_views(arguments.frame_range, n, "frame-range")
    keyframes = smoothed(path_keyframes(path, n), arguments.smoothing * arguments.fps)
    keyframes = [keyframes[i] for i in chosen]
    lenses = () if arguments.flight else tuple(ThinLens(keyframe.aperture_size, keyframe.focus_distance) for keyframe in keyframes)
    return Shot(keyframe_cameras(keyframes, width, height), picture_names(arguments.names, chosen, n), lenses)


def picture_names(pattern: str, chosen: list[int], n: int) -> tuple[str, ...]:
    """``video_%04d.png`` -> video_0000, ...: names without extension of the pictures ``chosen`` of n."""
    if not pattern:
        digits = max(len(str(n - 1)), 4)
        return tuple(f"frame_{i:0{digits}d}" for i in chosen)
    stem = pattern.removesuffix(".png").removesuffix(".exr")
    try:
        names = tuple(stem % i for i in chosen)
    except (TypeError, ValueError):
        names = ()
    if len(set(names)) < len(chosen) or any("/" in name for name in names):
        raise NerfleetError(f"--names {pattern}", "does not give each picture a name", "write for example video_%04d.png")
    return names


def _scene_shot(arguments: Arguments) -> Shot:
    from nerfleet.cli.render import is_video
    from nerfleet.data.plan import plan_scene, planned_cameras
    from nerfleet.render.sequence import Shot

    assert arguments.scene is not None
    plan = plan_scene(arguments.scene, arguments.split, train_on_all=arguments.train_on_all)
    if not arguments.json:
        say(*(f"warning: {text}" for text in plan.findings.warnings))
    chosen = parse_views(arguments.views, len(plan.frames))
    cameras = resized(planned_cameras(plan, arguments.downscale)[chosen], arguments.width, arguments.height)
    names = [picture_name(plan.frames[i].name).removesuffix(".png") for i in chosen]
    if len(set(names)) < len(names):
        names = [f"{i:04d}_{name}" for i, name in zip(chosen, names)]
    if is_video(arguments.out) and not arguments.flight and len(cameras.resolution.unique(dim=0)) > 1:
        raise NerfleetError(str(arguments.scene), "its views have different sizes", "give --width and --height, or name a folder as --out")
    return Shot(cameras, tuple(names))


def _with_aperture(arguments: Arguments, shot: Shot, model: Model, placement: Placement) -> Shot:
    """--aperture and --focus, which are given in the scene's units, instead of a path's own."""
    from nerfleet.render.depth_of_field import ThinLens

    if arguments.aperture is None and arguments.focus is None:
        return shot
    scale = placement.transform.scale if placement.transform is not None else 1.0
    lenses = []
    for i in range(len(shot.names)):
        own = shot.lens(i) or ThinLens()
        aperture = own.aperture if arguments.aperture is None else arguments.aperture * scale
        if arguments.focus is not None:
            focus = arguments.focus * scale
        elif shot.lenses:
            focus = own.focus
        else:
            focus = _middle_distance(model, shot.cameras[i : i + 1])
        lenses.append(ThinLens(aperture, focus))
    return dataclasses.replace(shot, lenses=tuple(lenses))


def _middle_distance(model: Model, camera: Cameras) -> float:
    """Distance along the axis of what is in the middle of a picture, internal units; 1 where nothing is."""
    from nerfleet.render.renderer import render_pixels

    seen = render_pixels(model, camera, camera.resolution.float() / 2)
    return float(seen.depth[0]) if float(seen.alpha[0]) > 0.5 else 1.0


def path_size(width: int, height: int) -> tuple[int, int]:
    """Size of a path's pictures; 0 keeps the aspect of the default."""
    if not width and not height:
        return DEFAULT_SIZE
    aspect = DEFAULT_SIZE[0] / DEFAULT_SIZE[1]
    return width or max(round(height * aspect), 1), height or max(round(width / aspect), 1)


def resized(cameras: Cameras, width: int, height: int) -> Cameras:
    """The same views in another size; 0 keeps the aspect, both 0 the size. Focal lengths and centres scale along."""
    if not width and not height:
        return cameras
    import torch

    old = cameras.resolution.double()
    scale_x = width / old[:, 0] if width else height / old[:, 1]
    scale_y = height / old[:, 1] if height else width / old[:, 0]
    new = (old * torch.stack([scale_x, scale_y], -1)).round().clamp_min(1)
    factor = (new / old).float()
    return dataclasses.replace(
        cameras, focal=cameras.focal * factor, principal=cameras.principal * factor, resolution=new.to(cameras.resolution.dtype)
    )

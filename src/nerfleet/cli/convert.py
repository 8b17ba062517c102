"""``nerfleet convert``: a model from one file format to another."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from nerfleet.cli.flags import print_json, say
from nerfleet.cli.mesh import chosen_box, told_placement
from nerfleet.errors import NerfleetError

SUMMARY = "a model to .ingp or .msgpack"


@dataclass(frozen=True)
class Arguments:
    """A model from one format to another: .ingp is compressed, .msgpack is not; instant-ngp reads both.

    Examples:
        nerfleet convert runs/fox fox.ingp
        nerfleet convert fox.ingp fox.msgpack
        nerfleet convert fox.ingp head.ingp --crop=-1,-1,-1,1,1,1.5

    Attributes:
        model: an .ingp or .msgpack file, or a run folder.
        to: the .ingp or .msgpack file to write; an existing one is replaced.
        crop: keep only this box, x0,y0,z0,x1,y1,z1 in the photographs' units and axes, in pictures and meshes; none: the whole scene box again.
        json: print one JSON object.
    """

    model: Annotated[Path, tyro.conf.Positional]
    to: Annotated[Path, tyro.conf.Positional]
    crop: str = ""
    json: bool = False


def run(arguments: Arguments) -> None:
    from nerfleet.snapshot.document import SUFFIXES
    from nerfleet.snapshot.ingp import read_snapshot
    from nerfleet.snapshot.load import model_file
    from nerfleet.snapshot.write import write_snapshot

    if arguments.to.suffix.lower() not in SUFFIXES:
        raise NerfleetError(str(arguments.to), "is neither an .ingp nor a .msgpack file", "choose one of these extensions")
    source = model_file(arguments.model)
    if arguments.to.exists() and arguments.to.samefile(source):
        raise NerfleetError(str(arguments.to), "is the model itself", "choose another name")
    snapshot = read_snapshot(source)
    if arguments.crop:
        model = dataclasses.replace(snapshot.model, render_aabb=chosen_box(arguments.crop, snapshot.model, told_placement(snapshot.document, str(source))))
        snapshot = dataclasses.replace(snapshot, model=model)
    write_snapshot(arguments.to, snapshot)
    size_bytes = arguments.to.stat().st_size
    if arguments.json:
        print_json({"model": str(arguments.to), "size_bytes": size_bytes})
    else:
        say(f"{arguments.to}: {size_bytes / 1e6:,.1f} MB")

"""`prepare_folder`: from a model folder to a plan of its mixed steps, which an engine serves.

In: a model folder, and `FolderOptions`. Out: `PreparedFolder`: a plan file with a declaration of
its steps beside it, and where its weights are. All of it is kept in the cache folder by a digest of
what it depends on, so that a second start reads a plan. The stages, in order:

1. `read_folder`: what the folder says; a folder that cannot be served is refused here.
2. `cache_room`: rows, context and blocks, as asked for or as memory allows.
3. `capture_steps`: the traces of the mixed steps, compiled for the GPUs of the plan.
4. `plan`: the plan of these traces.
5. `fitted_weights`: the folder itself where its tensors have the names of the model's parameters,
   else a copy that the transformers library converts.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tessera.driver.folder.capture_steps import (
    CacheRoom,
    ModelBytes,
    capture_steps,
    fitted_weights,
    footprint,
)
from tessera.driver.folder.model_folder import (
    FolderOptions,
    ModelFolder,
    read_folder,
    wrong_folder,
)
from tessera.driver.plan import PlanOptions, plan
from tessera.driver.serve.steps import FORMAT
from tessera.frontend.cache.code_digest import code_digest
from tessera.frontend.cache.private_files import COMPILED, is_private
from tessera.frontend.machine.gpus import machine_of
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.progress import OnProgress, StageProgress
from tessera.output import Kind, write_file
from tessera.settings import read_settings

PLAN = "plan.tsp"
_PACKAGES = ("torch", "triton", "transformers")
_CODE = ("frontend/capture/**", "driver/trace/**", "driver/folder", "ir/**", "planning/**")
_MEMORY_SHARE = 0.85
"""The part of a GPU's memory for weights and cache; the rest is for what steps compute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedFolder:
    """A plan of the steps of a folder, the folder of its weights, and what the folder says."""

    plan: str
    weights: str
    folder: ModelFolder


def prepare_folder(
    path: str | os.PathLike[str],
    options: FolderOptions | None = None,
    on_progress: OnProgress | None = None,
) -> PreparedFolder:
    """The plan of a folder, from the cache or made now."""
    options = options or FolderOptions()
    folder = read_folder(path)
    key = _key(folder, options)
    with _kept(key) as kept:
        if not (kept / PLAN).is_file():
            _prepare(folder, options, kept, on_progress or (lambda told: None))
        weights = (kept / "weights") if (kept / "weights").is_dir() else folder.path
    place = _place(key) or kept
    return PreparedFolder(
        plan=str(place / PLAN),
        weights=str(place / "weights" if weights != folder.path else folder.path),
        folder=folder,
    )


def _key(folder: ModelFolder, options: FolderOptions) -> str:
    """A digest of all that a plan depends on."""
    versions = []
    for name in _PACKAGES:
        try:
            versions.append(metadata.version(name))
        except metadata.PackageNotFoundError:
            versions.append("")
    config = json.dumps([folder.config.values, folder.config.quantized_as], sort_keys=True)
    told = repr((config, folder.end, folder.files, str(folder.path.resolve()), options, versions))
    return hashlib.blake2b(
        told.encode(), key=code_digest(_CODE).encode(), digest_size=12
    ).hexdigest()


def _place(key: str) -> Path | None:
    """The folder of a plan in the cache; None without a cache that is this user's alone."""
    settings = read_settings()
    if settings.cache_dir is None or not settings.use_cache:
        return None
    parent = settings.cache_dir / COMPILED / "folders"
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return parent / key if is_private(parent) else None


@contextmanager
def _kept(key: str) -> Iterator[Path]:
    """The folder of a plan; a new one takes its place whole, when everything in it is written."""
    place = _place(key)
    if place is not None and (place / PLAN).is_file():
        yield place
        return
    made = Path(tempfile.mkdtemp(dir=None if place is None else place.parent, prefix=".new-"))
    try:
        yield made
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)
            made.rename(place)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _prepare(folder: ModelFolder, options: FolderOptions, target: Path, tell: OnProgress) -> None:
    """Write the traces, weights if need be, the declaration and the plan of a folder."""
    gpus = tuple(dict.fromkeys(card.gpu for card in machine_of(options.gpus).cards))
    tell(StageProgress("running the model on shapes"))
    room = cache_room(folder, options, footprint(folder))
    steps = capture_steps(folder, options, room, gpus, target, tell)
    fitted_weights(folder, steps, target, tell)
    said = {"format": FORMAT, "end": list(folder.end), "block": room.block}
    write_file(str(target / "plan.steps.json"), json.dumps(said).encode(), Kind.PLAN)
    tell(StageProgress("planning"))
    chosen = PlanOptions(gpus=options.gpus, sequences=1, slots=1)
    report = plan([str(step.path) for step in steps], chosen, compare=False)
    write_file(str(target / PLAN), print_plan(report.plan).encode(), Kind.PLAN)


def cache_room(folder: ModelFolder, options: FolderOptions, need: ModelBytes) -> CacheRoom:
    """The context, in whole blocks, and how many blocks there are, as memory allows.

    A model that keeps states of sequences has one block for each: its states lie there too.
    """
    longest = folder.longest
    asked = options.context or min(longest or 2048, 2048)
    if longest is not None and asked > longest:
        raise wrong_folder(f"the model has positions for {longest} tokens, not for {asked}")
    keeps_states = need.state_bytes > 0
    block = asked if keeps_states else options.block
    context = max(asked // block, 1) * block
    memory = min(card.gpu.memory_bytes for card in machine_of(options.gpus).cards)
    block_bytes = need.token_bytes * block + need.state_bytes
    room = int((memory * _MEMORY_SHARE - need.weight_bytes) / block_bytes)
    most = options.rows * (context // block) + 1
    if room < context // block + 1:
        raise wrong_folder(
            f"weights of {need.weight_bytes} bytes leave no room for a sequence of {context} "
            f"tokens, which takes {block_bytes * (context // block)} bytes",
            "name more or larger GPUs with `--gpus`, or fewer tokens with `--context`",
        )
    return CacheRoom(context, block, min(most, room), keeps_states)

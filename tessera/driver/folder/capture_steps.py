"""The traces of a folder's mixed steps, and weights under the names of their buffers.

In: a `ModelFolder`, sizes, GPUs. Out: a trace file per size of step, with the values that the model
computes when it is made beside it; and, where the tensors of the folder are not those of the model
(other names, other types, experts apart), a checkpoint that the transformers library converts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tessera.diagnostics import TesseraError
from tessera.driver.folder.model_folder import FolderOptions, ModelFolder, wrong_folder
from tessera.driver.trace.capture_trace import write_trace
from tessera.driver.trace.no_gpu_trace import NoGpuOptions, require_triton, trace_no_gpu
from tessera.frontend.capture.meta.hf import require_transformers
from tessera.frontend.contents.checkpoint import open_checkpoint, weights_of
from tessera.frontend.contents.files import Bytes
from tessera.frontend.contents.write import write_contents
from tessera.ir.choices import Route
from tessera.ir.plan.machine import Gpu
from tessera.ir.program.program import Program
from tessera.ir.progress import OnProgress, StageProgress
from tessera.output import Kind

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTrace:
    """The file of a step's trace, its program, and the buffers that have contents beside it."""

    path: Path
    program: Program
    given: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelBytes:
    """Bytes of the cache for one token, of states of a sequence beside it, and of all weights."""

    token_bytes: int
    state_bytes: int
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class CacheRoom:
    """The tokens of a sequence and of a block, and the blocks, with that of nobody.

    In a model that keeps states of sequences (`keeps_states`), a block is a sequence.
    """

    context: int
    block: int
    blocks: int
    keeps_states: bool = False


def footprint(folder: ModelFolder) -> ModelBytes:
    """What a model takes; raises TSR6019 if it cannot be served from its folder."""
    require_transformers()
    require_triton()
    from tessera.frontend.capture.meta.record import among_fakes
    from tessera.frontend.capture.mixed.step import MixedSize, make_mixed

    size = MixedSize(tokens=2, rows=1, context=1, block=1, blocks=1)
    with among_fakes():
        step, _ = make_mixed(folder.config, size)
        _check_tensors(folder, dict(step.named_parameters()))
        parts = step.block_cache.buffers(), step.state_cache.buffers(), step.parameters()
        return ModelBytes(*(sum(own.nbytes for own in part) for part in parts))


def _check_tensors(folder: ModelFolder, parameters: dict[str, torch.nn.Parameter]) -> None:
    """Refuse tensors that have the name of a parameter and another shape, and modules of which
    tensors are missing, before any capture."""
    there = folder.config.tensors
    modules = {name.rpartition(".")[0] for name in there if name in parameters}
    for name, parameter in parameters.items():
        tensor = there.get(name)
        if tensor is None and name.rpartition(".")[0] in modules:
            raise wrong_folder(f"`{name}` is missing in `{folder.path}`", _COPY)
        if tensor is not None and tuple(tensor.shape) != tuple(parameter.shape):
            raise wrong_folder(
                f"`{name}` of `{folder.path}` has the shape {list(tensor.shape)}, and "
                f"{list(parameter.shape)} by its config",
                _COPY,
            )
        is_coded = not parameter.is_floating_point()
        if tensor is not None and is_coded and tensor.width != parameter.element_size():
            raise wrong_folder(
                f"`{name}` of `{folder.path}` is {tensor.name}, and not quantized as its "
                "config says",
                _COPY,
            )


_COPY = "copy the config and the weights of one model"


def capture_steps(
    folder: ModelFolder,
    options: FolderOptions,
    room: CacheRoom,
    gpus: tuple[Gpu, ...],
    target: Path,
    tell: OnProgress,
) -> list[StepTrace]:
    """The trace of each size of step, compiled for `gpus`."""
    from tessera.frontend.capture.meta.hf import class_and_type, config_of
    from tessera.frontend.capture.mixed.step import MixedSize, computed_buffers, make_mixed

    # In float32 steps of every size give the same bits: products of Triton add up along the inner
    # axis one after the other, however they are cut. Those of libraries do not.
    _, dtype = class_and_type(config_of(folder.config))
    same_bits = str(dtype) == "torch.float32" and options.route == Route.AUTO
    chosen = NoGpuOptions(
        gpus=gpus,
        route=Route.PTX if same_bits else options.route,
        data=False,
        same_bits=same_bits,
    )
    computed = {name: _bytes(tensor) for name, tensor in computed_buffers(folder.config).items()}
    made = []
    sizes = options.sizes_of_steps()
    if room.keeps_states:  # one token of each row
        sizes = tuple(dict.fromkeys(min(tokens, options.rows) for tokens in sizes))
    for tokens in sizes:
        size = MixedSize(
            tokens=tokens,
            rows=options.rows,
            context=room.context,
            block=room.block,
            blocks=room.blocks,
            draws=options.draws,
        )
        tell(StageProgress("compiling", note=f"a step of {tokens} tokens"))
        traced = trace_no_gpu(partial(make_mixed, folder.config, size), chosen, tell).trace
        declared = {buffer.name for buffer in traced.program.declared_buffers()}
        contents = {name: content for name, content in computed.items() if name in declared}
        path = target / f"step_{tokens}.ptx"
        write_trace(replace(traced, contents=contents), path, data=bool(contents))
        made.append(StepTrace(path=path, program=traced.program, given=tuple(contents)))
    return made


def _bytes(tensor: torch.Tensor) -> Bytes:
    """The bytes of a tensor on the host."""
    import torch

    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return cast("Bytes", flat.numpy())


def fitted_weights(
    folder: ModelFolder, steps: list[StepTrace], target: Path, tell: OnProgress
) -> None:
    """Write a converted checkpoint to `target`, unless the folder's own fits the steps."""
    step = steps[-1]
    checkpoint = open_checkpoint(folder.path)
    try:
        weights_of(step.program, checkpoint, step.given)
        return
    except TesseraError as problem:
        misfit = problem
    finally:
        checkpoint.close()
    tell(StageProgress("converting weights"))
    (target / "weights").mkdir()
    state = loaded_weights(folder, misfit)
    for buffer in step.program.declared_buffers():
        if buffer.name in state and state[buffer.name].nbytes != buffer.bytes:
            raise wrong_folder(
                f"`{buffer.name}` of `{folder.path}` has the shape "
                f"{list(state[buffer.name].shape)} when its parts are joined, and "
                f"{list(buffer.shape or ())} by its config",
                _COPY,
            )
    write_contents(
        target / "weights" / "model.safetensors",
        (
            (buffer, _bytes(state[buffer.name]))
            for buffer in step.program.declared_buffers()
            if buffer.name in state
        ),
        Kind.CONTENTS,
    )
    converted = open_checkpoint(target / "weights")
    try:
        weights_of(step.program, converted, step.given)
    finally:
        converted.close()


def loaded_weights(folder: ModelFolder, misfit: TesseraError) -> dict[str, torch.Tensor]:
    """The weights as the transformers library loads them, by the names of parameters."""
    from tessera.frontend.capture.meta.hf import class_and_type, config_of, offline
    from tessera.frontend.capture.mixed.stored_loading import loaded_as_stored

    config = config_of(folder.config)
    kind, dtype = class_and_type(config)
    if folder.config.quantization is not None:
        loaded_as_stored(config, folder.config.quantization, folder.config.tensors)
    with offline():
        try:
            model, told = kind.from_pretrained(
                folder.path,
                config=config,
                dtype=dtype,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
            )
        except Exception as problem:  # whatever the library says about a checkpoint
            said = str(problem).strip().splitlines()[:1] or [type(problem).__name__]
            raise wrong_folder(
                f"transformers does not load the weights of `{folder.path}`: {said[0][:200]}"
            ) from None
    if told["missing_keys"] or told["mismatched_keys"]:
        raise misfit
    return dict(model.state_dict())

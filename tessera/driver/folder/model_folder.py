"""What a model folder says: its config, its end tokens, its tokenizer, its checkpoint.

In: a folder as `save_pretrained` writes it. Out: `ModelFolder`. Files are read as JSON and
safetensors only: nothing in a folder is run, and nothing is fetched.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.meta.hf import HfConfig, read_config
from tessera.frontend.contents.checkpoint import open_checkpoint
from tessera.frontend.text.readfile import read_source
from tessera.ir.choices import Route

CONFIG = "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """A folder that can be served. `end` are tokens that end an answer; `files` are the names,
    sizes and times of its safetensors files."""

    path: Path
    config: HfConfig
    end: tuple[int, ...]
    tokenizer: str | None
    files: tuple[tuple[str, int, int], ...]

    @property
    def longest(self) -> int | None:
        """The most tokens of a sequence by the config, if it says so."""
        tables = (self.config.values.get("text_config"), self.config.values)
        for table in tables:
            limit = table.get("max_position_embeddings") if isinstance(table, dict) else None
            if isinstance(limit, int) and limit > 0:
                return limit
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderOptions:
    """How a folder is served: the GPUs to compile and plan for, the most sequences at once (`rows`)
    and tokens of each (`context`), the tokens of steps (`step_tokens`), and those of a block.

    With `draws` steps give tokens in place of logits: quicker, without penalties and chances.
    """

    gpus: str = "a100"
    rows: int = 8
    context: int | None = None
    step_tokens: tuple[int, ...] = ()
    block: int = 16
    route: str = Route.AUTO
    draws: bool = True

    def sizes_of_steps(self) -> tuple[int, ...]:
        """The tokens of each step, smallest first."""
        given = sorted(set(self.step_tokens)) or [self.rows, 4 * self.rows]
        if given[0] < 1 or given[-1] < self.rows:
            raise wrong_folder(
                f"the largest step takes {given[-1]} tokens, and there are {self.rows} rows",
                "give a step at least as many tokens as there are rows",
            )
        return tuple(given)


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a folder rather than a plan."""
    return os.path.isdir(path)


def read_folder(path: str | os.PathLike[str]) -> ModelFolder:
    """Read and check a folder; weights are not read yet."""
    folder = Path(path)
    if not (folder / CONFIG).is_file():
        raise wrong_folder(
            f"`{folder}` is no model folder: it has no `{CONFIG}`",
            "name a folder as `save_pretrained` of the transformers library writes it",
        )
    config = read_config(folder / CONFIG)
    if config.quantized_as and (config.quantization is None or config.quantization.form is None):
        raise _other_form(folder, config.quantized_as)
    checkpoint = open_checkpoint(folder)
    checkpoint.close()
    config = replace(config, tensors=checkpoint.types)
    shards = sorted(folder.glob("*.safetensors"))
    tokenizer = folder / "tokenizer.json"
    if tokenizer.is_file():
        _check_tokenizer(tokenizer, config)
    return ModelFolder(
        path=folder,
        config=config,
        end=_end_tokens(folder, config),
        tokenizer=str(tokenizer) if tokenizer.is_file() else None,
        files=tuple((s.name, s.stat().st_size, s.stat().st_mtime_ns) for s in shards),
    )


def _check_tokenizer(file: Path, config: HfConfig) -> None:
    """Refuse a tokenizer that has tokens beyond the vocabulary of the model."""
    try:
        values = json.loads(read_source(str(file)).text)
        listed = values["model"]["vocab"]
        numbers = listed.values() if isinstance(listed, dict) else range(len(listed))
        added = [token["id"] for token in values.get("added_tokens") or ()]
        last = max([*numbers, *added], default=-1)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise wrong_folder(f"`{file}` is no tokenizer file") from None
    text = config.values.get("text_config")
    sizes = [t.get("vocab_size") for t in (text, config.values) if isinstance(t, dict)]
    known = next((size for size in sizes if isinstance(size, int)), None)
    if known is not None and last >= known:
        raise wrong_folder(
            f"`{file}` has a token {last}, and the model a vocabulary of {known}",
            "copy the tokenizer that belongs to the model",
        )


def _end_tokens(folder: Path, config: HfConfig) -> tuple[int, ...]:
    """The tokens that end an answer: those of the generation config, or else of the config."""
    given: object = None
    file = folder / "generation_config.json"
    if file.is_file():
        try:
            values = json.loads(read_source(str(file)).text)
        except (ValueError, RecursionError) as problem:
            raise wrong_folder(f"`{file}` is not JSON: {problem}") from None
        given = values.get("eos_token_id") if isinstance(values, dict) else None
    given = config.values.get("eos_token_id") if given is None else given
    listed = given if isinstance(given, list) else [] if given is None else [given]
    if not all(type(token) is int and token >= 0 for token in listed):
        raise wrong_folder(f"`eos_token_id` of `{folder}` must be tokens: whole numbers")
    return tuple(listed)


def _other_form(folder: Path, values: Mapping[str, object]) -> TesseraError:
    """The error for weights that are quantized in a way that is not served."""
    said = [*values.items()]
    groups = values.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        said += weights.items() if isinstance(weights, dict) else ()
    plain = [f"{n}: {v}" for n, v in said if isinstance(v, str | int) and n != "quant_method"]
    return wrong_folder(
        f"`{folder}` has weights quantized by `{values.get('quant_method')}` "
        f"({', '.join(plain)[:300]}), which are not served",
        "served are `fp8`, `mxfp4`, `compressed-tensors` (8 bits, or packed words of 4 or 8 bits), "
        "`awq` (gemm) and `gptq` (4 or 8 bits, without `desc_act`)",
    )


def wrong_folder(message: str, hint: str | None = None) -> TesseraError:
    """The error for a folder that cannot be served."""
    return TesseraError.of("TSR6019", message, hint=hint)

"""The 40 cells on which plans are compared with the linear program: models, GPUs, requests, limits.

Written down before the planner is changed for them. A cell is a model, a list of GPUs as `tessc
plan --gpus` takes it, tokens of prompts and answers, and its regime:

- `fits`: one GPU of every kind holds the model and some sequences;
- `tight`: some kind does not hold the model, or none does;
- `tpot`: as one of these, with a limit on the time per token (milliseconds);
- `single`: batches of one sequence.

A cell with a demand asks for the least dollars per hour, all others for the most requests per
second. A request of an image model is an image, of `STEPS` denoising steps.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from benchmarks.planning.real_traces import DECODERS, Decoder, ImageModel
from benchmarks.planning.serving_traces import IMAGES

STEPS = 28
LINK = "100Gb/s"
BATCHES = (1, 8, 32, 64, 128, 256, 512)
"""Sequences of the decode steps that are priced; times in between are linear."""


class Regime(enum.Enum):
    """What limits a cell."""

    FITS = "fits"
    TIGHT = "tight"
    TPOT = "tpot"
    SINGLE = "single"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention: ranks of queries (0: no projection) and of keys and values."""

    queries: int
    values: int
    turned: int
    own: int
    out: int


@dataclass(frozen=True, slots=True)
class TextModel:
    """A decoder with the width of its weights: 2 bytes, 1 (`e4m3`), or experts in 4 bits.

    `dense` layers at the beginning have one feed-forward block, of `dense_inner`; `common` experts
    are those that every token goes to.
    """

    decoder: Decoder
    dtype: str = "bf16"
    experts_in_4_bits: bool = False
    latent: Latent | None = None
    dense: int = 0
    dense_inner: int = 0
    common: int = 0


TEXT_MODELS = {
    "llama-8b": TextModel(DECODERS["llama-8b"]),
    "llama-70b": TextModel(DECODERS["llama-70b"]),
    "llama-70b-fp8": TextModel(DECODERS["llama-70b"], dtype="e4m3"),
    "gpt-oss-20b": TextModel(DECODERS["gpt-oss-20b"], experts_in_4_bits=True),
    "gpt-oss-120b": TextModel(
        Decoder(
            layers=36,
            hidden=2880,
            heads=64,
            kv_heads=8,
            head=64,
            inner=2880,
            vocabulary=201088,
            experts=128,
            chosen=4,
            window=128,
            biases=True,
        ),
        experts_in_4_bits=True,
    ),
    "qwen3-30b": TextModel(
        Decoder(
            layers=48,
            hidden=2048,
            heads=32,
            kv_heads=4,
            head=128,
            inner=768,
            vocabulary=151936,
            experts=128,
            chosen=8,
        )
    ),
    "deepseek-v2-lite": TextModel(
        Decoder(
            layers=27,
            hidden=2048,
            heads=16,
            kv_heads=1,
            head=128,
            inner=1408,
            vocabulary=102400,
            experts=64,
            chosen=6,
        ),
        latent=Latent(queries=0, values=512, turned=64, own=128, out=128),
        dense=1,
        dense_inner=10944,
        common=2,
    ),
    "deepseek-v2-fp8": TextModel(
        Decoder(
            layers=60,
            hidden=5120,
            heads=128,
            kv_heads=1,
            head=128,
            inner=1536,
            vocabulary=102400,
            experts=160,
            chosen=6,
        ),
        dtype="e4m3",
        latent=Latent(queries=1536, values=512, turned=64, own=128, out=128),
        dense=1,
        dense_inner=12288,
        common=2,
    ),
}
IMAGE_MODELS: dict[str, ImageModel] = {"mmdit": IMAGES}


@dataclass(frozen=True, slots=True)
class Cell:
    """A model, GPUs, tokens of a prompt and an answer; a limit in ms; a demand per second."""

    model: str
    gpus: str
    prompt: int
    answer: int
    regime: Regime
    tpot_ms: float | None = None
    demand: float | None = None

    @property
    def is_text(self) -> bool:
        """Whether requests are texts; otherwise they are images."""
        return self.model in TEXT_MODELS

    @property
    def name(self) -> str:
        """The key of its row in the results."""
        words = [self.model, self.gpus.replace(",", "+")]
        words += [f"{self.prompt}/{self.answer}"] if self.is_text else []
        words += [f"tpot={self.tpot_ms:g}ms"] if self.tpot_ms else []
        words += [f"{self.demand:g}/s"] if self.demand else []
        words += ["single"] if self.regime is Regime.SINGLE else []
        return " ".join(words)

    @property
    def batches(self) -> tuple[int, ...]:
        """Sequences of the decode steps."""
        return BATCHES[:1] if self.regime is Regime.SINGLE else BATCHES


FITS, TIGHT, TPOT, SINGLE = Regime

CELLS = (
    # dense
    Cell("llama-8b", "h20,h100", 1024, 256, FITS),
    Cell("llama-8b", "a100,l40s", 1024, 256, FITS),
    Cell("llama-8b", "h100,l40s", 1024, 256, FITS),
    Cell("llama-8b", "a100,l40s", 4096, 512, FITS),
    Cell("llama-8b", "h20,h100", 4096, 512, FITS),
    Cell("llama-8b", "h20,l40s", 1024, 256, FITS),
    Cell("llama-8b", "h100,rtx-pro-6000", 1024, 256, FITS),
    Cell("llama-8b", "b200,h100", 1024, 512, FITS),
    Cell("llama-8b", "h200,l40s", 512, 1024, FITS),
    Cell("llama-8b", "l4,l40s", 1024, 128, FITS),
    Cell("llama-8b", "2xa100,2xl40s", 1024, 256, FITS),
    Cell("llama-8b", "a100,l40s", 1024, 256, FITS, demand=200.0),
    Cell("llama-8b", "h20,h100", 1024, 256, TPOT, tpot_ms=25.0),
    Cell("llama-8b", "a100,l40s", 1024, 256, TPOT, tpot_ms=40.0),
    Cell("llama-8b", "a100,l40s", 1024, 256, SINGLE),
    Cell("llama-8b", "h20,h100", 4096, 256, SINGLE),
    Cell("llama-70b-fp8", "h100,l40s", 1024, 256, TIGHT),
    Cell("llama-70b-fp8", "h20,h100", 1024, 256, TIGHT),
    Cell("llama-70b-fp8", "h20,h200", 1024, 256, FITS),
    Cell("llama-70b", "4xa100,4xl40s", 4096, 512, TIGHT),
    Cell("llama-70b", "4xa100,4xl40s", 1024, 256, TPOT, tpot_ms=100.0),
    Cell("llama-70b", "2xh100,2xrtx-pro-6000", 1024, 256, TIGHT),
    Cell("llama-70b", "b200,h200", 1024, 512, TIGHT),
    # experts
    Cell("qwen3-30b", "h100,rtx-pro-6000", 1024, 512, FITS),
    Cell("qwen3-30b", "h100,l40s", 1024, 512, TIGHT),
    Cell("qwen3-30b", "a100,l40s", 1024, 256, TIGHT),
    Cell("qwen3-30b", "h20,h100", 1024, 512, FITS),
    Cell("qwen3-30b", "h100,rtx-pro-6000", 1024, 512, TPOT, tpot_ms=30.0),
    Cell("gpt-oss-120b", "h100,l40s", 1024, 512, TIGHT),
    Cell("gpt-oss-120b", "a100,l40s", 1024, 256, TIGHT),
    Cell("gpt-oss-20b", "a100,l40s", 1024, 256, FITS),
    Cell("gpt-oss-20b", "h100,rtx-pro-6000", 1024, 256, SINGLE),
    # latent attention
    Cell("deepseek-v2-lite", "h20,h100", 1024, 256, FITS),
    Cell("deepseek-v2-lite", "a100,l40s", 4096, 512, FITS),
    Cell("deepseek-v2-lite", "h100,l40s", 1024, 512, TPOT, tpot_ms=30.0),
    Cell("deepseek-v2-fp8", "2xh200,2xh20", 1024, 256, TIGHT),
    # images
    Cell("mmdit", "a100,l40s", 0, 0, FITS),
    Cell("mmdit", "h100,l40s", 0, 0, FITS),
    Cell("mmdit", "b200,h100", 0, 0, FITS),
    Cell("mmdit", "l4,l40s", 0, 0, SINGLE),
)

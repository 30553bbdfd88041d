"""The page on accuracy, `docs/concepts/accuracy.md`, made from the files of results.

    python -m benchmarks.accuracy            # writes the page

What a user needs to know before relying on a figure, in one place; every number comes from a file.
A test fails where the page differs from the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from benchmarks.common import RESULTS, ROOT
from benchmarks.measured import Data

PAGE = ROOT / "docs" / "concepts" / "accuracy.md"
FAMILIES = {
    "gemm bfloat16": "products in 16 bits",
    "gemm fp8": "products in fp8",
    "context": "attention of prompts",
    "generation": "attention of a decode step",
    "moe bfloat16": "experts in 16 bits",
    "moe fp8": "experts in fp8",
    "moe w4a16_mxfp4": "experts in 4 bits",
}
STEPS = {
    "qwen3-moe decode": "Qwen3-MoE (6 layers, 128 experts), decode of 16",
    "mixtral decode": "Mixtral (4 layers), decode of 32",
    "gpt-oss prompt": "gpt-oss in bf16 (4 layers), prompt of 512",
    "glm-4.5-air decode": "GLM-4.5-Air (5 layers), decode of 32",
    "olmoe prompt": "OLMoE (6 layers), prompt of 1024",
    "deepseek-v2-lite prompt": "DeepSeek-V2-Lite (5 layers, MLA), prompt of 1024",
    "gemma-3 prompt": "Gemma 3 4B (6 layers), prompt of 2048",
    "vit image": "ViT-L (12 layers), 16 images",
    "whisper sound": "Whisper large encoder (8 layers), 2 sounds",
    "mmdit image": "MMDiT (4 blocks, 3072 wide), a denoising step",
    "qwen3 in 8 bits, decode": "Qwen3-8B with fp8 products (6 layers), decode of 24",
    "mamba2 prompt": "Mamba2 2.7B (6 layers), prompt of 1024, operator by operator",
}
PAIRS = {
    "a100/l40s": "A100, L40S",
    "h100/rtx-pro-6000": "H100, RTX PRO 6000",
    "h200/h100": "H200, H100",
    "b200/h100": "B200, H100",
}

TEXT = """# How far to trust the figures

Every rate, latency and cost of a plan is simulated from the times of its steps. Read this page before you rent or rewire anything because of one. `python -m benchmarks.accuracy` makes it from the files that it names; a test compares them.

## What was never tried

- **Two different GPUs at once.** No plan has run on them: they were not available. Plans ran on slices of one H200, where steps take different times on different slices, on hosts with the CPU backend, and on stand-ins for the driver.
- Copies between GPUs, over NVLink, PCIe or a network. What an exchange between two cards takes is assumed until `tessc selftest` has measured it on yours; the report of `tessc plan` says which of the two it is.
- A fleet of `tessc fleet`, on GPUs. Its commands were checked against the options of vLLM and Dynamo.

## Which times are measured

`durations:` in the report of a plan counts the times by source, and `tessc plan trace.ptx --gpus a100,l40s --explain k3` shows those of one step. From the best to the worst:

| source | measured | how far off |
|---|---|---|
| `profile` | this step, on your GPU | steps of a model: {profile[within_5_percent]} of {profile[profiled]} within 5% (`profiled_steps.json`) |
| `table` | the same work, on this kind of GPU, by others | sizes left out: half within {tables[median]:.1%}, nine of ten within {tables[p90]:.0%}; bars hold in {tables[bars_hold]:.0%}, the faster of A100 and L40S is right in {tables[faster_right]:.0%} (`tables.json`) |
| `ratio` | this step, on another GPU | half within {ratio:.1%} or less (`tables.json`) |
| `near` | the same work, on GPUs that are alike | {near[within_30_in_all]:.0%} within 30%, bars hold in {near[held_in_all]:.0%}, with constants that know nothing of the GPU; by operator and GPU, nine of ten are within 30% in {near[nine_in_ten_within_30]} of {near[families_on_gpus]}, and bars hold in 85 to 95% in {near[held_85_to_95]}, in 88 to 92% in {near[held_88_to_92]}: the file has the cause of each that misses (`held_out.json`) |
| `model` | nothing of this step; a model that was fitted on an H200 | half within a factor of {model[median_factor]:.2f}, nine of ten within {model[p90_factor]:.2f} (`fit_durations.json`) |
| `sheet` | nothing; the same model with a data sheet | bars of 110% plus 8 us and more: see below |

`fleets.json` was made with times of library calls as they were before these were centred on three engines (18 November 2026), and has not been made again. `gain_program.json`, `paper.json`, `promises.json`, `homogeneous.json` and `fit_durations.json` were made again a day later. The gain over the usual forms fell by up to 0.07 in the 36 cells that both have, and one of the ten surely positive ones is no longer sure. In the paper's figures diffusion steps take 3 to 7% longer and gpt-oss-20b on an A100 and an L40S up to 16% (by kernel); the mean over phase splits went from 1.33 to 1.32.

Times of a library's kernels differ from library to library: bars between libraries hold for {libraries[blind]:.0%} of rows of a library that they know nothing of (`libraries.json`). Versions of one library differ as much, and no bar covers that.

## Where the bars hold

A bar is meant to hold in nine of ten cases. Calls of libraries by the model, with each of eight GPUs left out in turn (`model_bars.json`, {rows:,} rows of vLLM, TensorRT-LLM and SGLang):

| family | bars hold | off by, in the median | bias | half of a bar |
|---|---|---|---|---|
{families}

By GPU, bars of the five families that are not quantized experts hold for {least:.0%} to {most:.0%} of the rows.

Which of two GPUs is faster, by data sheets alone with nothing of the two in any constant, for rows of vLLM that differ by more than 10%; in brackets, of the rows on which vLLM, TensorRT-LLM and SGLang agree (`direction.json`):

| pair | products | attention of prompts | attention of a decode step |
|---|---|---|---|
{pairs}

With each GPU left out of the tables in turn, and priced by the rows of others, the bars of two GPUs support a statement which of them is faster for {ranked[stated]} of {ranked[pairs]} rows and pairs of GPUs; {wrong:.1%} of these statements are wrong (`held_out.json`).

The L40S lowers its clock under a long load, so long prompts take longer there than predicted. cuBLAS needs several times as long as the best kernel for products of eight rows or fewer on it.

Steps of models that no constant was fitted to, on an H200, predicted without a profile before they were measured (`unseen_steps.json`): {unseen[within_25_percent]} of {steps} within 25%, {unseen[within_12_percent]} within 12%, {held} of the bars hold.

| step | predicted, ms | bar, ms | measured, ms | predicted over measured |
|---|---|---|---|---|
{unseen_rows}

- The fp8 step reads its cache up to a length that lies in memory, and the model left that loop at once. It takes such a loop to read all bytes that the launch may touch, which gives 55 us for attention that takes 52; the table has the prediction as it was made.
- In DeepSeek-V2-Lite, the products of experts take 2.76 ms and were predicted at 2.35, and sorting the rows takes 0.20 ms instead of 0.04.
- The 542 operators of Mamba2 were captured one by one. Products that are broadcast over six dimensions take 124 ms there and were predicted at 34: the model did not count how PyTorch finds the places of such elements, and that their threads ask for each of them. It counts both now, with no constant fitted to such calls, and says {mamba2:.0f} ms for the whole step; the bar of such calls is twice as wide.
- From a profile, steps with large products that repeat for seconds are up to 10% slower than profiled, as the clock falls. A mixture of experts needs the weights of a checkpoint (`tessc profile --weights`). GLM-4.5-Air was predicted at {glm:.2f} of its time with weights from a seed: its router adds a bias to each expert, and biases from a seed are as large as the scores, so that 32 tokens reach about {causes[glm_experts_from_seed]:.0f} of 128 experts, where {causes[glm_experts_uniform]:.0f} are expected. Profiles state now that weights were from a seed, and experts below the time of the bytes that they are expected to read have the time of the model instead; that profile was not measured again.

## From steps to plans

Bars of a plan hold nine of ten draws of the bars of its steps, and what simulations were off by:

| what | simulated against run | file |
|---|---|---|
| plans on slices of an H200, from a profile | {sim[plans]} plans: {sim[within_7_percent]:.0%} within 7%, half within {sim[median_off]:.1%}, the worst {sim[most_off]:.0%} off; of {sim[pairs_that_differ_by_5_percent]} pairs that differ by 5%, {sim[in_the_right_order]} in the right order | `simulated_h200.json` |
| twelve of them again, on another day | {again[within_7_percent]:.0%} within 7%, half within {again[median_off]:.1%}; the three of a layer of experts {experts} off | `simulated_h200_again.json` |
| what `tessc plan` prints, against `tessc simulate` of its file | {promises[within_1_percent]} of {promises[plans]} plans within 1% | `promises.json` |

So a split may be off by 5% whatever is known of its steps, a split over slices of one GPU by 9%, a plan without a split by 5%, and one for a mix of traces by 11%: so far off were nine of ten plans that ran (`simulated_h200.json`, `gain.json`, `gain_real.json`). A split is recommended only if it is ahead of the best plan without one in nine of ten draws.

Traces from a config file (`hf:`) have no captured kernels: their steps are those of a fused model, priced by tables and the model. Rates of `tessc fleet` are of the scheduler of this project with the kernel times of vLLM; vLLM itself has its own scheduler.

## What to do about it

- Where the report says that bars do not tell, it names the steps to measure: `tessc profile` on each kind of GPU that you have.
- With two kinds of GPUs in one machine, [run the self-test](../guides/selftest.md): ten minutes, and it measures what nobody here could.
- Without either, trust the order of plans only where their bars are apart.
"""  # noqa: E501


def page() -> str:
    """The text of the page."""
    files = {
        name: json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
        for name in (
            "profiled_steps", "tables", "held_out", "fit_durations", "libraries", "model_bars",
            "direction", "unseen_steps", "simulated_h200", "simulated_h200_again",
            "promises",
        )
    }  # fmt: skip
    families, unseen = files["model_bars"]["families"], files["unseen_steps"]
    plain = [families[name]["by_gpu"] for name in families if name not in ("moe fp8",)]
    by_gpu = [held for own in plain[:5] for held in own.values()]
    again = files["simulated_h200_again"]
    experts = [
        abs(row["off"])
        for row in again["rows"]
        if row["model"] == "experts" and not row["label"].startswith("random")
    ]
    profiled = files["profiled_steps"]
    return TEXT.format(
        profile=profiled,
        tables=files["tables"]["a100/l40s"]["all"],
        ratio=max(_ratios(files["tables"])),
        near=files["held_out"]["summary"],
        ranked=files["held_out"]["rankings"],
        wrong=files["held_out"]["rankings"]["wrong"] / files["held_out"]["rankings"]["stated"],
        model=files["fit_durations"]["held_out_by_rows"]["all"],
        libraries=files["libraries"]["summary"],
        rows=sum(family["rows"] for family in families.values()),
        families="\n".join(_families(families)),
        least=min(by_gpu),
        most=max(by_gpu),
        pairs="\n".join(_pairs(files["direction"])),
        unseen=unseen,
        steps=len(unseen["rows"]),
        held=sum(row["bar_holds"] for row in unseen["rows"].values()),
        unseen_rows="\n".join(_unseen(unseen["rows"])),
        causes=profiled["causes"],
        mamba2=profiled["causes"]["mamba2"]["predicted_ns"] / 1e6,
        glm=profiled["rows"]["glm-4.5-air decode"]["profiled_ratio"],
        sim=files["simulated_h200"]["searched"],
        again=again["searched"],
        experts=f"{min(experts):.0%} to {max(experts):.0%}",
        promises=files["promises"],
    )


def _ratios(tables: Data) -> Iterator[float]:
    for name, own in tables.items():
        if name.startswith("ratio"):
            yield from _medians(own)


def _medians(own: Data) -> Iterator[float]:
    for value in own.values():
        if isinstance(value, dict) and "median" in value:
            yield value["median"]


def _families(families: Data) -> Iterator[str]:
    for name, title in FAMILIES.items():
        own = families[name]
        bias = round(own["bias"], 2) + 0.0
        yield (
            f"| {title} | {own['held_gpu']:.0%} | {own['median']:.0%} | {bias:+.0%} | "
            f"{own['half_width']:.0%} |"
        )


def _pairs(direction: Data) -> Iterator[str]:
    for name, title in PAIRS.items():
        own = direction[name]["alone"]
        cells = []
        for kind in ("gemm", "prefill", "decode"):
            judged, agreed = own[kind]["model"], own[kind].get("agreed", {}).get("faster_right")
            also = "" if agreed is None else f" ({agreed:.0%})"
            cells.append(f"{judged['faster_right']:.0%} of {judged['apart']}{also}")
        yield f"| {title} | {' | '.join(cells)} |"


def _unseen(rows: Data) -> Iterator[str]:
    for name, title in STEPS.items():
        own = rows[name]
        low, high = (end / 1e6 for end in own["bar"])
        yield (
            f"| {title} | {own['predicted_ns'] / 1e6:.2f} | {low:.2f} to {high:.2f} | "
            f"{own['measured_ns'] / 1e6:.2f} | {own['ratio']:.2f} |"
        )


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

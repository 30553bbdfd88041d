"""The page of measured figures, `docs/measured.md`, made from the files of results.

    python -m benchmarks.measured            # writes the page

A row has what was measured, its figures as the file has them (a template over the file's JSON, or
over what a function makes of it), and the command. Figures that are not in a file of results have
no place here. A test fails where the page differs from the files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.common import RESULTS, ROOT

PAGE = ROOT / "docs" / "measured.md"
Data = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A row of the page. `said` is filled in from the file's JSON, or from `made` of it."""

    what: str
    said: str
    file: str
    command: str
    made: Callable[[Data], Data] = dict

    def row(self, machine: bool = True) -> str:
        """The row, with the machine and a link to the file, or without both."""
        data = json.loads((RESULTS / self.file).read_text("utf-8"))
        row = f"| {self.what} | {self.said.format(**self.made(data))} |"
        if not machine:
            return f"{row} `{self.command}` |"
        link = f"[{self.file}](../benchmarks/results/{self.file})"
        return f"{row} {_machine(data)} | `{self.command}` | {link} |"


def _machine(data: Data) -> str:
    """Where a file was made, as it says so."""
    told = data.get("gpu") or data.get("machine")
    rows = data.get("rows")
    if told is None and isinstance(rows, list) and rows:
        told = rows[0].get("machine")
    if isinstance(told, dict):
        told = next((told[key] for key in ("device", "processor", "machine") if key in told), None)
    return str(told) if told else "not recorded"


def spread(values: Iterable[float]) -> Data:
    """The least and the greatest of some figures."""
    known = sorted(values)
    return {"least": known[0], "most": known[-1]}


def _planted(data: Data) -> Data:
    kinds = data["positions"].values()
    found = sum(kind["at the fault"] for kind in kinds)
    planted = sum(kind["cases"] for kind in kinds)
    return {"planted": planted, "found": found, "kinds": len(kinds), **data}


def _judged(data: Data) -> Data:
    kinds = {name: kind for name, kind in data.items() if isinstance(kind, dict)}
    parts = {"": _RANDOM, "held_": [name for name in kinds if name.startswith("held out")]}
    said: Data = {}
    for prefix, names in parts.items():
        rows = [kinds[name] for name in names]
        said[f"{prefix}taken"] = sum(row["taken by ptxas"] for row in rows)
        refused = sum(row["refused by ptxas"] for row in rows)
        said[f"{prefix}asked"] = said[f"{prefix}taken"] + refused
        said[f"{prefix}wrong"] = sum(row["refused wrongly"] for row in rows)
        both = sum(row["share refused"] * row["refused by ptxas"] for row in rows)
        said[f"{prefix}share"] = both / refused
    return said


_RANDOM = (
    *("known statements", "neighbours of known statements", "forms"),
    "forms and neighbours, newest version",
)


def _sizes(data: Data) -> Data:
    sizes = data["sizes"]
    names = ("50 to 200 KB", "200 KB to 1 MB", "above 1 MB")
    means = ", ".join(f"{sizes[name]['geometric_mean_cpu_ratio']:.1f}" for name in names)
    bodies = ", ".join(f"{sizes[name]['geometric_mean_build_cpu_ratio']:.1f}" for name in names)
    return data | {"means": means, "bodies": bodies}


def _start(data: Data) -> Data:
    above = {name: row["above_baseline"] for name, row in data["commands"].items()}
    return {
        "plain": above["tessc analyze, plain PTX"],
        "trace": above["tessc analyze, trace of one launch"],
        "cold": above["tessc analyze, trace of one launch, no cache"],
    }


def _planner(data: Data) -> Data:
    (row,) = [row for row in data["growth"] if row["size"] == 1000]
    (large,) = [row for row in data["growth"] if row["size"] == 5000]
    worst = "worst_cpu_seconds"
    return {"near": row["0.01"][worst], "exact": row["0.001"][worst], "large": large["0.01"][worst]}


def _correct(data: Data) -> Data:
    parts = [
        part
        for model in data.values()
        if isinstance(model, dict)
        for part in model.values()
        if isinstance(part, dict) and "placements" in part
    ]
    runs, wrong = sum(p["placements"] for p in parts), sum(p["different"] for p in parts)
    return {"runs": runs, "equal": runs - wrong}


def _overhead(data: Data) -> Data:
    models = [model for model in data.values() if isinstance(model, dict) and "slots_1" in model]
    return {"models": len(models)} | {
        slots: "{least:.3f} to {most:.3f}".format(**spread(m[slots]["ratio"] for m in models))
        for slots in ("slots_1", "slots_2", "slots_4")
    }


def _captured(data: Data) -> Data:
    rows = [row for row in data["rows"] if row["route"] == "auto" and "ratio" in row]
    decode = [row["ratio"] for row in rows if row["case"].startswith("decode")]
    prefill = [row["ratio"] for row in rows if row["case"].startswith("prefill")]
    return {"decode": spread(decode), "prefill": spread(prefill), "steps": len(rows)}


def _folder(data: Data) -> Data:
    rows: Data = data["rows"]
    return {**rows, "many": rows["speed"]["1024"]}


def _roles(data: Data) -> Data:
    rows = data["rows"]
    rates = {
        name.removeprefix("mix: "): row["at once"]["requests_per_s"]
        for name, row in rows.items()
        if name.startswith("mix: ")
    }
    said = ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items())
    return {"said": said, **rows}


def _forms(data: Data) -> Data:
    forms = data["cells"]["llama-8b a100+l40s 1024/256"]["forms"]
    rates = {name: form["figure"] for name, form in forms.items() if form}
    return {"roles": rates["roles"], "copies": rates["data parallel"], "kernels": rates["kernel"]}


def _on_slices(data: Data) -> Data:
    again = json.loads((RESULTS / "simulated_h200_again.json").read_text("utf-8"))
    return {**data, "again": again["searched"]}


def _hidden(data: Data) -> Data:
    speeds = ("25 GB/s", "12.5 GB/s", "3 GB/s")
    return {"hidden": ", ".join(f"{data[speed]['planner']['hidden']:.0%}" for speed in speeds)}


def _checked(data: Data) -> Data:
    small, *others = (row for name, row in data["groups"].items() if name.endswith("B"))
    largest = data["growth"][-1]
    return {
        "rates": ", ".join(f"{row['again_mb_per_s']:.1f}" for row in others),
        "ratios": ", ".join(f"{row['ratio_again']:.1f}" for row in others),
        "first": ", ".join(f"{row['ratio_first']:.1f}" for row in others),
        "small": small["again_s"] / small["files"] * 1e3,
        "passes": data["groups"]["below 5 KB, in passes"]["again_s"] / small["files"] * 1e3,
        "small_theirs": small["ptxas_s"] / small["files"] * 1e3,
        "memory": largest["peak_mb"] * 2**20 / largest["bytes"],
    }


GROUPS: dict[str, tuple[Figure, ...]] = {
    "Reading PTX": (
        Figure(
            what="PTX to a verified module, processor time",
            said="{total[files]} files: {total[mb_per_cpu_s]:.2f} MB/s,"
            " {total[total_cpu_ratio]:.1f} times as fast as `ptxas -O3`, which also optimizes;"
            " geometric means {means} from 50 KB, 200 KB and 1 MB up; {bodies} with every body"
            " built",
            file="parse.json",
            command="python -m benchmarks.reading.parse --large FOLDER --repeats 2",
            made=_sizes,
        ),
        Figure(
            what="the same against `ptxas -arch compute_XX`, which reads and checks only",
            said="{rates} MB/s from 5 KB, 50 KB, 200 KB and 1 MB up, {ratios} times as fast, and"
            " {first} times for a file that the process sees for the first time; below 5 KB,"
            " both without what an empty file takes: {small:.2f} ms a file ({passes:.2f} where"
            " small files are read one after another), where ptxas takes {small_theirs:.2f}; the"
            " process peaks at {memory:.1f} times a file of 20 MB",
            file="check_speed.json",
            command="python -m benchmarks.reading.check_speed",
            made=_checked,
        ),
        Figure(
            what="single statements beside ptxas",
            said="{asked:,} random statements, targets and versions: {wrong} of {taken:,} refused"
            " wrongly, {share:.1%} of what ptxas refuses refused; held out sources: {held_wrong} of"
            " {held_taken:,} wrongly, {held_share:.1%}",
            file="verdicts.json",
            command="python -m benchmarks.reading.verdicts judge",
            made=_judged,
        ),
        Figure(
            what="damaged PTX",
            said="{cases:,} cases, no crash, no hang; {found} of {planted} planted faults of"
            " {kinds} kinds refused at their line",
            file="fuzz.json",
            command="python -m tests.fuzz.ptx",
            made=_planted,
        ),
        Figure(
            what="start of `tessc analyze`, above importing NumPy, Lark and click",
            said="plain PTX {plain:.2f} s, a trace of one launch {trace:.2f} s, without the cache"
            " {cold:.2f} s",
            file="startup.json",
            command="python -m benchmarks.reading.startup",
            made=_start,
        ),
    ),
    "Analysis": (
        Figure(
            what="stated regions against the bytes that kernels touch",
            said="{cases} cases; {decided_by_launch[exact_share]:.1%} of accesses exact where the"
            " launch alone decides them, {all[exact_share]:.1%} of all",
            file="tightness.json",
            command="python -m benchmarks.analysis.tightness",
        ),
        Figure(
            what="the same on an H200, all bytes outside poisoned or watched",
            said="{checked} launches, none wrong",
            file="regions_gpu.json",
            command="python -m tests.gpu.check_regions",
        ),
        Figure(
            what="kernels in C against an oracle that shares no code with us, on an H200",
            said="{cases:,} kernels, {runs:,} runs, no other result and no byte outside",
            file="oracle_gpu.json",
            command="python -m tests.gpu.check_oracle run FILE",
        ),
        Figure(
            what="a layer of 40 kernels, 1.5 MB of PTX, cold",
            said="{one_layer[cold_over_ptxas]:.1f} times what `ptxas -O3` takes",
            file="analyze.json",
            command="python -m benchmarks.analysis.analyze",
        ),
    ),
    "Planning": (
        Figure(
            what="Llama 3 8B on an A100 and an L40S, prompts of 1,024 tokens and answers of 256",
            said="{roles:.1f} requests/s with roles, {copies:.1f} with a copy on each GPU,"
            " {kernels:.1f} kernel by kernel; simulated",
            file="gain_program.json",
            command="python -m benchmarks.gain.program show",
            made=_forms,
        ),
        Figure(
            what="1,000 kernels on two GPUs, worst of five families, processor time",
            said="within 1% of the bound in {near:.2f} s, 0.1% in {exact:.1f} s; 5,000 kernels 1%"
            " in {large:.1f} s",
            file="planner.json",
            command="python -m benchmarks.planning.planner --many"
            " -o benchmarks/results/planner.json",
            made=_planner,
        ),
        Figure(
            what="changes to launch programs that still parse, in 50 random orders each",
            said="{different:,} of {changes_that_parse:,} give another result,"
            " {accepted_though_different} of these are accepted by the checker;"
            " {of_these_accepted:,} of {changes_that_change_nothing:,} that change nothing are",
            file="plan_changes.json",
            command="python -m benchmarks.planning.plan_changes --plans 120",
        ),
        Figure(
            what="what `tessc plan` prints against a simulation of the file that it wrote",
            said="{within_1_percent} of {plans} plans within 1%",
            file="promises.json",
            command="python -m benchmarks.planning.promises",
        ),
    ),
    "Predicted times": (
        Figure(
            what="kernels that were not fitted, H200",
            said="median factor {held_out_by_rows[all][median_factor]:.2f}, nine of ten within"
            " {held_out_by_rows[all][p90_factor]:.2f}; a roofline"
            " {roofline[median_factor]:.1f}",
            file="fit_durations.json",
            command="python -m benchmarks.prediction.fit_durations"
            " benchmarks/results/h200_rows.jsonl.xz --folds rows",
        ),
        Figure(
            what="steps of models that are not Llama, predicted before they were measured, H200",
            said="{within_25_percent} of {steps} within 25%, {within_12_percent} within 12%",
            file="unseen_steps.json",
            command="python -m benchmarks.prediction.unseen_steps compare --work FOLDER",
            made=lambda data: data | {"steps": len(data["rows"])},
        ),
        Figure(
            what="the same steps, without Mamba2, predicted from a profile",
            said="{within_5_percent} of {profiled} within 5%",
            file="profiled_steps.json",
            command="python -m benchmarks.prediction.profiled_steps compare --work FOLDER",
        ),
        Figure(
            what="layers of models traced from config files, beside captures on an H200",
            said="bytes within 10% in {bytes_hold} of {models}, steps at most 1.5 times those of"
            " the capture in {steps_hold}",
            file="derived_steps.json",
            command="python -m benchmarks.prediction.derived_steps",
            made=lambda data: data | {"models": len(data["rows"])},
        ),
        Figure(
            what="plans on slices of an H200, simulated from a profile, against runs",
            said="{searched[plans]} plans, {searched[within_7_percent]:.0%} within 7%, the worst"
            " off by {searched[most_off]:.0%}; {again[plans]} of them on another day: "
            "{again[within_7_percent]:.0%} within 7%, the worst, of experts, {again[most_off]:.0%}",
            file="simulated_h200.json",
            command="python -m benchmarks.prediction.simulated_h200 report --work FOLDER -o FILE",
            made=_on_slices,
        ),
    ),
    "Running": (
        Figure(
            what="plans on two and three slices of an H200, random placements",
            said="{equal} of {runs} equal to one device to the byte",
            file="cuda_correct.json",
            command="python -m benchmarks.running.cuda_correct",
            made=_correct,
        ),
        Figure(
            what="models of the transformers library as they come, on two slices of an H200",
            said="{right_twice_without_a_pin} of {models} equal to PyTorch's bytes",
            file="unprepared.json",
            command="python -m benchmarks.laptop.unprepared -o FILE --work FOLDER",
        ),
        Figure(
            what="a one-device plan against a plain CUDA graph, H200",
            said="{models} models: {slots_1} of its time with one slot, {slots_2} with two,"
            " {slots_4} with four",
            file="cuda_overhead.json",
            command="python -m benchmarks.running.cuda_overhead",
            made=_overhead,
        ),
        Figure(
            what="captured steps against the fastest of torch.compile, H200",
            said="decode {decode[least]:.2f} to {decode[most]:.2f} of its time, prefill"
            " {prefill[least]:.2f} to {prefill[most]:.2f}",
            file="real_models.json",
            command="python -m benchmarks.running.real_models -o FILE --work FOLDER",
            made=_captured,
        ),
        Figure(
            what="transfers behind compute at 25, 12.5 and 3 GB/s, H200",
            said="{hidden}",
            file="cuda_pipeline.json",
            command="python -m benchmarks.running.cuda_pipeline",
            made=_hidden,
        ),
        Figure(
            what="steps cut into parts over devices, CPU backend",
            said="{equal} of {plans} plans equal to the byte, {cut_steps:,} steps cut",
            file="divided_models.json",
            command="python -m benchmarks.running.divided_models -o FILE",
        ),
    ),
    "Serving and hosts": (
        Figure(
            what="an 8B model folder on an H200: 256 prompts of 64 to 511 tokens at once over HTTP,"
            " answers of 128",
            said="{speed[streams][tokens_per_s]:,.0f} tokens/s, with other lengths"
            " {speed[other lengths][tokens_per_s]:,.0f}, 1,024 prompts"
            " {many[tokens_per_s]:,.0f}; a plain loop over the same steps"
            " {loop[loop][tokens_per_s]:,.0f}; continuous batching of transformers"
            " {transformers[tokens_per_s]:,.0f}",
            file="serving_folder_h200.json",
            command="python -m benchmarks.serving.folder_h200 run --work FOLDER -o FILE",
            made=_folder,
        ),
        Figure(
            what="prompts on 84 SMs, answers on 48 of an H200, with hand-over",
            said="{tokens[sequences_equal]} of {tokens[sequences]} sequences equal to a plain"
            " loop; a hand-over of {cost[mean_bytes]:,} bytes takes {cost[mean_us]:.0f} us;"
            " requests/s: {said}",
            file="serving_roles_h200.json",
            command="python -m benchmarks.serving.roles_h200 run --work FOLDER -o FILE",
            made=_roles,
        ),
        Figure(
            what="random placements over 2 to 4 hosts, CPU backend",
            said="{equal} of {placements} equal to one device to the byte",
            file="hosts.json",
            command="python -m benchmarks.hosts.placements run -o FILE",
        ),
        Figure(
            what="faults at random moments of such runs",
            said="{faults}: {hung_or_lost} hung or lost, {wrong_outputs} of {outputs:,} outputs"
            " wrong; {in_time} of {timed} in time",
            file="host_faults.json",
            command="python -m benchmarks.hosts.faults run -o FILE",
        ),
        Figure(
            what="requests for text simulated (Azure conversation trace, 16 GPUs)",
            said="{requests:,} in {processor_s:.0f} s of processor time",
            file="serving_simulation.json",
            command="python -m benchmarks.serving.simulation azure_2023_conv.csv.gz -o FILE",
        ),
    ),
}

TOP = (
    "gain_program.json",
    "unprepared.json",
    "real_models.json",
    "simulated_h200.json",
    "planner.json",
)
"""The files of the figures that the README shows."""


def top() -> list[str]:
    """The rows of the README."""
    every = {figure.file: figure for figures in GROUPS.values() for figure in figures}
    return [every[file].row(machine=False) for file in TOP]


HEAD = """# Measured

Every figure here comes from a file that a script of `benchmarks/` wrote, with the machine it ran on. `python -m benchmarks.measured` makes this page; a test compares it with the files. The [README of the benchmarks](../benchmarks/README.md) lists all scripts and all files, and [how far to trust the figures](concepts/accuracy.md) says what they mean for a plan.
"""  # noqa: E501


def page() -> str:
    """The text of the page."""
    lines = [HEAD]
    for group, figures in GROUPS.items():
        lines += [f"## {group}", "", "| what | figures | machine | command | file |"]
        lines += ["|---|---|---|---|---|"]
        lines += [figure.row() for figure in figures] + [""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

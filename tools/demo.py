"""`make demo`: a split that pays, the same split run here, and a split that does not pay.

Every command is shown. What it prints goes to a file in `out`, and the lines that answer the
question are shown. The exit code is not 0 if a command fails or a result differs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

OUT = Path("out")
LARGE = "examples/large/llama-70b-"
STEPS = "examples/traces/llama_steps"
GPUS = ("--gpus", "a100,l40s")


def tessc(name: str, *arguments: str) -> str:
    """Runs a command and returns what it prints, which is also written to `out/NAME.txt`."""
    print(f"$ tessc {' '.join(arguments)} > out/{name}.txt", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "tessera", *arguments], capture_output=True, text=True, check=False
    )
    (OUT / f"{name}.txt").write_text(done.stdout, "utf-8")
    if done.returncode:
        sys.exit(done.stderr + done.stdout)
    return done.stdout


def show(text: str, *starts: str) -> None:
    """Prints the lines that begin with one of these words."""
    for line in text.splitlines():
        if line.strip().startswith(starts):
            print(f"  {line.strip()}")


def served(name: str, plan: str) -> str:
    """Sends a plan twelve prompts, and returns the report."""
    arrivals = ("--arrivals", "poisson:20/s:12", "--tokens", "5:4")
    return tessc(name, "bench", plan, "--steps", "names", *arrivals)


def digest(text: str) -> str:
    """The SHA-256 of the answers in a report."""
    found = re.search(r"sha256 (\w+)", text)
    return found[1] if found else ""


def main() -> None:
    """Runs the three parts."""
    OUT.mkdir(exist_ok=True)
    (OUT / "llama_steps.npz").write_bytes(Path(f"{STEPS}.npz").read_bytes())

    print("1. A split that pays: Llama 3 70B on 4 A100 and 4 L40S, by kernel times of vLLM.")
    traces = [f"{LARGE}{step}.ptx" for step in ("decode-b8", "decode-b64", "prefill-1024")]
    fleet = ("--gpus", "4xa100,4xl40s", "--tokens", "1024:256", "--library", "vllm")
    forms = ("--strategies", "single,layers,phase")
    answer = tessc("fleet", "fleet", *traces, *fleet, *forms)
    show(answer, "answer:", "units", "1  4x", "requests/s", "the answer")
    show(answer, "layers", "phase")
    print("  (layers: some layers on each GPU; phase: prompts on one kind, answers on the other)")

    print("\n2. Such a split, run here: a small Llama, each GPU a process of this machine.")
    both, one = str(OUT / "phase.tsp"), str(OUT / "single.tsp")
    steps = (f"{STEPS}_prefill.ptx", f"{STEPS}_decode.ptx")
    tessc("phase_plan", "plan", *steps, *GPUS, "--strategy", "phase", "-o", both)
    tessc("single_plan", "plan", *steps, "--gpus", "a100", "-o", one)
    split, whole = served("phase", both), served("single", one)
    show(split, "steps", "hand-overs")
    if not digest(split) or digest(split) != digest(whole):
        sys.exit("the answers of the two plans differ")
    print(f"  both plans gave the same tokens to all 12 prompts (sha256 {digest(split)})")

    print("\n3. A split that does not pay: one step of a small diffusion transformer.")
    plan = str(OUT / "dit.tsp")
    show(tessc("dit_plan", "plan", "examples/traces/dit.ptx", *GPUS, "-o", plan), "plan:")
    data = ("--data", "examples/traces/dit.npz", "--timeline", str(OUT / "dit.timeline.json"))
    show(
        tessc("dit_run", "run", plan, *data, "--requests", "6", "--verify"),
        "verified",
        "request 0 eq",
    )
    tessc("report", "report", plan, str(OUT / "dit.timeline.json"), "-o", str(OUT / "dit.html"))
    print("\nopen out/dit.html in a browser; the complete answers are in out/*.txt")


if __name__ == "__main__":
    main()

"""Small steps of the three families of `generation.py` as traces with contents, without a GPU.

    python examples/models/generation_traces.py FOLDER [--for a100] [--families llama,gpt,recurrent]

Both steps of each family are captured by `tessc trace --device none`, which compiles them for a GPU
that need not be there; then they are planned together, and a few prompts are answered by
`tessera.Engine` on the CPU backend. The answers are compared with those of `generate` of the
transformers library (the two decoders) and of a plain loop (the recurrent model). Needs torch,
triton and transformers. What is in the folder already is not captured again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import tessera

HERE = Path(__file__).parent
FAMILIES = "llama,gpt,recurrent"
ANSWERS = HERE.parent / "traces" / "generated.json"


def captured(folder: Path, family: str, kind: str, gpus: str) -> Path:
    path = folder / f"{family}_{kind}.ptx"
    if not path.exists():
        step = f"{HERE / 'generation.py'}:{family}_{kind}"
        words = ["trace", step, "-o", str(path), "--device", "none", "--for", gpus]
        subprocess.run([sys.executable, "-m", "tessera", *words], check=True)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--for", dest="gpus", default="a100")
    parser.add_argument("--families", default=FAMILIES)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    answers = json.loads(ANSWERS.read_text(encoding="utf-8"))
    for family in given.families.split(","):
        prefill, decode = (
            captured(given.folder, family, kind, given.gpus) for kind in ("prefill", "decode")
        )
        options = tessera.PlanOptions(gpus=given.gpus, strategy="single", slots=2, sequences=2)
        plan = tessera.plan([f"{prefill}:1", f"{decode}:4"], options).plan
        with tessera.Engine(plan, backend="cpu") as engine:
            rows = [
                engine.submit(case["prompt"], max_tokens=len(case["answer"]))
                for case in answers[family]
            ]
            right = sum(
                row.result() == case["answer"]
                for row, case in zip(rows, answers[family], strict=True)
            )
        print(f"{family}: {right} of {len(rows)} answers as expected", flush=True)


if __name__ == "__main__":
    main()

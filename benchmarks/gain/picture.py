"""The picture of the README: the rate of every form of plan for one of the cells.

    python -m benchmarks.gain.picture        # writes docs/images/forms.svg

The figures are those of the planner in `gain_program.json`. The picture has colors for light and
dark pages, and letters that can be read at half its size.
"""

from __future__ import annotations

import json

from benchmarks.common import RESULTS, ROOT

PICTURE = ROOT / "docs" / "images" / "forms.svg"
CELL = "llama-8b a100+l40s 1024/256"
TITLE = "Llama 3 8B on one A100 and one L40S"
UNDER = "requests per second by form of plan; prompts of 1,024 tokens, answers of 256; simulated"
FORMS = {
    "only l40s": "the L40S alone",
    "only a100": "the A100 alone",
    "layers": "layers split",
    "data parallel": "a copy on each",
    "phase": "one for prompts, one for answers",
    "kernel": "kernel by kernel",
    "roles": "prompts and answers in shares",
}
WIDTH, LEFT, ROW, TOP, SIZE = 1200, 520, 46, 130, 27
STYLE = """<style>
text { font-family: system-ui, sans-serif; fill: #1f2328 }
.small { fill: #59636e }
rect { fill: #9aa7b5 }
rect.best { fill: #0a7d4b }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .small { fill: #9198a1 }
  rect { fill: #5b6673 }
  rect.best { fill: #3fb97c }
}
</style>"""


def picture() -> str:
    """The picture as SVG."""
    cell = json.loads((RESULTS / "gain_program.json").read_text("utf-8"))["cells"][CELL]
    rates = {name: cell["forms"][name]["figure"] for name in FORMS}
    most = max(rates.values())
    scale = (WIDTH - LEFT - 120) / most
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {TOP + ROW * len(rates)}"'
        f' role="img" aria-label="{TITLE}: {UNDER}">',
        STYLE,
        f'<text x="0" y="40" font-size="36" font-weight="600">{TITLE}</text>',
        f'<text x="0" y="84" font-size="{SIZE - 1}" class="small">{UNDER}</text>',
    ]
    for number, (name, rate) in enumerate(rates.items()):
        y = TOP + ROW * number
        kind = ' class="best"' if rate == most else ""
        lines += [
            f'<text x="{LEFT - 16}" y="{y + 26}" font-size="{SIZE}" text-anchor="end">'
            f"{FORMS[name]}</text>",
            f'<rect x="{LEFT}" y="{y}" width="{scale * rate:.0f}" height="{ROW - 12}"{kind}/>',
            f'<text x="{LEFT + scale * rate + 14:.0f}" y="{y + 26}" font-size="{SIZE}">'
            f"{rate:.1f}</text>",
        ]
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture(), "utf-8")

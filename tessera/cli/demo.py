"""`tessc demo`: the whole way from a trace to a run that is verified, with a report to look at."""

from __future__ import annotations

import io
import shlex
from contextlib import redirect_stdout
from pathlib import Path

import click

from tessera.cli.console import Messages, write_data, write_text
from tessera.diagnostics import TesseraError
from tessera.output import Kind, write_file
from tessera.report.diagnostics import safe

DEFAULT_FOLDER = "tessera-demo"


@click.command(short_help="See it work: analyse, plan, run, verify, report.")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(file_okay=False),
    default=DEFAULT_FOLDER,
    show_default=True,
    metavar="FOLDER",
    help="Where the files go.",
)
@click.option("--open", "opens", is_flag=True, help="Open the report in a browser.")
@click.pass_context
def demo(context: click.Context, folder: str, opens: bool) -> int:
    """Analyse a small trace, plan it for two GPUs, run the plan here and verify it.

    Needs no GPU, no network and no other file: the trace (a perceptron) comes with the package.
    Every command is shown before it runs, so that you can run it yourself. The last one makes a
    report to look at.

    \b
    Examples:
      tessc demo
      tessc demo -o somewhere --open
    """
    messages = context.find_object(Messages) or Messages()
    try:
        names = _place_trace(folder)
    except TesseraError as failure:
        messages.show(failure.diagnostics)
        return failure.exit_code
    trace, plan, timeline, simulated, page = names
    script: tuple[tuple[str, list[str], str | None], ...] = (
        ("what the kernels read and write", ["analyze", trace, "--no-graph"], None),
        (
            "which of them run on an A100 and which on an L40S",
            ["plan", trace, "--gpus", "a100,l40s", "--strategy", "kernel", "-o", plan],
            None,
        ),
        (
            "both GPUs as processes of this machine, compared with one device",
            [
                "run",
                plan,
                "--backend",
                "cpu",
                "--requests",
                "6",
                "--verify",
                "--timeline",
                timeline,
            ],
            None,
        ),
        ("the same by the clock of the plan", ["simulate", plan, "--json"], simulated),
        ("all of it to look at", ["report", trace, plan, timeline, simulated, "-o", page], None),
    )
    for title, arguments, target in script:
        code = _run(context, title, arguments, target)
        if code:
            return code
    where = Path(page).resolve().as_uri()
    write_text(f"\nopen {safe(page)} in a browser ({where})\n")
    if opens:
        import webbrowser

        webbrowser.open(where)
    return 0


def _place_trace(folder: str) -> tuple[str, ...]:
    """Write the trace to the folder; the names of all files of the demo."""
    from tessera.frontend.text.grammar import example_text

    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise TesseraError.of("TSR1911", f"cannot make `{folder}`: {reason}") from None
    files = ("mlp.ptx", "mlp.tsp", "timeline.json", "simulated.json", "report.html")
    names = tuple(str(Path(folder, name)) for name in files)
    write_file(names[0], example_text("mlp.ptx").encode(), Kind.TRACE)
    return names


def _run(context: click.Context, title: str, arguments: list[str], target: str | None) -> int:
    """Show and run one command; its exit code."""
    end = "" if target is None else f" > {shlex.quote(target)}"
    said = f"\n# {title}\n$ {shlex.join(['tessc', *arguments])}{end}\n"
    write_text(_safe_lines(said))
    command = context.find_root().command
    if target is None:
        code = command.main(arguments, prog_name="tessc", standalone_mode=False)
    else:
        data = io.BytesIO()
        with redirect_stdout(io.TextIOWrapper(data, encoding="utf-8", newline="\n")) as caught:
            code = command.main(arguments, prog_name="tessc", standalone_mode=False)
            caught.flush()
        write_data(data.getvalue(), target, Kind.REPORT)
    return code if isinstance(code, int) else 0


def _safe_lines(text: str) -> str:
    """Lines that cannot steer the terminal."""
    return "\n".join(map(safe, text.split("\n")))

"""Run the benchmarks of a group, or list them.

    python -m benchmarks reading planning    # all of these groups that this machine can run
    python -m benchmarks all --list    # every command, what it needs, what is missing here

A command whose needs are not met is named and left out; one that fails does not end the others, and
the exit code is 1 then. `all` is every group but `corpus`, which makes the inputs of others.
`benchmarks/README.md` says what each script answers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from benchmarks.common import ROOT
from benchmarks.groups import GROUPS, Run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("groups", nargs="+", choices=[*GROUPS, "all"], metavar="GROUP")
    parser.add_argument("--list", action="store_true", help="print commands, run nothing")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--gpu", action="store_true", help="only what needs a GPU")
    which.add_argument("--no-gpu", action="store_true", help="only what needs none")
    given = parser.parse_args()
    names = [n for n in GROUPS if n != "corpus"] if "all" in given.groups else given.groups
    wanted = [
        run
        for name in names
        for run in GROUPS[name]
        if not (given.gpu and not run.on_gpu) and not (given.no_gpu and run.on_gpu)
    ]
    failed = [run.command for run in wanted if not done(run, only_list=given.list)]
    if failed:
        sys.exit("failed: " + "; ".join(failed))


def done(run: Run, *, only_list: bool) -> bool:
    """Run a command unless something is missing; false if it failed."""
    missing = run.missing()
    print(f"--- {run.command}{' -- left out: no ' if missing else ''}{', no '.join(missing)}")
    sys.stdout.flush()
    if missing or only_list:
        return True
    # Scripts write there without making the folder.
    (ROOT / "out" / "gpu").mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", *run.words()]
    return subprocess.run(command, cwd=ROOT, env=os.environ | run.settings).returncode == 0


if __name__ == "__main__":
    main()

"""Commands that start a fleet, and the script that holds them.

In: `StartCommand`s. Out: an `EmittedFleet`, with the text of `fleet.sh` where there is one. The
address of a host is a variable of the script, `${HOST_1}`, wherever a command needs it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

SCRIPT = "fleet.sh"
WRITTEN_BY = "written by tessc fleet"
"""Words in the first line of every file: files that have them may be replaced."""

FRONT = "${FRONT}"
"""The variable with the address that the router listens on."""
_ADDRESS = re.compile(r"(?:http://)?\$\{(?:HOST_\d+|FRONT)\}(?::\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCommand:
    """A command: its environment and its arguments. `host` is empty if any host will do.

    `what` says what it is, `count` how many are started (by a system that counts itself).
    """

    name: str
    what: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    host: str = ""
    count: int = 1

    def text(self, indent: str = "", before: str = "") -> str:
        """The command for a shell, an option per line; `before` is a word in front of it."""
        lines = [f"{name}={_quoted(value)}" for name, value in self.env]
        first = len(lines)
        for word in self.argv:
            if len(lines) == first or word.startswith("--"):
                lines.append(before + _quoted(word) if len(lines) == first else f"  {word}")
            else:
                lines[-1] += f" {_quoted(word)}"
        return " \\\n".join(indent + line for line in lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmittedFleet:
    """A fleet for one system: files by name, what is in them, and how to start it.

    `hosts` pairs the variable of each host with its name, `steps` are commands for people to type.
    """

    system: str
    versions: tuple[str, ...]
    files: tuple[tuple[str, str], ...]
    commands: tuple[StartCommand, ...]
    hosts: tuple[tuple[str, str], ...] = ()
    steps: tuple[str, ...]
    notes: tuple[str, ...] = ()


def address(hosts: Sequence[str], host: str) -> str:
    """The variable with the address of a host."""
    return f"${{HOST_{hosts.index(host) + 1}}}"


_TOGETHER = (
    "together() {  # all of them end when one does",
    "  trap 'kill $(jobs -p) || true' EXIT",
    '  for each in "$@"; do "$each" & done',
    "  wait -n",
    "}",
)


def script(
    system: str, versions: Sequence[str], hosts: Sequence[str], commands: Sequence[StartCommand]
) -> str:
    """The text of `fleet.sh`: a function for each command, and those of a host together.

    It runs in its own folder, which the paths in it are relative to.
    """
    lines = [
        f"# {WRITTEN_BY} --emit {system}: {', '.join(versions)}",
        "set -euo pipefail",
        'cd "$(dirname "${BASH_SOURCE[0]}")"',
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID  # GPUs are numbered as nvidia-smi numbers them",
        "# Addresses of the hosts, as each reaches the others.",
    ]
    for number, host in enumerate(hosts, 1):
        usual = "127.0.0.1" if len(hosts) == 1 else ""
        need = f":={usual}" if usual else f":?the address of {host}"
        lines.append(f': "${{HOST_{number}{need}}}"')
    if any(FRONT in command.argv for command in commands):
        lines += ["# The address that the router listens on.", ': "${FRONT:=127.0.0.1}"']
    for command in commands:
        lines += ["", f"{command.name}() {{  # {command.what}", command.text("  ", "exec "), "}"]
    lines += ["", *_TOGETHER, "", 'case "${1:-}" in']
    for number, host in enumerate(hosts, 1):
        own = [c.name for c in commands if c.host == host]
        lines.append(f"  host_{number}) together {' '.join(own)} ;;")
    alone = "|".join(command.name for command in commands)
    names = [f"host_{n}" for n in range(1, len(hosts) + 1)]
    names += [command.name for command in commands]
    said = f"usage: bash {SCRIPT} {'|'.join(names)}"
    lines += [f'  {alone}) "$1" ;;', f"  *) echo {shlex.quote(said)} >&2; exit 2 ;;", "esac"]
    return "\n".join(lines) + "\n"


def _quoted(word: str) -> str:
    return f'"{word}"' if _ADDRESS.fullmatch(word) else shlex.quote(word)

"""Which opcodes of the table the CPU backend runs: all but those that a file lists."""

from __future__ import annotations

from pathlib import Path

from tessera.backend.ptx_executor.emit.handlers import TABLE
from tessera.ir.opcodes import OPCODES

LIST = Path(__file__).parents[2] / "data" / "opcodes" / "not_executed.txt"


def test_every_opcode_runs_or_is_listed() -> None:
    lines = LIST.read_text("utf-8").splitlines()
    listed = {line for line in lines if line and not line.startswith("#")}
    names = {opcode.split(".")[0] for opcode in OPCODES}
    missing = names - set(TABLE)
    assert missing - listed == set(), "give these a handler, or list them"
    assert listed - missing == set(), "these have a handler: take them off the list"


def test_no_handler_is_for_an_unknown_opcode() -> None:
    assert set(TABLE) - {"%return"} <= {opcode.split(".")[0] for opcode in OPCODES}

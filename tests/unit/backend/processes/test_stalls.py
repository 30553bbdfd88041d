"""What is said to hold a request up, whatever steps are called."""

from __future__ import annotations

from tessera.backend.processes.inline import stall_fault
from tessera.backend.processes.visits import QueueWait


def test_a_step_called_transfer_is_no_transfer() -> None:
    """What does not come is a transfer, and a step of that name only waits for it."""
    step = QueueWait(
        request=0,
        text="the compute queue is at step #1 `wait_for_transfer`",
        step=None,
        name="wait_for_transfer",
    )
    moved = QueueWait(
        request=0,
        text="the in queue waits for landing 2",
        step=None,
        name="",
        is_transfer=True,
    )
    fault = stall_fault((("a", (step,)), ("b", (moved,))), 0, "for 1 s")
    assert fault.device == "b"
    assert moved.text in str(fault.diagnostics[0].headline)

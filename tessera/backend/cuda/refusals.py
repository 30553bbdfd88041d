"""What is said of a launch or a copy that the driver does not take.

In: what was refused, and the trace that it is of. Out: a `ServiceFault` that names the step, its
sizes and the device.
"""

from __future__ import annotations

from tessera.backend.cuda.faults import run_fault
from tessera.backend.cuda.issue_order import Action, Do, Move
from tessera.backend.cuda.tape import Refused
from tessera.backend.cuda.trail import step_name
from tessera.backend.service import ServedTrace, ServiceFault
from tessera.diagnostics import error
from tessera.ir.plan.launch_program import Run
from tessera.ir.program.program import Launch, LaunchId, Work, for_arch


def refusal(refused: Refused, served: ServedTrace, request: int | None) -> ServiceFault:
    """The fault of what the driver refuses."""
    work = tuple(served.program.work())
    device, step = _place_of(refused.action, work)
    if step is None:
        return run_fault(refused.problem, device=device, request=request)
    size = _sizes(step, served.arches[step.id])
    diagnostic = error(
        "TSR5104",
        f"the driver refuses the launch of `{step_name(step)}`: {refused.problem.name}",
        step.span,
        notes=(size,) if size else (),
    )
    return ServiceFault(
        diagnostic, device=device, request=request, step=LaunchId(step.id), name=step_name(step)
    )


def _place_of(action: Action | None, work: tuple[Work, ...]) -> tuple[str | None, Work | None]:
    match action:
        case Do(device, Run(step)):
            return device, work[step]
        case Do(device, _):
            return device, None
        case Move(transfer):
            return transfer.source, None
        case None:
            return None, None
        case _:
            return action.device, None


def _sizes(step: Work, arch: str) -> str:
    if not isinstance(step, Launch):
        return ""
    launch = for_arch(step, arch)
    grid, block = (",".join(map(str, size)) for size in (launch.grid, launch.block))
    text = f"grid {grid}, block {block}, {launch.shared_bytes} bytes of dynamic shared memory"
    if launch.cluster is not None:
        text += f", cluster {','.join(map(str, launch.cluster))}"
    return text + (", cooperative" if launch.cooperative else "")

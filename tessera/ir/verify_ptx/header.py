"""What must hold of the first directives of a module: its version and its targets."""

from __future__ import annotations

from tessera.diagnostics import Diagnostic, Span, error, warning
from tessera.ir.opcodes.targets import (
    NEWEST_VERSION,
    TARGET_OPTIONS,
    TARGETS,
    is_version,
    target_since,
)
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.locate import name_span
from tessera.ir.verify_ptx.instruction import close_matches


def header_fault(module: ptx.Module, *, is_new: bool) -> Diagnostic | None:
    """What is wrong with `.version` or `.target`; `is_new` if the version is a later one."""
    major, minor = module.version
    if not is_version(module.version) and not (is_new and major == NEWEST_VERSION[0]):
        newest = ".".join(map(str, NEWEST_VERSION))
        return error(
            "TSR1012",
            f"PTX version is not known: {major}.{minor}",
            _place(module, ".version"),
            f"known are 1.0 to {NEWEST_VERSION[0]}.x",
            hint=f"compile for an older PTX version, such as {newest}",
        )
    for name in module.target:
        since = target_since(name)
        if since is None and name not in TARGET_OPTIONS:
            return _unknown_target(module, name, is_new)
        if since is not None and since > module.version:
            first = ".".join(map(str, since))
            headline = f"`.target {name}` needs PTX {first} or later, and this is {major}.{minor}"
            return error("TSR1012", headline, _place(module, ".version"))
    if all(target_since(name) is None for name in module.target):
        headline = "`.target` names no architecture, such as `sm_80`"
        return error("TSR1012", headline, _place(module, ".target"))
    return None


def _unknown_target(module: ptx.Module, name: str, is_new: bool) -> Diagnostic:
    span = _place(module, ".target")
    if span is not None:
        span = name_span(module, span.end, name)
    near = close_matches(name, TARGETS, 0.6)
    build = warning if is_new else error
    hint = f"did you mean `{near[0]}`?" if near else None
    return build("TSR1012", f"target is not known: `{name}`", span, hint=hint)


def _place(module: ptx.Module, directive: str) -> Span | None:
    """Where the first directive of a name stands."""
    if module.source is None:
        return None
    return name_span(module, module.source.text.find(directive), directive)

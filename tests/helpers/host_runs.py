"""Runs over hosts: files of hosts, and requests until something happens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tessera.backend.hosts.hosts_backend import HostsBackend
from tessera.driver.run.runtime import Runtime
from tessera.ir.program.program import Role
from tests.helpers.plan_files import plan_of, write_plan
from tests.helpers.random_traces import random_program
from tests.helpers.served import contents

LIMIT_S = 300.0


def hosts_file(folder: Path, *rows: str, head: str = "") -> str:
    """A file with a `[[host]]` for each text."""
    path = folder / "hosts.toml"
    path.write_text(head + "".join(f"[[host]]\n{row}\n" for row in rows))
    return str(path)


def random_plan(folder: Path, seed: int, hosts: dict[str, str], *, steps: int = 6) -> str:
    """A plan of a random trace whose steps go round the devices."""
    program = random_program(seed, steps=steps)
    devices = list(hosts)
    placement = [devices[n % len(devices)] for n in range(len(program.steps))]
    return write_plan(folder, plan_of([program], [placement], hosts=hosts))


def inputs_of(runtime: Runtime) -> dict[str, object]:
    return dict(contents(runtime.programs[0], Role.INPUT, 1).items())


def backends_of(runtime: Runtime) -> Sequence[HostsBackend]:
    found = [dispatcher.backend for dispatcher in runtime._serving._dispatchers.values()]
    assert all(isinstance(one, HostsBackend) for one in found)
    return found  # type: ignore[return-value]


def fault_of(runtime: Runtime, happen: object) -> BaseException:
    """Submit requests, let something happen, and go on until a request fails."""
    inputs = inputs_of(runtime)
    first = runtime.submit(inputs)
    first.result(LIMIT_S)
    happen()  # type: ignore[operator]
    try:
        for _ in range(100_000):
            runtime.submit(inputs).result(LIMIT_S)
    except BaseException as problem:
        return problem
    raise AssertionError("no request has failed")

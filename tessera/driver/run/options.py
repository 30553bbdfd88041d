"""Options of a run: records that check themselves, for `tessc run` and for programs.

`ServingOptions` are for a plan that serves requests (`tessera.Runtime`); `PlanRunOptions` for a
plan that runs some requests (`tessera.run_plan`), and `KeepOptions` say what happens to their
results. `run_trace.RunOptions` are for a trace on one device. Raises TSR5053 and TSR5055 for
values that are impossible on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from typing import TYPE_CHECKING

from tessera.backend.known_backends import BackendName
from tessera.backend.service import DEFAULT_LIMIT_S
from tessera.driver.run.backends import check_asked, parse_map
from tessera.driver.run.data_files import Data
from tessera.frontend.machine.hosts_file import read_hosts
from tessera.ir.arguments import (
    check_amounts,
    check_counts,
    check_flags,
    check_paths,
    check_targets,
    check_texts,
)
from tessera.ir.options import WrongOption
from tessera.ir.plan.hosts import HostTable
from tessera.output import is_same_place

if TYPE_CHECKING:
    from tessera.backend.hosts.link_pool import LinkPool
    from tessera.driver.hosts.kept_hosts import KeptHosts


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """How to serve a plan. `targets` map its devices to GPUs, as a mapping or as `--map` text.

    `spelled` has the names of fields as the caller spells them, for error messages.
    """

    backend: str = BackendName.AUTO
    targets: Mapping[str, str] | str | None = None
    slots: int | None = None
    sequences: int | None = None
    policy: str | None = None
    data: Data | None = None
    data_root: str | None = None
    weights: str | None = None
    seed: int = 0
    max_steps: int | None = None
    limit_s: float = DEFAULT_LIMIT_S
    throttle_bytes_per_s: float | None = None
    timeline: bool = True
    hosts: str | KeptHosts | None = None
    spelled: InitVar[Mapping[str, str] | None] = None

    def __post_init__(self, spelled: Mapping[str, str] | None) -> None:
        names = spelled or {}
        sequences, limit = names.get("sequences", "sequences"), names.get("limit_s", "limit_s")
        counts = {"slots": self.slots, sequences: self.sequences, "max_steps": self.max_steps}
        check_counts(counts, least=1)
        check_counts({"seed": self.seed}, least=0, optional=False)
        check_amounts({limit: self.limit_s}, optional=False)
        check_amounts({"throttle_bytes_per_s": self.throttle_bytes_per_s})
        check_texts({"policy": self.policy})
        check_texts({"backend": self.backend}, optional=False)
        check_flags({"timeline": self.timeline})
        check_paths({"data": self.data, "data_root": self.data_root, "weights": self.weights})
        if self.pool is None:
            check_paths({"hosts": self.hosts})
        check_asked(self.backend, self.find_targets())

    def read_hosts(self) -> HostTable | None:
        """The hosts of the run, if it is on several."""
        if self.hosts is None or isinstance(self.hosts, str):
            return None if self.hosts is None else read_hosts(self.hosts)
        return self.hosts.table

    @property
    def pool(self) -> LinkPool | None:
        """The pool that processes of hosts are taken from."""
        return getattr(self.hosts, "pool", None)

    def find_targets(self) -> Mapping[str, str]:
        """The targets that stand for devices, by name."""
        if isinstance(self.targets, str):
            return parse_map(self.targets)
        check_targets(self.targets)
        return self.targets or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRunOptions(ServingOptions):
    """How to run requests of a plan; `inputs` is a file of theirs.

    With `retry`, requests that a host has lost are replayed if possible.
    """

    requests: int | None = None
    inputs: str | None = None
    retry: bool = False

    def __post_init__(self, spelled: Mapping[str, str] | None) -> None:
        ServingOptions.__post_init__(self, spelled)
        check_counts({"requests": self.requests}, least=1)
        check_paths({"inputs": self.inputs})
        check_flags({"retry": self.retry})
        if self.retry and self.hosts is None:
            raise WrongOption("{retry} goes with {hosts}: requests are lost with a host")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepOptions:
    """What happens to results: files for results and timeline, and a comparison."""

    outputs: str | None = None
    timeline_file: str | None = None
    verify: bool = False

    def __post_init__(self) -> None:
        if self.timeline_file == "-":
            raise WrongOption("{timeline_file} names a file: the report is on standard output")
        both = self.outputs is not None and self.timeline_file is not None
        if both and is_same_place(self.outputs or "", self.timeline_file or ""):
            raise WrongOption("{outputs} and {timeline_file} name the same file")

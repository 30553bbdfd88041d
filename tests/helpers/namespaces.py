"""Network namespaces that stand for hosts: made, joined by a bridge, and removed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PREFIX = f"tessera{os.getpid() % 10000}"


def need_namespaces() -> None:
    """Skip where there can be none; fail instead under `TESSERA_REQUIRE_NETNS=1`."""
    why = ""
    if os.geteuid() != 0:
        why = "network namespaces need root"
    elif shutil.which("ip") is None:
        why = "there is no `ip` command"
    if why and os.environ.get("TESSERA_REQUIRE_NETNS") == "1":
        pytest.fail(why)
    if why:
        pytest.skip(why)


def ip(*words: str) -> None:
    """Run an `ip` command."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def namespaces(count: int) -> Iterator[list[tuple[str, str]]]:
    """So many namespaces, each with its name and its address."""
    bridge = f"{PREFIX}b"
    names = [f"{PREFIX}n{number}" for number in range(count)]
    try:
        ip("netns", "add", bridge)
        ip("-n", bridge, "link", "add", "br0", "type", "bridge")
        ip("-n", bridge, "link", "set", "br0", "up")
        for number, name in enumerate(names):
            inside, outside = (
                f"ti{os.getpid() % 10000}x{number}",
                f"to{os.getpid() % 10000}x{number}",
            )
            ip("netns", "add", name)
            ip("link", "add", inside, "type", "veth", "peer", "name", outside)
            ip("link", "set", inside, "netns", name)
            ip("link", "set", outside, "netns", bridge)
            ip("-n", name, "link", "set", inside, "name", "eth0")
            ip("-n", name, "addr", "add", f"10.68.0.{number + 1}/24", "dev", "eth0")
            six = ["addr", "add", f"fd68::{number + 1}/64", "dev", "eth0", "nodad"]
            subprocess.run(["ip", "-6", "-n", name, *six], capture_output=True, check=False)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", bridge, "link", "set", outside, "master", "br0")
            ip("-n", bridge, "link", "set", outside, "up")
        yield [(name, f"10.68.0.{number + 1}") for number, name in enumerate(names)]
    finally:
        for name in [*names, bridge]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def of_six(places: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The same namespaces with their addresses of IPv6; skips where there are none."""
    if not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this machine has no IPv6")
    return [(name, f"fd68::{number + 1}") for number, (name, _) in enumerate(places)]


def rows(hosts: list[str], places: list[tuple[str, str]]) -> list[str]:
    """The `[[host]]` of each name in each namespace."""
    return [
        f'name = "{host}"\ncommand = "ip netns exec {name}"\naddress = "{address}"'
        for host, (name, address) in zip(hosts, places, strict=True)
    ]


def processes_in(name: str) -> list[int]:
    """The processes of a namespace."""
    done = subprocess.run(
        ["ip", "netns", "pids", name], capture_output=True, text=True, check=False
    )
    return [int(word) for word in done.stdout.split()]


def hosts_in(folder: Path, hosts: list[str], places: list[tuple[str, str]], head: str = "") -> str:
    """A file of hosts in namespaces."""
    path = folder / "hosts.toml"
    path.write_text(head + "".join(f"[[host]]\n{row}\n" for row in rows(hosts, places)))
    return str(path)

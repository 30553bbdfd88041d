"""Files of hosts: what is read, and what is refused with one clear error."""

from __future__ import annotations

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.hosts.assign import assign_hosts
from tessera.frontend.machine.hosts_file import parse_hosts
from tests.helpers.plan_files import plan_of
from tests.helpers.random_traces import random_program

GOOD = """
heartbeat = "50ms"
silent = "2s"
[[host]]
name = "left ü"
command = "ssh -o 'A B' a"
address = "fd00::1"
python = "/opt/python"
devices = ["a"]
[[host]]
name = "right"
"""


def test_a_file() -> None:
    table = parse_hosts(GOOD, "hosts.toml")
    first, second = table.hosts
    assert first.command == ("ssh", "-o", "A B", "a")
    assert (first.name, first.address, first.python) == ("left ü", "fd00::1", "/opt/python")
    assert (second.command, second.address, second.devices) == ((), "127.0.0.1", ())
    assert (table.heartbeat_s, table.silent_s) == (0.05, 2.0)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[[host]\n", "is not TOML"),
        ("", "has no `[[host]]`"),
        ("host = 3\n", "expected a list, got a whole number, at `host`"),
        ("[[host]]\n", "missing key `name`, at `host[0]`"),
        ('[[host]]\nname = ""\n', "can be printed"),
        ('[[host]]\nname = "a\\u0007"\n', "can be printed"),
        ('[[host]]\nname = "a"\nport = 3\n', "unknown key `port`"),
        ('[[host]]\nname = "a"\naddress = "somewhere"\n', "is no IP address"),
        ('[[host]]\nname = "a"\ncommand = "ssh \'"\n', "cannot be split"),
        (
            '[[host]]\nname = "a"\ndevices = "a"\n',
            "expected a list, got a text",
        ),
        ('[[host]]\nname = "a"\n[[host]]\nname = "a"\n', "host `a` is there twice"),
        (
            '[[host]]\nname = "a"\ndevices = ["x"]\n[[host]]\nname = "b"\ndevices = ["x"]\n',
            "device `x` is there twice",
        ),
        ('heartbeat = "soon"\n[[host]]\nname = "a"\n', "is a time such as"),
        ('silent = "1ms"\n[[host]]\nname = "a"\n', "`silent` is a time"),
        ('silent = "200ms"\n[[host]]\nname = "a"\n', "three times"),
    ],
)
def test_what_is_refused(text: str, what: str) -> None:
    with pytest.raises(TesseraError) as caught:
        parse_hosts(text, "hosts.toml")
    (found,) = caught.value.diagnostics
    assert found.code == "TSR3005"
    assert what in str(found.headline)


def test_devices_go_to_their_nodes_or_where_they_are_listed() -> None:
    program = random_program(7)
    placement = ["abc"[n % 3] for n in range(len(program.steps))]
    plan = plan_of([program], [placement], hosts={"a": "left", "b": "left", "c": "right"})
    table = parse_hosts('[[host]]\nname = "left"\n[[host]]\nname = "right"\n')
    assert {d: h.name for d, h in assign_hosts(table, plan).items()} == {
        "a": "left",
        "b": "left",
        "c": "right",
    }
    table = parse_hosts('[[host]]\nname="x"\ndevices=["a","c"]\n[[host]]\nname = "left"\n')
    names = {d: h.name for d, h in assign_hosts(table, plan).items()}
    assert names == {"a": "x", "b": "left", "c": "x"}
    for text, what in (
        ('[[host]]\nname = "left"\n', "has device `c` of node `right`"),
        ('[[host]]\nname = "left"\ndevices = ["z"]\n', "lists device `z`"),
    ):
        with pytest.raises(TesseraError, match="TSR3005") as caught:
            assign_hosts(parse_hosts(text), plan)
        assert what in str(caught.value.diagnostics[0].headline)

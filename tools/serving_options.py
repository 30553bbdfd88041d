"""The options and fields of the serving systems that `tessc fleet --emit` writes for.

`python tools/serving_options.py record CRD > tests/data/serving_options.json` records them, by the
parsers of the packages themselves (`pip install vllm==0.26.0 ai-dynamo==1.4.1 vllm-router==0.1.16`;
no GPU is needed), as far as our sources name them: what they name and no parser knows is missing
then, and fails a test. CRD is `nvidia.com_dynamographdeployments.yaml` of Dynamo's sources.
`python tools/serving_options.py check REPORT [CRD FILE]` gives the commands of a report (`tessc
fleet --emit ... --json`) to these parsers, and FILE (`deployment.yaml`) to that schema.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
_SOURCES = Path(__file__).parents[1] / "tessera/driver/fleet/emit"
_NAMED = {
    word for path in _SOURCES.glob("*.py") for word in re.findall(r'"([\w-]+)"', path.read_text())
}
_PACKAGES = ("vllm", "ai-dynamo", "vllm-router")
_PLACES = (  # the fields of a deployment that are recorded, level by level
    "",
    "spec",
    "spec.components[]",
    "spec.components[].multinode",
    "spec.components[].podTemplate",
    "spec.components[].podTemplate.spec",
    "spec.components[].podTemplate.spec.containers[]",
    "spec.components[].podTemplate.spec.containers[].env[]",
    "spec.components[].podTemplate.spec.containers[].envFrom[]",
    "spec.components[].podTemplate.spec.containers[].envFrom[].secretRef",
    "spec.components[].podTemplate.spec.containers[].resources",
)


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command, by its first words."""
    import vllm.platforms

    vllm.platforms.current_platform.device_type = "cuda"  # as on a machine with a GPU
    from dynamo.common.configuration.groups.runtime_args import DynamoRuntimeArgGroup
    from dynamo.frontend.frontend_args import FrontendArgGroup
    from dynamo.vllm.backend_args import DynamoVllmArgGroup
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.openai.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from vllm_router.router_args import RouterArgs

    worker = FlexibleArgumentParser(conflict_handler="resolve")
    AsyncEngineArgs.add_cli_args(worker)
    DynamoRuntimeArgGroup().add_arguments(worker)
    DynamoVllmArgGroup().add_arguments(worker)
    front = argparse.ArgumentParser(allow_abbrev=False)
    FrontendArgGroup().add_arguments(front)
    router = argparse.ArgumentParser(allow_abbrev=False)
    RouterArgs.add_cli_args(router, use_router_prefix=False)
    return {
        "vllm serve": make_arg_parser(FlexibleArgumentParser()),
        "python3 -m dynamo.vllm": worker,
        "python3 -m dynamo.frontend": front,
        "vllm-router": router,
    }


def record(schema: str) -> dict[str, Any]:
    """Everything that a test holds emitted files against."""
    made = parsers()
    from vllm.config.kv_transfer import KVRole, KVTransferConfig
    from vllm.envs import environment_variables

    fields = KVTransferConfig.__dataclass_fields__
    return {
        "versions": {name: version(name) for name in _PACKAGES},
        "options": {name: _options(parser) for name, parser in made.items()},
        "kv_transfer_config": dict.fromkeys(sorted(_NAMED & set(fields)), "text")
        | {"kv_role": sorted(get_args(KVRole))},
        "environment": sorted(_NAMED & set(environment_variables)),
        "deployment": {place: _fields(schema, place) for place in _PLACES},
    }


def _options(parser: argparse.ArgumentParser) -> dict[str, object]:
    """By option: `flag`, the type of its value (`...`: several values), or its choices."""
    made = {}
    for action in parser._actions:
        for name in action.option_strings:
            if name in _NAMED:
                made[name] = _value(action)
    return dict(sorted(made.items()))


def _value(action: argparse.Action) -> object:
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return "flag"
    if action.choices is not None:
        return sorted(map(str, action.choices))
    many = "..." if action.nargs in ("+", "*") else ""
    if action.type is None or _takes(action, "abc"):
        return "text" + many
    kinds = {"json": "{}", "float": "0.5", "int": "7"}
    return next((name for name, text in kinds.items() if _takes(action, text)), "other") + many


def _takes(action: argparse.Action, text: str) -> bool:
    try:
        action.type(text)  # type: ignore[operator, misc]
    except (ValueError, TypeError, argparse.ArgumentTypeError):
        return False
    return True


def _fields(schema: str, place: str) -> dict[str, object]:
    """The fields of a place of a deployment: their type, or their choices."""
    at = _schema(schema)
    for name in filter(None, place.split(".")):
        at = at["properties"][name.removesuffix("[]")]
        at = at["items"] if name.endswith("[]") else at
    made = {}
    for name in sorted(_NAMED & set(at["properties"])):
        field = at["properties"][name]
        made[name] = field.get("enum") or field.get("type", "any")
    return made


def _schema(path: str) -> dict[str, Any]:
    import yaml

    versions = yaml.safe_load(Path(path).read_text())["spec"]["versions"]
    own = next(one for one in versions if one["name"] == "v1beta1")
    schema: dict[str, Any] = own["schema"]["openAPIV3Schema"]
    return schema


def check(report: str, *deployment: str) -> int:
    """Give every command of a report to its parser; returns how many there were."""
    made = parsers()
    from dynamo.vllm.args import parse_args
    from vllm.engine.arg_utils import AsyncEngineArgs

    start = json.loads(Path(report).read_text())["start"]
    for command in start["commands"]:
        words = [re.sub(r"\$\{\w+\}", "127.0.0.1", word) for word in command["argv"]]
        for name, parser in made.items():
            first = name.split()
            if words[: len(first)] != first:
                continue
            parsed = parser.parse_args(words[len(first) :])
            if name == "vllm serve":
                AsyncEngineArgs.from_cli_args(parsed)
            if name.endswith("dynamo.vllm"):
                parse_args(words[len(first) :])
            print("taken:", command["name"], name)
            break
        else:
            raise SystemExit(f"nobody's command: {words[:3]}")
    if deployment:
        import jsonschema
        import yaml

        schema, file = deployment
        jsonschema.validate(yaml.safe_load(Path(file).read_text()), _schema(schema))
        print("taken:", file)
    return len(start["commands"])


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    if what == "record":
        text = json.dumps(record(*given), indent=1)
        print(re.sub(r"\[\s+([^\]]*?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text))
    else:
        print(check(*given), "commands")

"""Functions and classes that nothing uses. `make check` runs it.

In: the package and the grammars below a folder. Out: a line for each definition whose name stands
nowhere else in the package, and exit status 1 if there is one. A name that is used from outside is
in the list below, with who uses it; a row that is not needed any more is an error too. Rules of
grammars call methods by their names. A definition with a decorator is used by it, unless the
decorator only changes it (`@dataclass`, `@property`, `@classmethod`).
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What Tessera itself does not call, and who does.
USED_ELSEWHERE = {
    "_build_scanner": "Lark, of a lexer",
    "_process_model_before_weight_loading": "the transformers library, of a way to quantize",
    "check_contents": "programs that keep a graph and its contents apart",
    "check_guards": "tests of the CUDA backend: bytes round places",
    "check_replica": "tests and tools that have launch programs and no plan",
    "encode_tiled": "users who make tensor maps (docs/reference/trace-format.md)",
    "format_commands": "click, which calls it for the list of commands",
    "get_mask_sizes": "the transformers library, of a cache",
    "get_new_dtype": "the transformers library, of a way to quantize",
    "get_query_offset": "the transformers library, of a cache",
    "get_recurrent_state": "the transformers library, of a cache",
    "get_seq_length": "the transformers library, of a cache",
    "has_previous_state": "the transformers library, of a cache",
    "ignore_compile_internals": "PyTorch, of a mode: whether compiled code is looked into",
    "is_collective": "users of the opcode table, and its tests",
    "is_compileable": "the transformers library, of a cache",
    "is_recording_past": "the transformers library, of a cache",
    "is_serializable": "the transformers library, of a way to quantize",
    "is_trainable": "the transformers library, of a way to quantize",
    "param_needs_quantization": "the transformers library, of a way to quantize",
    "show_cursor": "rich, which calls it to hide the cursor",
    "to_networkx": "users (examples/03_longest_chain.py)",
    "update_conv_state": "the transformers library, of a cache",
    "update_recurrent_state": "the transformers library, of a cache",
    "uuid": "PyTorch, of what a pass over a graph does",
}
# Decorators that use nothing: the definition is as dead with them as without.
CHANGES = {"dataclass", "property", "classmethod", "staticmethod", "cache"}


def dead_definitions(root: Path) -> dict[str, Path]:
    """The names that the package below a folder defines and never uses, with their files."""
    sources = {path: path.read_text("utf-8") for path in sorted((root / "tessera").rglob("*.py"))}
    words: Counter[str] = Counter()
    for text in sources.values():
        words.update(re.findall(r"[A-Za-z_]\w*", text))
    grammars = " ".join(path.read_text("utf-8") for path in (root / "grammars").glob("*.lark"))
    rules = set(re.findall(r"[a-z_]\w*", grammars))
    return {
        node.name: path
        for path, text in sources.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and all(_only_changes(decorator) for decorator in node.decorator_list)
        and words[node.name] == 1
        and not node.name.startswith("__")
        and node.name not in rules
    }


def _only_changes(decorator: ast.expr) -> bool:
    """Whether a decorator gives back what it was given, for others to use."""
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(name, ast.Name) and name.id in CHANGES


def main() -> int:
    """Print what is dead; the exit status."""
    dead = dead_definitions(ROOT)
    faults = [
        f"{path.relative_to(ROOT)}: nothing uses `{name}`"
        for name, path in dead.items()
        if name not in USED_ELSEWHERE
    ]
    faults += [
        f"tools/dead_definitions.py: `{name}` is used or gone; remove its row"
        for name in USED_ELSEWHERE.keys() - dead.keys()
    ]
    sys.stdout.write("".join(f"{fault}\n" for fault in faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

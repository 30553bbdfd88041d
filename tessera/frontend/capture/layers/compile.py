"""Compile a recorded graph section by section, each distinct section once.

In: the graph that torch.compile has recorded, and options of Inductor's. Out: a function for the
whole graph. What is put in place of calls (`rewrite`) is put into the whole graph first: a mask is
understood where it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext, suppress

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from tessera.frontend.capture.graphs.graph_nodes import call_of, value_of
from tessera.frontend.capture.layers.sections import GraphSection, sections_of

Code = Callable[..., Sequence[object]]
_ALIGNMENT = 16  # bytes: what kernels assume of their memory
_VIEWS = "getitem view reshape expand expand_as unsqueeze squeeze transpose permute contiguous"
_NUMBERS = "to bool float type arange full zeros ones zeros_like ones_like where clone size dim"
_MASKS = "le lt ge gt eq ne and_ or_ invert logical_and logical_or logical_not bitwise_and"
_SUMS = "add sub mul neg masked_fill repeat repeat_interleave tril triu cumsum"
_PURE = frozenset(f"{_VIEWS} {_NUMBERS} {_MASKS} {_SUMS}".split())


def in_sections(
    options: Mapping[str, object],
) -> Callable[[GraphModule, list[torch.Tensor]], Callable[..., object]]:
    """A backend for torch.compile."""

    def compile_graph(module: GraphModule, examples: list[torch.Tensor]) -> Callable[..., object]:
        whole = _rewritten(module)
        sections = sections_of(whole.graph)
        if not sections:
            return _compiled(module, examples, options)
        settled = {**options, "pre_grad_custom_pass": None}  # which has been at work already
        codes: dict[Hashable, Code] = {}
        for section in sections:
            if section.key not in codes:
                given = [node.meta["example_value"] for node in section.inputs]
                codes[section.key] = _compiled(module_of(section, whole), given, settled)
        return _JoinedSections(whole.graph, sections, codes)

    return compile_graph


def _compiled(
    module: GraphModule, examples: Sequence[object], options: Mapping[str, object]
) -> Code:
    """The code of a graph, from what is kept for examples that are aligned alike.

    The compiler takes code for aligned memory for other memory too, and copies that first.
    """
    import torch._inductor
    from torch.compiler import config

    aligned = [
        value.storage_offset() * value.itemsize % _ALIGNMENT
        for value in examples
        if isinstance(value, torch.Tensor)
    ]
    with config.patch(cache_key_tag=f"{config.cache_key_tag} {aligned}"):
        code: Code = torch._inductor.compile(module, list(examples), options=dict(options))
    return code


def _rewritten(module: GraphModule) -> GraphModule:
    """A copy of a graph with what is put in place of its calls."""
    from torch._inductor import config

    graph = Graph()
    result = graph.graph_copy(module.graph, {})
    graph.output(result)
    copied = GraphModule(module, graph)
    if config.pre_grad_custom_pass is not None:
        config.pre_grad_custom_pass(copied.graph)
    _drop_unused(copied.graph)
    _tell_values(copied.graph)
    return copied


def _tell_values(graph: Graph) -> None:
    """Note the values of calls that were put in; the graph is not cut where one is unknown."""

    def made(node: Node) -> object:
        return node.meta["example_value"]

    for node in graph.nodes:
        known = all("example_value" in operand.meta for operand in node.all_input_nodes)
        if "example_value" in node.meta or not known or not node.op.startswith("call_"):
            continue
        given, named = map_arg(node.args, made), map_arg(node.kwargs, made)
        function = getattr(given[0], node.target) if node.op == "call_method" else node.target
        rest = given[1:] if node.op == "call_method" else given
        modes = (getattr(value_of(operand), "fake_mode", None) for operand in node.all_input_nodes)
        with suppress(Exception), next(filter(None, modes), nullcontext()):
            node.meta["example_value"] = function(*rest, **named)


def _drop_unused(graph: Graph) -> None:
    """Drop what nothing uses any more, such as masks: sections would hand it on.

    Calls that are known to change no memory; the compiler drops more of a section later.
    """
    for node in reversed(graph.nodes):
        if not node.users and call_of(node)[0] in _PURE and "out" not in node.kwargs:
            graph.erase_node(node)


def module_of(section: GraphSection, whole: GraphModule) -> GraphModule:
    """A section as a graph of its own, from its inputs to its outputs."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in section.inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)

    def copy(node: Node) -> Node:
        if node not in copies:  # what the graph holds itself
            copies[node] = graph.node_copy(node)
        return copies[node]

    for node in section.nodes:
        copies[node] = graph.node_copy(node, copy)
    graph.output(tuple(copies[node] for node in section.outputs))
    return GraphModule(whole, graph)


class _JoinedSections:
    """The code of a graph: that of its sections, in order."""

    def __init__(
        self, graph: Graph, sections: Sequence[GraphSection], codes: Mapping[Hashable, Code]
    ) -> None:
        self._parameters = [node for node in graph.nodes if node.op == "placeholder"]
        (last,) = (node for node in graph.nodes if node.op == "output")
        self._result = last.args[0]
        self._steps = [
            (codes[section.key], section.inputs, section.outputs) for section in sections
        ]

    def __call__(self, *given: object) -> object:
        values: dict[Node, object] = dict(zip(self._parameters, given, strict=True))
        for code, inputs, outputs in self._steps:
            made = code(*(values[node] for node in inputs))
            values.update(zip(outputs, made, strict=True))
        return map_arg(self._result, lambda node: values[node])

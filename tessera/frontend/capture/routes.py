"""The compilers of a callable that is captured.

Routes: `auto` has torch.compile measure every product and convolution, by Triton and by a library,
and take what is faster; `ptx` has it make everything with Triton, so that every kernel has PTX
(where Triton has no way to do a product or a convolution, that one is left to a library); `library`
has it leave products and convolutions to the libraries; `eager` and `as-is` compile nothing. By
`auto` and `ptx`, attention is computed by kernels of our own (`attention`), and where those do not
compute it, by products and a softmax: the fused kernels of the libraries have no PTX.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch.fx import Graph
from torch.nn.attention import SDPBackend, sdpa_kernel

from tessera.frontend.capture.barriers import barriers
from tessera.frontend.capture.compile_pool import start_pool
from tessera.frontend.capture.compiled_folder import compiled_folder
from tessera.frontend.capture.compiler_names import start_naming
from tessera.frontend.capture.layers.compile import in_sections
from tessera.frontend.capture.operator_mode import without_fast_paths
from tessera.frontend.capture.replaced import replaced
from tessera.frontend.capture.taken_apart import taken_apart
from tessera.frontend.capture.timed_kernels import kernels_timed_in_graphs
from tessera.ir.choices import Route

_COMMON: dict[str, object] = {
    # The kernels' objects (and PTX) are found only behind Triton's own launcher. Memory of one
    # tensor must not serve another. What is compiled is kept (`compiled_folder`).
    "use_static_cuda_launcher": False,
    "cpp_wrapper": False,
    "fx_graph_cache": True,
    "fx_graph_remote_cache": False,
    "allow_buffer_reuse": False,
    "inplace_buffers": False,
    "memory_planning": False,
    "triton.cudagraphs": False,
    "autotune_num_choices_displayed": 0,
}
_PROCESSES = "compile_threads"
_BACKENDS = ("max_autotune_gemm_backends", "max_autotune_conv_backends")
_TUNED: dict[str, object] = {
    "max_autotune": True,
    # A product with what follows it in one kernel, or one after the other: what is faster.
    "benchmark_epilogue_fusion": True,
}
# What decides which steps there are, and would be measured: captures for slices of a GPU must have
# the steps of the one for the whole GPU. What follows a product is always fused to it then.
_ALIKE: dict[str, object] = {
    "benchmark_epilogue_fusion": False,
    "shape_padding": False,
    "triton.num_decompose_k_splits": 0,
}
# Without a GPU nothing can be measured, and what was measured before is not taken.
_CHOSEN: dict[str, object] = {
    "max_autotune_gemm": True,
    "benchmark_epilogue_fusion": False,
    "benchmark_fusion": False,
    "autotune_local_cache": False,
    "autotune_remote_cache": False,
}
# Which product is contracted with which sum depends on all of a kernel, and so on its sizes.
_SAME_BITS: dict[str, object] = {"emulate_precision_casts": True}
_TRITON = (Route.AUTO, Route.PTX)
# Tried after a failure: nothing is fused in front of products. PyTorch 2.13 has kernels that
# do not compile there, for a product with constants (the first state of a recurrent network).
_ALONE, _EITHER = "TRITON,TRITON", "TRITON,ATEN"


def attempts(route: str) -> tuple[str, ...]:
    """The compilers to try in turn for products and convolutions."""
    ways = {Route.AUTO: ("ATEN,TRITON", _EITHER), Route.PTX: ("TRITON", _ALONE, _EITHER)}
    return ways.get(Route(route), ("",))


def compiled(
    function: Callable[..., object],
    route: str,
    backends: str,
    *,
    measured: bool = True,
    alike: bool = False,
    same_bits: bool = False,
) -> Callable[..., object]:
    """The callable by a route; one that is compiled already stays as it is.

    Products are measured to choose who computes them, unless nothing can be. `alike`: it will be
    compiled for several numbers of SMs, to the same steps. `same_bits`: float32 is rounded alike in
    calls of all sizes, as far as nothing but products and sums decides it.
    """
    if route in (Route.EAGER, Route.AS_IS) or _is_compiled(function):
        return function
    chosen = _TUNED if measured else _CHOSEN
    tuned = chosen | dict.fromkeys(_BACKENDS, backends) if backends else {}
    if backends in (_ALONE, _EITHER):
        tuned = tuned | {"prologue_fusion": False}
    if alike and backends:
        tuned = tuned | _ALIKE
    if same_bits:
        tuned = tuned | _SAME_BITS
    if not measured:
        # Launches are told of by kernels that this process has loaded. Whether to pad products
        # would be measured.
        tuned = tuned | {"shape_padding": False, _PROCESSES: 1}
        made: Callable[..., object] = torch.compile(
            function, dynamic=False, fullgraph=True, backend=in_sections(_known(_COMMON | tuned))
        )
        return made
    made = torch.compile(function, dynamic=False, fullgraph=True, options=_known(_COMMON | tuned))
    return made


def _is_compiled(function: Callable[..., object]) -> bool:
    """Whether a function or a module was compiled by torch.compile."""
    marks = ("_torchdynamo_orig_callable", "_orig_mod", "_compiled_call_impl")
    return any(getattr(function, mark, None) is not None for mark in marks)


def _known(options: dict[str, object]) -> dict[str, object]:
    """The options that this version of the compiler has."""
    from torch._inductor import config

    there = config.get_config_copy()
    return {name: value for name, value in options.items() if name in there}


@contextmanager
def plain_attention(route: str) -> Iterator[None]:
    """Decompose `scaled_dot_product_attention` on the routes of Triton."""
    if route not in _TRITON:
        yield
        return
    with sdpa_kernel(SDPBackend.MATH):
        yield


class CallsReplaced:
    """A pass over a recorded graph that puts kernels of ours in place of calls.

    PyTorch 2.11 makes it a part of the name of what is kept, and pickles it for that.
    """

    def __init__(self, route: str, made: str, seen: Callable[[str], None] | None) -> None:
        self._route = route
        self._made = made
        self._seen = seen

    def __call__(self, graph: Graph) -> None:
        """Change the graph in place, and tell its name."""
        from tessera.frontend.capture.kept_products import name_of_graph
        from tessera.frontend.capture.rewrite import replace_calls

        if self._seen is not None:
            self._seen(name_of_graph(graph, self._made))
        replace_calls(graph, by_triton=self._route in _TRITON)

    def __reduce__(self) -> tuple[type, tuple[str, str, None]]:
        return CallsReplaced, (self._route, self._made, None)

    def __deepcopy__(self, memo: object) -> CallsReplaced:
        return self  # settings are copied with what is in them; one pass hears of all graphs


@contextmanager
def own_kernels(
    route: str, made: str = "", seen: Callable[[str], None] = lambda name: None
) -> Iterator[None]:
    """Make torch.compile put kernels of ours in place of calls (`rewrite`), and pairs of real
    numbers in place of complex ones (`complex_pairs`).

    By the route `library` those of experts alone: no library call of a trace computes them. Where
    our kernels do not compute a call, it stays. `made` stands for all that decides the code beside
    the graph and the compiler's options (`made_by`): what is kept of other code is not used. `seen`
    hears the name of each graph.
    """
    if route in (Route.EAGER, Route.AS_IS):
        yield
        return
    from torch._inductor import config
    from torch._inductor.custom_graph_pass import CustomGraphPass

    from tessera.frontend.capture.complex_pairs import replace_complex

    class Pairs(CustomGraphPass):  # type: ignore[misc]
        """Complex numbers as pairs; it names what decides the code, for what is kept of it."""

        def __call__(self, graph: Graph) -> None:
            replace_complex(graph)

        def uuid(self) -> str | None:
            return made or None

    # It has to run however much of a graph is known already.
    early = _known({"pre_grad_pass_timing": "early"})
    # What the pass over the graph decides (`product_rows`) holds until here.
    decided = _known({"prologue_fusion": getattr(config, "prologue_fusion", False)})
    decided["coordinate_descent_tuning"] = False
    passes = {
        "pre_grad_custom_pass": CallsReplaced(route, made, seen),
        "post_grad_custom_pre_pass": Pairs(),
    }
    with config.patch({**passes, **decided, **early}), taken_apart():
        yield


@contextmanager
def fresh_compiler(apart: str = "", *, sms: int = 0, processes: int = 1) -> Iterator[None]:
    """Compile anew, with what `compiled_folder` has of kernels that were compiled before, and of
    what was measured on a number of SMs (0: all), in a number of processes (`compile_pool`).

    What all routes need holds for callables that the user has compiled, too: they are compiled
    again when they are next called.
    """
    import torch._dynamo
    from torch._inductor import config

    torch._dynamo.reset()
    settings = config.patch(_known(_COMMON | {_PROCESSES: processes}))
    folder = compiled_folder(apart, sms=sms)
    timed = kernels_timed_in_graphs()
    with folder, settings, timed, barriers(), without_fast_paths(), _whole_graphs():
        start_naming()
        if processes > 1:
            start_pool()
        yield


@contextmanager
def _whole_graphs() -> Iterator[None]:
    """Make torch.compile build one graph in cases that it supports but does not enable by default.

    Recurrent networks are taken apart step by step, and warnings that a model gives are left out.
    """
    import torch._dynamo.config as dynamo

    # Older versions have the second of these names.
    names = ("ignore_logging_functions", "ignore_logger_methods")
    quiet = next((name for name in names if hasattr(dynamo, name)), None)
    options: dict[str, object] = {"allow_rnn": True} if hasattr(dynamo, "allow_rnn") else {}
    if quiet is not None:
        options[quiet] = {*getattr(dynamo, quiet), warnings.warn}
    with dynamo.patch(options), _settings_in_words():
        yield


def _settings_in_words() -> AbstractContextManager[None]:
    """Keep PyTorch from logging its settings as JSON if one of them is a function.

    PyTorch 2.11 tries to, and logs the failure with a traceback.
    """
    import torch._dynamo.utils as dynamo

    def in_words(before: Callable[[], object]) -> object:
        def settings() -> str | None:
            try:
                return str(before())
            except TypeError:
                return None

        return settings

    return replaced(dynamo, "_get_dynamo_config_for_logging", in_words)

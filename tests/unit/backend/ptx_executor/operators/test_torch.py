"""Library operators on the CPU against PyTorch's: the same calls, recorded as capture does it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera.diagnostics import TesseraError
from tessera.ir.operators.table import table
from tests.helpers.operator_calls import call

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

NAMES = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "s8",
    "uint8": "u8",
    "int16": "s16",
    "int32": "s32",
    "int64": "s64",
    "bool": "bool",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
}
IGNORED = {"device", "layout", "pin_memory", "memory_format", "non_blocking", "implicit"}
# Units in the last place of the result's type, over its largest element.
TOLERANCE = {"f32": 2.0**-20, "f64": 2.0**-44, "f16": 2.0**-9, "bf16": 2.0**-6}


def stored(tensor: Any) -> tuple[np.ndarray, str]:
    name = NAMES[str(tensor.dtype).removeprefix("torch.")]
    plain = tensor.detach().contiguous()
    if name in ("f16", "bf16"):
        return plain.view(torch.int16).numpy().view(np.uint16), name
    if name in ("e4m3", "e5m2"):
        return plain.view(torch.uint8).numpy(), name
    return plain.numpy(), name


def values(raw: np.ndarray, name: str) -> np.ndarray:
    if name == "bf16":
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.view(np.float16) if name == "f16" else raw


def tensors_in(thing: Any) -> list[Any]:
    if isinstance(thing, torch.Tensor):
        return [thing]
    if isinstance(thing, list | tuple):
        return [one for part in thing for one in tensors_in(part)]
    return []


def attribute(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return NAMES[str(value).removeprefix("torch.")]
    return tuple(value) if isinstance(value, list) else value


def both(name: str, *args: Any, **kwargs: Any) -> tuple[list[Any], list[np.ndarray]]:
    """PyTorch's results and ours, for an overload such as `add.Tensor`."""
    base, _, overload = name.partition(".")
    function = getattr(getattr(torch.ops.aten, base), overload or "default")
    given = dict(zip((a.name for a in function._schema.arguments), args, strict=False)) | kwargs
    reads, attributes, in_place = [], {}, base.endswith("_")
    for argument in function._schema.arguments:
        value = given.get(argument.name, ...)
        if value is ...:
            continue
        found = tensors_in(value)
        reads += [stored(one) for one in found]
        if isinstance(value, list) and any(one is None for one in value):
            at = tuple(place for place, one in enumerate(value) if one is not None)
            attributes[f"{argument.name}_at"] = at
        if not found:
            attributes[argument.name] = attribute(value)
    wanted = tensors_in(function(*args, **kwargs))
    writes = [(tuple(one.shape), NAMES[str(one.dtype).removeprefix("torch.")]) for one in wanted]
    got = call(f"aten::{name}", reads, writes, in_place=in_place, **attributes)
    return wanted, got


def agree(name: str, *args: Any, exact: bool = False, **kwargs: Any) -> None:
    wanted, got = both(name, *args, **kwargs)
    for theirs, ours in zip(wanted, got, strict=True):
        raw, kind = stored(theirs)
        if exact or kind not in TOLERANCE:
            assert np.array_equal(raw, ours.view(raw.dtype)), name
            continue
        left, right = (values(one, kind).astype(np.float64) for one in (raw, ours))
        finite = np.isfinite(left)
        assert np.array_equal(finite, np.isfinite(right)), name
        scale = np.abs(left[finite]).max(initial=1e-30)
        assert np.abs(left - right)[finite].max(initial=0) <= TOLERANCE[kind] * scale, name


def draw(*shape: int, dtype: Any = None, seed: int = 0) -> Any:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))
    return made.to(dtype or torch.float32)


FLOATS = ["float32", "float64", "float16", "bfloat16"]
EXACT = ["neg", "abs", "relu", "sign", "floor", "ceil", "trunc", "round", "square", "reciprocal"]
SMOOTH = [
    "sqrt",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log1p",
    "rsqrt",
    "sigmoid",
    "silu",
    "tanh",
    "sin",
    "cos",
    "erf",
    "gelu",
]


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_one_element(dtype: str) -> None:
    x = draw(40, 3, dtype=getattr(torch, dtype))
    positive = x.abs() + 0.01
    for name in EXACT:
        agree(name, x, exact=True)
    for name in SMOOTH:
        agree(name, positive if name in ("sqrt", "log", "log2", "log1p", "rsqrt") else x)
    agree("gelu", x, approximate="tanh")
    agree("leaky_relu", x, 0.2)
    agree("softplus", x * 10)
    agree("softplus", x, 0.5, 0.25)
    agree("relu_", x.clone())


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_two(dtype: str) -> None:
    kind = getattr(torch, dtype)
    x, y = draw(5, 1, 7, dtype=kind), draw(4, 7, dtype=kind, seed=1)
    for name in ("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "maximum", "minimum"):
        agree(name, x, y, exact=True)
    agree("add.Tensor", x, y, alpha=0.5)
    agree("mul.Scalar", x, 3)
    agree("rsub.Scalar", x, 1.5)
    agree("pow.Tensor_Scalar", x.abs(), 1.7)
    agree("pow.Tensor_Tensor", x.abs(), y)
    agree("addcmul", x, x, x, value=0.3)
    agree("lerp.Scalar", x, x * 2, 0.75)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        agree(f"{name}.Tensor", x, y)
        agree(f"{name}.Scalar", x, 0.25)
    agree("where.self", x > 0, x, y[:1, :1], exact=True)
    agree("masked_fill.Scalar", x, x > 0, -1.0, exact=True)
    agree("clamp", x, -0.3, 0.4, exact=True)
    agree("remainder.Tensor", x, y.abs() + 0.1)
    agree("fmod.Tensor", x, y.abs() + 0.1)
    tenths = torch.arange(-40, 40).to(kind) / 10
    agree("floor_divide", tenths, torch.full_like(tenths, 0.1))
    agree("floor_divide.Scalar", tenths, -0.3)
    agree("div.Tensor_mode", tenths, torch.full_like(tenths, 0.1), rounding_mode="floor")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integers(dtype: str) -> None:
    kind = getattr(torch, dtype)
    x = torch.arange(-30, 31).to(kind)
    y = (torch.arange(61) % 7 + 1).to(kind)
    for name in (
        "add.Tensor",
        "sub.Tensor",
        "mul.Tensor",
        "bitwise_and.Tensor",
        "maximum",
        "bitwise_or.Tensor",
        "bitwise_xor.Tensor",
        "remainder.Tensor",
    ):
        agree(name, x, y)
    agree("bitwise_not", x)
    agree("bitwise_left_shift.Tensor", x, torch.full_like(x, 2))
    agree("bitwise_right_shift.Tensor", x, torch.full_like(x, 2))
    for mode in ("floor", "trunc"):
        agree("div.Tensor_mode", x, y, rounding_mode=mode)
    agree("floor_divide", x, y)
    agree("floor_divide.Scalar", x, 4)
    agree("div.Tensor", x, y)
    agree("sum.dim_IntList", x.reshape(1, 61), [1], False)
    agree("cumsum", x, 0)
    agree("logical_not", x)
    agree("amax", x, [0])


@pytest.mark.parametrize("dtype", FLOATS)
def test_products(dtype: str) -> None:
    kind = getattr(torch, dtype)
    a, b = draw(6, 33, dtype=kind), draw(33, 5, dtype=kind)
    agree("mm", a, b)
    agree("addmm", draw(5, dtype=kind), a, b, beta=0.5, alpha=2)
    agree("bmm", draw(3, 4, 8, dtype=kind), draw(3, 8, 2, dtype=kind))
    agree(
        "baddbmm", draw(3, 4, 2, dtype=kind), draw(3, 4, 8, dtype=kind), draw(3, 8, 2, dtype=kind)
    )
    agree("mv", a, draw(33, dtype=kind))
    agree("dot", draw(33, dtype=kind), draw(33, dtype=kind, seed=2))
    agree("linear", draw(2, 3, 8, dtype=kind), draw(4, 8, dtype=kind), draw(4, dtype=kind))
    if dtype != "float16":
        agree(
            "convolution",
            draw(2, 4, 9, 7, dtype=kind),
            draw(6, 2, 3, 3, dtype=kind),
            draw(6, dtype=kind),
            [2, 1],
            [1, 1],
            [1, 2],
            False,
            [0, 0],
            2,
        )
    q, k = draw(2, 4, 6, 8, dtype=kind), draw(2, 4, 6, 8, dtype=kind, seed=3)
    agree("scaled_dot_product_attention", q, k, q, None, 0.0, True)
    agree("scaled_dot_product_attention", q, k, q, draw(6, 6, dtype=kind))


@pytest.mark.parametrize("dtype", FLOATS)
def test_reductions(dtype: str) -> None:
    x = draw(3, 5, 7, dtype=getattr(torch, dtype))
    agree("sum", x)
    agree("sum.dim_IntList", x, [0, 2], True)
    agree("sum.dim_IntList", x, [1], dtype=torch.float32)
    agree("mean.dim", x, [-1], True)
    agree("amax", x, [1, 2])
    agree("amin", x, [])
    agree("max", x)
    agree("max.dim", x, 1, True)
    agree("min.dim", x, 2)
    agree("argmax", x)
    agree("argmax", x, 1)
    agree("argmin", x, 0, True)
    agree("any.dim", x > 1, 1)
    agree("all", x > -9)
    agree("prod.dim_int", x, 1)
    agree("var.correction", x, [2], correction=1, keepdim=True)
    agree("var_mean.correction", x, [1, 2], correction=0)
    agree("logsumexp", x, [1])
    agree("linalg_vector_norm", x, 2, [1])
    agree("linalg_vector_norm", x, 3, [1, 2], True)
    agree("_softmax", x, 1, False)
    agree("_log_softmax", x, -1, False)
    masked = x.clone()
    masked[0, 1:] = float("-inf")
    masked[1] = float("-inf")
    agree("_safe_softmax", masked, -1)
    agree("cumsum", x, 1)
    agree("native_layer_norm", x, [5, 7], None, None, 1e-5)
    weight, bias = (draw(7, dtype=x.dtype, seed=s) for s in (1, 2))
    agree("native_layer_norm", x, [7], weight, bias, 1e-5)
    agree("rms_norm", x, [7], weight, 1e-6)
    agree("rms_norm", x, [7])
    agree(
        "native_group_norm", x[:, :4].contiguous(), draw(4, dtype=x.dtype), None, 3, 4, 7, 2, 1e-5
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_windows_and_kept_figures(dtype: str) -> None:
    x = draw(2, 3, 9, 8, dtype=getattr(torch, dtype))
    x[0, 1, 2, 3] = float("nan")
    for more in ([2], [3, 2], [3, [2, 1], [1, 1]], [2, 3, 1, 2], [3, 2, 1, 1, True]):
        agree("max_pool2d_with_indices", x, *more)
    agree("max_pool2d_with_indices", x[1], 3)
    x = draw(2, 3, 9, dtype=x.dtype)
    weight, bias, mean = (draw(3, dtype=x.dtype, seed=s) for s in (1, 2, 3))
    spread = draw(3, dtype=x.dtype).abs() + 0.5
    agree("native_batch_norm", x, weight, bias, mean, spread, False, 0.1, 1e-5)
    agree("native_batch_norm", x, None, None, mean, spread, False, 0.1, 1e-3)
    agree("_native_batch_norm_legit_no_training", x, weight, None, mean, spread, 0.1, 1e-5)
    agree("_weight_norm_interface", x, draw(2, 1, 1, dtype=x.dtype))
    agree("_weight_norm_interface", x, draw(1, 1, 9, dtype=x.dtype), 2)


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "bool"])
def test_movement(dtype: str) -> None:
    x = (draw(4, 6) * 4).to(getattr(torch, dtype))
    rows = torch.tensor([3, 0, 3])
    agree("cat", [x, x[:2]], 0, exact=True)
    agree("stack", [x, x], 1, exact=True)
    agree("clone", x.T, exact=True)
    agree("copy_", torch.zeros_like(x), x, exact=True)
    agree("flip", x, [0, 1], exact=True)
    agree("roll", x, [3], [1], exact=True)
    agree("roll", x, [1, -2], [0, -1], exact=True)
    agree("roll", x, [5], exact=True)
    agree("repeat", x, [2, 1, 3], exact=True)
    agree("constant_pad_nd", x, [1, -2, 0, 3], 2 if dtype != "bool" else 1, exact=True)
    agree("tril", x, 1, exact=True)
    agree("triu", x, -1, exact=True)
    agree("index_select", x, 0, rows, exact=True)
    agree("index.Tensor", x, [rows, rows - 1], exact=True)
    agree("index.Tensor", x, [None, rows], exact=True)
    agree("index_put", x, [None, rows[:2]], x[:, :2], exact=True)
    agree("index_put_", x.clone(), [None, rows[:2]], x[:, :1], exact=True)
    agree("gather", x, 1, torch.tensor([[0, 5], [1, 1], [2, 0], [3, 3]]), exact=True)
    agree("index_put", x, [rows[:2]], x[:1], exact=True)
    agree("index_copy", x, 0, rows[:2], x[:2], exact=True)
    agree("scatter.src", x, 1, torch.tensor([[0, 5], [1, 2]]), x, exact=True)
    agree("scatter.value", x, 1, torch.tensor([[0, 5], [1, 2]]), 1, exact=True)
    if dtype == "bool":
        return
    agree("scatter_add", x, 0, rows.reshape(1, 3), x)
    agree("scatter_reduce.two", x, 0, rows.reshape(1, 3), x, "amax")
    agree("index_add", x, 0, rows, x[:3], alpha=2)
    agree("sort.stable", x, stable=True, dim=1, descending=True, exact=True)
    agree("fill.Scalar", x, 3, exact=True)
    agree("zeros_like", x, exact=True)
    agree("_to_copy", x, dtype=torch.float32, exact=True)
    agree("_to_copy", x, dtype=torch.bfloat16, exact=True)


def test_makers() -> None:
    agree("arange.start_step", 3, 20, 4, dtype=torch.int64)
    agree("arange", 5, dtype=torch.float32)
    agree("full", [2, 3], 1.5, dtype=torch.bfloat16)
    agree("zeros", [4], dtype=torch.int32)
    agree("embedding", draw(9, 4), torch.tensor([[1, 8], [0, 1]]), exact=True)
    values_, places = both("topk", torch.tensor([1.0, 9.0, 4.0, 7.0]), 2)
    assert np.array_equal(values_[0].numpy(), places[0])


def test_every_entry_is_an_overload_of_pytorch_with_the_same_names() -> None:
    """Operands and attributes are arguments of PyTorch's schema."""
    for entry in table().values():
        if entry.name.startswith("tessera::"):
            continue
        base, _, overload = entry.name.removeprefix("aten::").partition(".")
        schema = getattr(getattr(torch.ops.aten, base), overload or "default")._schema
        known = {argument.name for argument in schema.arguments}
        if base == "cudnn_convolution":
            known |= {"input"}
        ours = {one.name for one in entry.reads}
        assert ours <= known, entry.name
        ours |= {one.name for one in entry.attributes}
        assert {one.name for one in entry.attributes if one.is_required} <= known, entry.name
        rest = {one.name for one in schema.arguments if not one.is_out} - ours - IGNORED
        assert not rest - ({"self"} if base == "cudnn_convolution" else set()), entry.name


def test_small_floats() -> None:
    """Every rounding of e4m3 and e5m2, and a product of them with scales."""
    steps = torch.cat([draw(4000) * 2.0**p for p in range(-12, 12, 2)])
    ends = torch.tensor(
        [
            0.0,
            -0.0,
            448.0,
            463.9,
            464.0,
            480.0,
            57344.0,
            61439.0,
            61440.0,
            1e9,
            -1e9,
            2.0**-10,
            2.0**-17,
            float("inf"),
            float("-inf"),
        ]
    )
    for kind in (torch.float8_e4m3fn, torch.float8_e5m2):
        agree("_to_copy", torch.cat([steps, ends]), dtype=kind, exact=True)
        agree("_to_copy", steps.to(kind), dtype=torch.float32, exact=True)
    a, b = draw(32, 64).to(torch.float8_e4m3fn), draw(64, 32).to(torch.float8_e4m3fn)
    scales = torch.tensor(0.5), torch.tensor(3.0)
    wanted = (a.double() * 0.5) @ (b.double() * 3.0)
    raw = [stored(one) for one in (a, b, *scales)]
    got = call("aten::_scaled_mm", raw, [((32, 32), "f32")], out_dtype="f32")[0]
    assert np.allclose(got, wanted.numpy(), rtol=1e-6)


def test_products_leave_sums_in_the_type_that_is_asked_for() -> None:
    # PyTorch has these on the GPU only
    a, b = draw(3, 8, 64, dtype=torch.bfloat16), draw(3, 64, 8, dtype=torch.bfloat16)
    base = draw(8, 8, dtype=torch.bfloat16)
    exact = a.double() @ b.double()
    shape = {"mm": (8, 8), "addmm": (8, 8), "bmm": (3, 8, 8), "baddbmm": (3, 8, 8)}
    for name, size in shape.items():
        factors = [a, b] if len(size) == 3 else [a[0], b[0]]
        wanted = exact if len(size) == 3 else exact[0]
        if "add" in name:
            factors, wanted = [base, *factors], wanted + base.double()
        raw = [stored(each) for each in factors]
        for form in ("dtype", "dtype_out"):
            (got,) = call(f"aten::{name}.{form}", raw, [(size, "f32")], out_dtype="f32")
            assert np.allclose(got, wanted.numpy(), rtol=1e-6)
            with pytest.raises(TesseraError) as refused:
                call(f"aten::{name}.{form}", raw, [(size, "bf16")], out_dtype="f32")
            assert "`out_dtype` is `f32`" in str(refused.value.diagnostics[0].notes)

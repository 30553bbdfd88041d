"""The table of operators: what it takes, what it refuses, and what it says about a call."""

from __future__ import annotations

import re

import pytest

from tessera.diagnostics import TesseraError
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.operators.records import Reach, Unit
from tessera.ir.operators.table import bind, near_names, reaches, table, work_of
from tessera.ir.program import program as ir

TRACE = """//! tessera.trace 1
//! buffer x bytes=4096 role=input
//! buffer w bytes=4096 role=weight
//! buffer i bytes=4096 role=input
//! buffer s bytes=4096 role=state
//! buffer y bytes=4096 role=output
"""


def read(record: str) -> ir.LibraryCall:
    (step,) = parse_trace(TRACE + f"//! op {record}\n").steps
    assert isinstance(step, ir.LibraryCall)
    return step


GOOD = [
    "aten::mm.out reads=[x:f32[4,8], w:f32[8,2]{1,8}] writes=[y:f32[4,2]]",
    'aten::addmm reads=[w:f32[2], x:f32[4,8], w:f32[8,2]] writes=[y:f32[4,2]] attrs={"beta":0}',
    'aten::add.Tensor reads=[x:f32[4,1], w:f32[3]] writes=[y:f32[4,3]] attrs={"alpha":2}',
    'aten::add.Tensor reads=[x:f32[4]] writes=[y:f32[4]] attrs={"other":1.5}',
    "aten::add_.Tensor reads=[s:f32[4], x:f32[1]] writes=[s:f32[4]]",
    "aten::copy_ reads=[x:f32[4]] writes=[s:f32[2,4]]",
    "aten::copy_ reads=[s:f32[4], x:bf16[4]] writes=[s:f32[4]]",
    "aten::native_layer_norm reads=[x:bf16[4,8], w:bf16[8]] writes=[y:bf16[4,8], "
    'y+512:f32[4,1], y+640:f32[4,1]] attrs={"normalized_shape":[8],"bias":null,"eps":1e-6}',
    "aten::cat reads=[x:f32[2,3], x:f32[5,3], x:f32[0]] writes=[y:f32[7,3]]",
    "aten::index_put_ reads=[s:f32[8,4], i:s64[2], x:f32[2,4]] writes=[s:f32[8,4]]",
    "aten::index.Tensor reads=[x:f32[8,4,2], i:s64[3,1], i:s64[5]] writes=[y:f32[3,5,2]]",
    'aten::zeros reads=[] writes=[y:f32[4]] attrs={"size":[4],"device":"cuda:0"}',
    'aten::arange reads=[] writes=[y:s64[7]] attrs={"end":7}',
    'aten::topk reads=[x:f32[3,9]] writes=[y:f32[3,2], y+64:s64[3,2]] attrs={"k":2}',
]

BAD = [
    ("aten::mm.out reads=[x:f32[4,8]] writes=[y:f32[4,2]]", "reads `self`, `mat2`: 1 given"),
    ("aten::mm.out reads=[x:f32[4,8], w:f32[7,2]] writes=[y:f32[4,2]]", "is not dimension 0"),
    ("aten::mm.out reads=[x:f32[4,8], w:f32[8,2]] writes=[y:f32[2,4]]", "make it [4,2]"),
    ("aten::mm.out reads=[x:f32[4,8,1], w:f32[8,2]] writes=[y:f32[4,2]]", "must have 2 dimensions"),
    ("aten::mm.out reads=[x:f32[4,8], w:f32[8,2]] writes=[y:f64[4,2]]", "the result is `f64`"),
    ("aten::mm.out reads=[x:f32[4,8], w:f32[8,2]] writes=[]", "writes `out`: 0 given"),
    ("aten::mm.out reads=[x:bool[4,8], w:bool[8,2]] writes=[y:bool[4,2]]", "must be number"),
    ("aten::add.Tensor reads=[x:f32[4], w:f32[3]] writes=[y:f32[4]]", "do not broadcast"),
    ("aten::add.Tensor reads=[x:f32[4], w:f32[4]] writes=[y:s32[4]]", "the result is `s32`"),
    ('aten::add.Tensor reads=[x:f32[4]] writes=[y:f32[4]] attrs={"other":"a"}', "reads `self`"),
    (
        'aten::add.Tensor reads=[x:f32[4],x:f32[4]] writes=[y:f32[4]] attrs={"beta":1}',
        "no attribute `beta`",
    ),
    (
        'aten::add.Tensor reads=[x:f32[4],x:f32[4]] writes=[y:f32[4]] attrs={"alpha":"a"}',
        "must be a number",
    ),
    ("aten::add_.Tensor reads=[s:f32[4], x:f32[1]] writes=[y:f32[4]]", "works in place"),
    (
        'aten::gather reads=[x:f32[4,4], i:f32[4,4]] writes=[y:f32[4,4]] attrs={"dim":0}',
        "must be integer",
    ),
    ("aten::cumsum reads=[x:f32[4]] writes=[y:f32[4]]", "attribute `dim` must be given"),
    ('aten::cumsum reads=[x:f32[4]] writes=[y:f32[4]] attrs={"dim":1}', "dimension 1"),
    ('aten::topk reads=[x:f32[3]] writes=[y:f32[4], y:s64[4]] attrs={"k":4}', "`k` is 4"),
    ("aten::eq.Tensor reads=[x:f32[4], x:f32[4]] writes=[y:f32[4]]", "must be bool"),
    ('aten::_to_copy reads=[x:f32[4]] writes=[y:f16[4]] attrs={"dtype":"half"}', "name of a type"),
    (
        "aten::convolution reads=[x:f32[1,4,8,8], w:f32[2,3,3,3]] writes=[y:f32[1,2,6,6]] attrs={}",
        "do not agree",
    ),
]


@pytest.mark.parametrize("record", GOOD, ids=lambda r: r.split()[0])
def test_calls_that_fit(record: str) -> None:
    assert bind(read(record)).operator.name == record.split()[0]


@pytest.mark.parametrize(("record", "words"), BAD)
def test_calls_that_do_not_fit(record: str, words: str) -> None:
    with pytest.raises(TesseraError, match="TSR1164") as refused:
        read(record)
    assert words in str(refused.value)


def test_unknown_operators_name_their_neighbours() -> None:
    with pytest.raises(TesseraError, match="TSR1164") as refused:
        read("aten::mm.Out reads=[x:f32[4,8], w:f32[8,2]] writes=[y:f32[4,2]]")
    hint = "did you mean `aten::mm` or `aten::mm.dtype` or `aten::mm.dtype_out` or `aten::mm.out`?"
    assert refused.value.diagnostics[0].hint == hint
    assert "aten::softmax.int" in near_names("aten::softmax.Int")
    assert near_names("zzz::completely_else") == ()
    with pytest.raises(TesseraError, match="TSR1164"):
        read("os::system reads=[] writes=[]")


def test_how_operands_are_used() -> None:
    put = read("aten::index_put_ reads=[s:f32[8,4], i:s64[2], x:f32[2,4]] writes=[s:f32[8,4]]")
    assert reaches(put) == ((Reach.INDEXED, Reach.WHOLE, Reach.WHOLE), (Reach.INDEXED,))
    copy = read("aten::copy_ reads=[s:f32[4], x:f32[4]] writes=[s:f32[4]]")
    assert reaches(copy) == ((Reach.NONE, Reach.WHOLE), (Reach.WHOLE,))
    rows = read("aten::embedding reads=[w:f32[8,4], i:s64[3]] writes=[y:f32[3,4]]")
    assert reaches(rows) == ((Reach.INDEXED, Reach.WHOLE), (Reach.WHOLE,))
    unknown = ir.LibraryCall(id=ir.LaunchId(0), operator="k", reads=rows.reads, writes=())
    assert reaches(unknown) == ((Reach.WHOLE, Reach.WHOLE), ())


def test_work() -> None:
    product = work_of(read("aten::mm reads=[x:f32[4,8], w:f32[8,2]] writes=[y:f32[4,2]]"))
    assert product is not None
    assert (product.operations, product.unit) == (2 * 4 * 8 * 2, Unit.MATRIX)
    moved = work_of(read("aten::clone reads=[x:f32[4]] writes=[y:f32[4]]"))
    assert moved is not None
    assert moved.unit is Unit.MEMORY


def test_a_result_that_is_not_made_is_left_out() -> None:
    """Without sums of exponentials, attention by cuDNN gives seed and offset after its result."""
    buffers = "".join(f"//! buffer {name} bytes=512 role=temp\n" for name in "qosf")
    head = f"//! tessera.trace 1\n{buffers}//! op aten::_scaled_dot_product_cudnn_attention "
    three = "reads=[q:f32[1,2,4,8], q:f32[1,2,4,8], q:f32[1,2,4,8]] "
    (call,) = parse_trace(f"{head}{three}writes=[o:f32[1,2,4,8], s:s64[], f:s64[]]").steps
    assert isinstance(call, ir.LibraryCall)
    assert [spec.name for spec, _ in bind(call).writes] == ["out", "seed", "offset"]
    (call,) = parse_trace(f"{head}{three}writes=[o:f32[1,2,4,8], s:f32[1,2,4], f:s64[]]").steps
    assert isinstance(call, ir.LibraryCall)
    assert [spec.name for spec, _ in bind(call).writes] == ["out", "logsumexp", "seed"]


def attention_work(queries: int, keys: int, heads: int = 4, *, causal: bool) -> float:
    own, kept = f"[2,4,{queries},8]", f"[2,{heads},{keys},8]"
    size = 2 * 4 * 4 * max(queries, keys) * 8
    call = (
        f"aten::scaled_dot_product_attention reads=[q:f32{own}, k:f32{kept}, k:f32{kept}] "
        f'writes=[o:f32{own}] attrs={{"is_causal": {str(causal).lower()}}}'
    )
    buffers = "".join(f"//! buffer {name} bytes={size} role=temp\n" for name in "qko")
    (work,) = parse_trace(f"//! tessera.trace 1\n{buffers}//! op {call}\n").steps
    assert isinstance(work, ir.LibraryCall)
    counted = work_of(work)
    assert counted is not None
    return counted.operations


def test_attention_counts_the_keys_that_each_query_sees() -> None:
    """Half of them with a causal mask, and some; fewer heads of keys are no less work."""
    one = 2 * 2 * 4 * (8 + 8)  # per query and key
    assert attention_work(5, 7, causal=False) == one * 5 * 7
    assert attention_work(6, 6, causal=True) == one * 21
    assert attention_work(3, 7, causal=True) == one * (1 + 2 + 3)
    assert attention_work(7, 3, causal=True) == one * (1 + 2 + 3 + 4 * 3)
    assert attention_work(1, 9, heads=1, causal=False) == one * 9
    assert attention_work(1, 9, heads=1, causal=True) == one


def test_names_are_those_of_a_trace_and_operands_have_distinct_names() -> None:
    for entry in table().values():
        assert re.fullmatch(r"aten::\w+(\.\w+)?|tessera::\w+", entry.name)
        names = [one.name for one in entry.reads]
        assert len(set(names)) == len(names)
        assert sum(one.is_list for one in entry.reads) <= 1

"""The shapes every benchmark here runs on, one row a case.

One list serves both ``compare.py`` and the asv suite, so a shape that one of
them shows to be slow can be looked up by the same name in the other.  The file
imports nothing but the standard library: the parent process of ``compare.py``
reads it, and that process must not start a BLAS thread pool of its own.

How a row reads
---------------
``"MxNxK"``
    one product, ``(M, K) @ (K, N)``.
``"BATCHxMxNxK"``
    a stack of products, ``(BATCH, M, K) @ (BATCH, K, N)``.
``"SHAPE@SHAPE"``
    ``numpy.matmul`` on exactly these two shapes: vectors, broadcast stacks.

Words after the size change the product, and become part of the case's name:

``NT`` ``TN`` ``TT``
    B, A, or both are stored transposed.
``constB``
    B does not change between calls, so a library may prepare it beforehand.
``biasN`` ``biasM1`` ``biasMN`` ``biasS``
    an added C of shape ``(N,)``, ``(M, 1)``, ``(M, N)`` or ``()``.
``alpha=X`` ``beta=X``
    scale factors of the product and of C.
``strided``
    a stack that gemmkit runs through a ``StridedBatchedGemm`` plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

Shape = tuple[int, ...]
WIDE: tuple[str, ...] = ("float32", "float64")
HALVES: tuple[str, ...] = ("float16", "bfloat16")
FLOAT8: tuple[str, ...] = (
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"
)
ALL_DTYPES: tuple[str, ...] = WIDE + HALVES + FLOAT8
# What is measured unless asked otherwise: the float8 types differ in how a code
# is decoded, not in how a product is computed, so one stands for the four.
DTYPES: tuple[str, ...] = WIDE + HALVES + FLOAT8[:1]


@dataclass(frozen=True)
class Mode:
    """A product of 8- and 4-bit integers, named where a dtype is.

    Two operand types and a function make one: a dtype alone does not say it.
    """

    a: str
    b: str
    y: str
    qlinear: bool = False  # requantized, with scales and zero points
    columns: bool = False  # B has a scale for each column
    bits: int = 8  # of B; 4-bit values are in -8..7 and kept two a byte


INTEGERS: tuple[str, ...] = ("int32", "int64")  # plain products that wrap
MODES: dict[str, Mode] = {
    "u8s8": Mode("uint8", "int8", "int32"),
    "s8s8": Mode("int8", "int8", "int32"),
    "u8u8": Mode("uint8", "uint8", "int32"),
    "s8u8": Mode("int8", "uint8", "int32"),
    "int4": Mode("uint8", "int8", "int32", bits=4),
    "qu8s8": Mode("uint8", "int8", "uint8", qlinear=True),
    "qu8u8": Mode("uint8", "uint8", "uint8", qlinear=True),
    "qs8s8": Mode("int8", "int8", "int8", qlinear=True),
    "qu8s8c": Mode("uint8", "int8", "uint8", qlinear=True, columns=True),
}
ALL_NAMES: tuple[str, ...] = ALL_DTYPES + INTEGERS + tuple(MODES)
GROUPS: dict[str, tuple[str, ...]] = {
    "floats": DTYPES,
    "ints": ("u8s8", "s8s8", "u8u8", "s8u8", "int32", "int64", "qu8s8"),
}


@dataclass(frozen=True)
class Case:
    """One product to measure.  ``a_shape`` and ``b_shape`` are as stored."""

    name: str
    family: str
    op: str  # matmul | gemm | batched | tiny_batch | strided_batched | grouped
    m: int
    n: int
    k: int
    a_shape: Shape
    b_shape: Shape
    batch: int = 1
    trans_a: bool = False
    trans_b: bool = False
    bias_shape: Shape | None = None
    alpha: float = 1.0
    beta: float = 1.0
    constant_b: bool = False
    group: tuple[tuple[int, int, int], ...] = ()  # (m, n, k) of each member
    dtypes: tuple[str, ...] = ALL_DTYPES
    priority: bool = True

    @property
    def flops(self) -> int:
        """Multiplications and additions of the products; C is not counted."""
        if self.group:
            return sum(2 * m * n * k for m, n, k in self.group)
        return 2 * self.batch * self.m * self.n * self.k


# fmt: off
_ROWS: tuple[tuple[str, str], ...] = (
    # Where the call itself, not arithmetic, is most of the time.
    ("tiny", "1x1x1"),
    ("tiny", "2x2x2"),
    ("tiny", "4x4x4"),
    ("tiny", "8x8x8"),
    ("tiny", "16x16x16"),
    ("tiny", "32x32x32"),
    ("tiny", "64x64x64"),
    ("tiny", "8x8x8 constB"),
    ("tiny", "64x64x64 constB"),
    ("tiny", "8x8x8 biasN"),

    # Where arithmetic is all of it.
    ("square", "128x128x128"),
    ("square", "256x256x256"),
    ("square", "512x512x512"),
    ("square", "1024x1024x1024"),
    ("square", "2048x2048x2048"),

    # Nothing divides a vector, a register tile or a cache block.
    ("odd", "7x11x13"),
    ("odd", "17x19x23"),
    ("odd", "31x33x65"),
    ("odd", "127x129x257"),
    ("odd", "255x257x511"),
    ("odd", "997x1009x991"),
    ("odd", "127x129x257 NT"),
    ("odd", "127x129x257 constB"),

    # The same product with a B that may be prepared once.
    ("constant-b", "128x128x128 constB"),
    ("constant-b", "256x256x256 constB"),
    ("constant-b", "512x512x512 constB"),
    ("constant-b", "1024x1024x1024 constB"),
    ("constant-b", "256x256x256 NT constB"),
    ("constant-b", "32x1024x1024 constB"),
    ("constant-b", "32x1024x1024"),

    # What a fused C saves against a second pass over the output.
    ("bias", "256x256x256 biasN"),
    ("bias", "256x256x256 biasM1"),
    ("bias", "256x256x256 biasMN"),
    ("bias", "256x256x256 biasS"),
    ("bias", "256x256x256 alpha=0.5"),
    ("bias", "256x256x256 biasMN alpha=0.5 beta=2"),
    ("bias", "256x256x256 biasN constB"),
    ("bias", "1024x1024x8 biasMN"),
    ("bias", "64x64x64 biasMN alpha=0.5 beta=2"),

    # A few rows: reading B is the cost, so no packing pays for itself.
    ("skinny-m", "1x64x64"),
    ("skinny-m", "1x1024x1024"),
    ("skinny-m", "2x1024x1024"),
    ("skinny-m", "3x1024x1024"),
    ("skinny-m", "4x1024x1024"),
    ("skinny-m", "6x1024x1024"),
    ("skinny-m", "8x1024x1024"),
    ("skinny-m", "12x1024x1024"),
    ("skinny-m", "16x1024x1024"),
    ("skinny-m", "1x4096x1024"),
    ("skinny-m", "8x4096x1024"),
    ("skinny-m", "1x64x64 NT"),
    ("skinny-m", "1x1024x1024 NT"),
    ("skinny-m", "1x4096x1024 NT"),
    ("skinny-m", "4x1024x1024 NT"),
    ("skinny-m", "8x4096x1024 NT"),
    ("skinny-m", "1x1024x1024 constB"),
    ("skinny-m", "1x4096x1024 constB"),
    ("skinny-m", "4x1024x1024 constB"),
    ("skinny-m", "8x4096x1024 constB"),

    # A few columns: the same with A.
    ("skinny-n", "1024x1x1024"),
    ("skinny-n", "1024x2x1024"),
    ("skinny-n", "1024x4x1024"),
    ("skinny-n", "1024x8x1024"),

    # Writing the output is the cost.
    ("small-k", "1024x1024x1"),
    ("small-k", "1024x1024x8"),

    # So little output that only K can be shared among threads.
    ("large-k", "2x2x4096"),
    ("large-k", "32x32x4096"),
    ("split-k", "16x16x65536"),
    ("split-k", "64x64x16384"),

    ("transpose", "256x256x256 NT"),
    ("transpose", "256x256x256 TN"),
    ("transpose", "256x256x256 TT"),
    ("transpose", "512x512x512 NT"),
    ("transpose", "512x512x512 TN"),
    ("transpose", "512x512x512 TT"),

    # The two projections of a transformer's feed-forward block.
    ("transformer", "128x3072x768"),
    ("transformer", "128x3072x768 constB"),
    ("transformer", "128x3072x768 NT"),
    ("transformer", "128x3072x768 NT biasN constB"),
    ("transformer", "128x768x3072"),
    ("transformer", "128x768x3072 constB"),
    ("transformer", "128x768x3072 NT"),

    # Attention scores and values of twelve heads.
    ("batched", "12x128x128x64"),
    ("batched", "12x128x64x128"),
    ("batched", "12x128x128x64 NT strided"),
    ("batched", "64x32x32x32"),

    # One side of the stack is read again for every member.
    ("broadcast", "8x64x128@128x64"),
    ("broadcast", "1x64x128@8x128x64"),
    ("broadcast", "64x128@8x128x64"),
    ("broadcast", "8x64x128@128x64 constB"),

    ("vector", "64@64x64"),
    ("vector", "1024@1024x1024"),
    ("vector", "64x64@64"),
    ("vector", "1024x1024@1024"),
    ("vector", "64@64"),
    ("vector", "65536@65536"),

    # Many products too small for a call each.
    ("tiny-batch", "256x8x8x8"),
    ("tiny-batch", "1000x4x4x4"),
    ("tiny-batch", "20000x3x3x3"),
    ("tiny-batch", "256x8x8x8 strided"),
    ("tiny-batch", "1000x4x4x4 strided"),
)
# fmt: on

# Only for integers: factors have to be whole, and a 4-bit B shows its use where
# it is too large for the caches.
_INTEGER_ROWS: tuple[tuple[str, str], ...] = (
    ("bias", "256x256x256 alpha=3"),
    ("bias", "256x256x256 biasMN alpha=3 beta=2"),
    ("skinny-m", "1x4096x4096 constB"),
)

# Members of unlike sizes, which no stack of equal products can hold.
_GROUPS: tuple[tuple[str, tuple[tuple[int, int, int], ...]], ...] = (
    (
        "grouped-tiny64",
        tuple((4 + i % 5, 4 + i % 7, 4 + i % 13) for i in range(64)),
    ),
    (
        "grouped-experts8",
        tuple((m, 256, 256) for m in (1, 3, 7, 12, 16, 24, 33, 64)),
    ),
    (
        "grouped-mixed6",
        ((512, 64, 64), (16, 16, 16), (128, 256, 64), (1, 512, 512), (300, 7, 90),
         (96, 96, 96)),
    ),
)

# Left out of --quick: these take longer than all the others together.
_LONG = frozenset({"2048x2048x2048"})

_TINY_MEMBER = 16  # a stack whose members are all at most this is a tiny batch


def _dims(text: str) -> Shape:
    return tuple(int(part) for part in text.split("x"))


def _broadcast(a: Shape, b: Shape) -> int:
    """Number of products in a numpy.matmul of stacks with these batch shapes."""
    length = max(len(a), len(b))
    left = (1,) * (length - len(a)) + a
    right = (1,) * (length - len(b)) + b
    total = 1
    for x, y in zip(left, right):
        if x != y and 1 not in (x, y):
            raise ValueError(f"batch shapes {a} and {b} do not broadcast")
        total *= max(x, y)
    return total


def _swap(shape: Shape, swap: bool) -> Shape:
    return shape[:-2] + (shape[-1], shape[-2]) if swap else shape


def _parse(family: str, row: str) -> Case:
    """Turn one row of the table into a Case."""
    size, *words = row.split()
    flags = {word for word in words if "=" not in word}
    scale = {
        key: float(value)
        for key, _, value in (word.partition("=") for word in words if "=" in word)
    }
    trans_a, trans_b = bool(flags & {"TN", "TT"}), bool(flags & {"NT", "TT"})
    name = "-".join([size, *words])
    priority = size not in _LONG
    if "@" in size:
        left, right = (_dims(part) for part in size.split("@"))
        k = left[-1]
        if k != right[-2 if len(right) > 1 else 0]:
            raise ValueError(f"{row}: inner sizes differ")
        batch = _broadcast(left[:-2], right[:-2])
        return Case(
            name, family, "batched" if max(len(left), len(right)) > 2 else "matmul",
            left[-2] if len(left) > 1 else 1, right[-1] if len(right) > 1 else 1, k,
            left, right, batch=batch, constant_b="constB" in flags, priority=priority,
        )
    dims = _dims(size)
    m, n, k = dims[-3:]
    stack = dims[:-3]
    biases: dict[str, Shape] = {
        "biasN": (n,), "biasM1": (m, 1), "biasMN": (m, n), "biasS": ()
    }
    bias = next((biases[flag] for flag in flags if flag in biases), None)
    if "strided" in flags:
        op = "strided_batched"
    elif stack:
        op = "tiny_batch" if max(m, n, k) <= _TINY_MEMBER else "batched"
    elif trans_a or trans_b or scale or bias is not None:
        op = "gemm"
    else:
        op = "matmul"
    return Case(
        name, family, op, m, n, k,
        stack + _swap((m, k), trans_a), stack + _swap((k, n), trans_b),
        batch=stack[0] if stack else 1, trans_a=trans_a, trans_b=trans_b,
        bias_shape=bias, alpha=scale.get("alpha", 1.0), beta=scale.get("beta", 1.0),
        constant_b="constB" in flags, priority=priority,
    )


def _integer_names(case: Case) -> tuple[str, ...]:
    """The integer types and modes that a case makes sense for."""
    if not (case.alpha.is_integer() and case.beta.is_integer()):
        return ()
    names = list(INTEGERS)
    # The 8-bit functions have no C, no factors and no groups, and a stack is one
    # however it is called.
    if (case.bias_shape is not None or case.alpha != 1.0
            or case.op in ("grouped", "strided_batched")):
        return tuple(names)
    for name, mode in MODES.items():
        if mode.columns and len(case.b_shape) != 2:
            continue
        if mode.bits == 4 and (not case.constant_b or case.trans_b):
            continue
        names.append(name)
    return tuple(names)


def _grouped(name: str, shapes: tuple[tuple[int, int, int], ...]) -> Case:
    m, n, k = (max(shape[axis] for shape in shapes) for axis in range(3))
    return Case(
        name, "grouped", "grouped", m, n, k, (), (), batch=len(shapes), group=shapes
    )


def _cases() -> Iterable[Case]:
    for family, row in _ROWS:
        case = _parse(family, row)
        yield replace(case, dtypes=case.dtypes + _integer_names(case))
    for name, shapes in _GROUPS:
        case = _grouped(name, shapes)
        yield replace(case, dtypes=case.dtypes + _integer_names(case))
    for family, row in _INTEGER_ROWS:
        case = _parse(family, row)
        yield replace(case, dtypes=_integer_names(case))


CASES: tuple[Case, ...] = tuple(_cases())
BY_NAME: dict[str, Case] = {case.name: case for case in CASES}
if len(BY_NAME) != len(CASES):
    raise ValueError("two cases of the corpus share a name")


def select(
    patterns: Sequence[str] = (),
    *,
    families: Iterable[str] | None = None,
    priority_only: bool = False,
    dtypes: Iterable[str] | None = None,
    cases: Sequence[Case] = CASES,
) -> list[Case]:
    """Cases whose name or family matches any shell-style pattern, in corpus order.

    No pattern means all of them, ``dtypes`` those that take one of these.
    """
    types = None if dtypes is None else set(dtypes)
    wanted = None if families is None else set(families)
    return [
        case
        for case in cases
        if (not priority_only or case.priority)
        and (wanted is None or case.family in wanted)
        and (types is None or not types.isdisjoint(case.dtypes))
        and (
            not patterns
            or any(
                fnmatchcase(case.name, pattern) or fnmatchcase(case.family, pattern)
                for pattern in patterns
            )
        )
    ]

"""The attention cases, one row each, and the corpus together with them.

``compare.py`` and the asv suite take their cases from here; like ``corpus.py`` the
file imports nothing that starts a thread pool.  An attention case is a ``Case`` whose
M are the queries, N all keys and K the width of a head, so that whatever selects,
measures and reports products does the same with it.

How a row reads
---------------
``"L"`` or ``"LxT"``
    as many queries as keys, or L queries and T keys.
``"HX"`` ``"HX/Y"`` ``"DX"`` ``"BX"``
    X query heads (of Y key heads), width of a head (of V too), batches.
``causal`` ``window=X``
    a query sees the keys up to its own place, or only the last X of those.
``past``
    the queries are the last L of the T places, the keys before them are given apart
    (``past_key``, ``past_value``).
``rank3``
    arrays are ``[B, L, H * D]``.
``padding`` ``scattered`` ``documents`` ``alibi``
    a mask: bool ``(B, 1, 1, T)`` that ends each member of a batch elsewhere, bool
    ``(L, T)`` with a tenth of the pairs taken out at random, bool ``(L, T)`` of four
    blocks on the diagonal, numbers ``(1, H, L, T)`` that fall with the distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import corpus
from benchmarks.corpus import Case, Shape

# Named where a dtype is, as the modes of integers are.
ATTENTION: dict[str, str] = {
    "attention": "float32", "attention-f64": "float64",
    "attention-f16": "float16", "attention-bf16": "bfloat16",
}
ALL_NAMES: tuple[str, ...] = corpus.ALL_NAMES + tuple(ATTENTION)
GROUPS: dict[str, tuple[str, ...]] = corpus.GROUPS | {"attentions": tuple(ATTENTION)}
_MASKS = ("padding", "scattered", "documents", "alibi")
DOCUMENTS = 4
_FEW = 16  # up to this many queries reading K and V is the cost


@dataclass(frozen=True)
class AttentionCase(Case):
    """One attention to measure; ``m`` queries, ``n`` keys, ``k`` the width of a head."""

    heads: int = 1
    kv_heads: int = 1
    causal: bool = False
    window: int = 0  # keys that a query sees, its own among them; 0: all
    past: int = 0  # keys given apart; the queries come after them
    mask: str = ""
    rank3: bool = False

    @property
    def lengths(self) -> list[int]:
        """Keys of each member of a batch that padding leaves, from all to half."""
        short = self.n // 2 if self.mask == "padding" else 0
        return [self.n - short * b // max(1, self.batch - 1) for b in range(self.batch)]

    @property
    def mask_shape(self) -> Shape | None:
        if not self.mask:
            return None
        square = (self.m, self.n)
        return {"padding": (self.batch, 1, 1, self.n), "alibi": (1, self.heads, *square)}.get(self.mask, square)

    @property
    def pairs(self) -> int:
        """(query, visible key) pairs of a head, over the whole batch.

        Keys out of reach are not counted as work.  Those that a scattered mask takes
        out are: no kernel gets round them.
        """
        if self.mask == "documents":
            return self.batch * self.m * (self.n // DOCUMENTS)
        if not self.causal:
            return self.m * sum(self.lengths)
        reach = self.window or self.n
        return self.batch * sum(min(reach, self.past + row + 1) for row in range(self.m))

    @property
    def flops(self) -> int:
        """Multiplications and additions of both products; the softmax is not counted."""
        return 2 * (self.k + self.k) * self.pairs * self.heads


def element(name: str) -> str:
    """The type of the arrays that a name stands for."""
    return ATTENTION.get(name, name)


def read_bytes(case: Case, dtype: str) -> int:
    """Bytes of K and V where reading them is the cost, else 0."""
    if not isinstance(case, AttentionCase) or case.m > _FEW:
        return 0
    size = {"float64": 8, "float32": 4}.get(element(dtype), 2)
    return case.batch * case.kv_heads * case.n * 2 * case.k * size


# fmt: off
_ROWS: tuple[tuple[str, str], ...] = (
    ("prefill-256", "256 H8 D64"),
    ("prefill-1024", "1024 H8 D64"),
    ("prefill-4096", "4096 H8 D64"),
    ("prefill-1024-d128", "1024 H8 D128"),
    ("prefill-4096-d128", "4096 H8 D128"),

    ("causal-256", "256 H8 D64 causal"),
    ("causal-1024", "1024 H8 D64 causal"),
    ("causal-4096", "4096 H8 D64 causal"),
    ("causal-1024-d128", "1024 H8 D128 causal"),
    ("causal-4096-d128", "4096 H8 D128 causal"),
    ("gqa-causal-1024", "1024 H16/4 D128 causal"),

    # A sentence encoder's batch, then masks that say more than an interval does.
    ("encoder-128", "128 B8 H12 D32 padding"),
    ("mask-scattered-1024", "1024 H8 D64 scattered"),
    ("mask-documents-1024", "1024 H8 D64 documents"),
    ("mask-alibi-1024", "1024 H8 D64 alibi"),

    ("layout-rank3-1024", "1024 H8 D64 rank3"),
    ("layout-rank3-causal-256", "256 H16/4 D64 rank3 causal"),

    # A prompt in pieces: the queries are the last of many places.
    ("past-256x2048", "256x2048 H16/4 D128 causal past"),
    ("past-8x2048", "8x2048 H16/4 D128 causal past"),

    # A few queries: reading K and V is the cost.
    ("short-2x2048", "2x2048 H16 D128"),
    ("short-8x2048", "8x2048 H16 D128"),
    ("short-16x2048", "16x2048 H16 D128"),
    ("decode-2048", "1x2048 H16 D128"),
    ("decode-4096", "1x4096 H16 D128"),
    ("decode-32768", "1x32768 H16/4 D128"),
    ("decode-gqa-4096", "1x4096 H16/4 D128"),
    ("decode-gqa32-4096", "1x4096 H32/8 D128"),
    ("decode-batch8-2048", "1x2048 B8 H16/4 D128"),

    ("window-4096", "4096 H4 D64 causal window=256"),
)

# What attention_memory.py measures; their times belong to no comparison.
_MEMORY_ROWS: tuple[tuple[str, str], ...] = tuple(
    (f"{name}-{size}", f"{size} {words}")
    for size in (2048, 8192)
    for name, words in (
        ("prefill", "H8 D64"),
        ("causal", "H8 D64 causal"),
        ("gqa-causal", "H8/2 D64 causal"),
        ("mask-documents", "H8 D64 documents"),
        ("window", "H8 D64 causal window=256"),
    )
)
# fmt: on

# Left out of --quick: these take longer than all the others together.
_LONG = frozenset({"prefill-4096", "prefill-4096-d128", "causal-4096-d128"})


def _parse(name: str, row: str) -> AttentionCase:
    """Turn one row of the table into a case."""
    size, *words = row.split()
    queries, _, keys = size.partition("x")
    m, n = int(queries), int(keys or queries)
    numbers: dict[str, int] = {"H": 1, "D": 64, "B": 1}
    kv_heads = 0
    for word in words:
        if word[0] in numbers:
            first, _, second = word[1:].partition("/")
            numbers[word[0]] = int(first)
            kv_heads = kv_heads or int(second or 0)
    batch, heads, k = numbers["B"], numbers["H"], numbers["D"]
    kv_heads = kv_heads or heads
    past = n - m if "past" in words else 0
    rank3 = "rank3" in words

    def shape(count: int, length: int) -> Shape:
        return (batch, length, count * k) if rank3 else (batch, count, length, k)

    return AttentionCase(
        name, name.partition("-")[0], "attention", m, n, k, shape(heads, m), shape(kv_heads, n - past),
        batch=batch, dtypes=tuple(ATTENTION), priority=name not in _LONG, heads=heads, kv_heads=kv_heads,
        causal="causal" in words, past=past, rank3=rank3,
        window=next((int(word[7:]) for word in words if word.startswith("window=")), 0),
        mask=next((word for word in words if word in _MASKS), ""),
    )


CASES: tuple[AttentionCase, ...] = tuple(_parse(*row) for row in _ROWS)
MEMORY_CASES: dict[str, AttentionCase] = {name: _parse(name, row) for name, row in _MEMORY_ROWS}
_EVERY: tuple[Case, ...] = (*corpus.CASES, *CASES)
BY_NAME: dict[str, Case] = {case.name: case for case in _EVERY}
if len(BY_NAME) != len(_EVERY):
    raise ValueError("two cases share a name")


def select(patterns: Sequence[str] = (), **options: Any) -> list[Case]:
    """``corpus.select`` among all cases."""
    return corpus.select(patterns, cases=_EVERY, **options)

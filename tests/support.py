"""Helpers of the kernel tests: memory that ends where nobody may read, poisoned outputs, references and bounds.

Nothing here multiplies with a BLAS: a reference is a plain sum of products in a wider type, or in Python's integers.
"""
import ctypes
import mmap
import os
import re
from collections import Counter

import ml_dtypes  # noqa: F401  (numpy knows the narrow types by name from here on)
import numpy as np
import pytest

from gemmkit._kernels import _registry

PAGE = mmap.PAGESIZE
POISON = 0xFF  # every byte of a NaN, but in the types below
POISON_FNUZ = 0x80  # their only NaN
EDGES = ("end", "start")
FLUSHES_DENORMALS = 1  # a row's flag
WANTS_LINES = 2
SERVES_MANY = 4

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
PROT_NONE = 0


# ---- The table as parameters

def available(isa):
    return isa in _registry.usable_isas()


def wide_isas():
    """The sets that this machine can run which have rows of their own for float32."""
    own = {r["isa"] for r in _registry.rows() if r["a"] == r["b"] == "float32"}
    return [name for name in _registry.usable_isas() if name in own]


def why_not_run(isa):
    """A skip's reason, with what runs instead: emulators know the sets up to AVX2, nothing here the ones above."""
    instead = ".ci/emulate runs its kernels" if isa in ("sse2", "avx", "avx2") else "it has no emulator, only sets below it run"
    return f"not run: this processor lacks {isa}; {instead}"


def as_params(entries):
    """The entries of the table as pytest parameters; those that this machine can't run are skipped by name.

    Entries that share a function, as what they read differs only in its meaning, are told apart by that type.
    """
    entries = list(entries)
    shared = Counter(e["name"] for e in entries)
    return [pytest.param(e, id=e["name"] if shared[e["name"]] == 1 else f"{e['name']}-{e.get('a', e.get('from'))}",
                         marks=() if available(e["isa"]) else pytest.mark.skip(why_not_run(e["isa"])))
            for e in entries]


def row_params(*roles, where=lambda row: True, integers=False):
    """The rows whose sums are floats, or those whose sums are integers; None: all."""
    return as_params(r for r in _registry.rows() if (not roles or r["role"] in roles) and where(r)
                     and integers in (None, sums_integers(r)))


def sums_integers(row):
    return row["acc"].startswith("int")


def is_narrow(row):
    """Whether a row widens an operand."""
    return not row["a"] == row["b"] == row["acc"]


def flushes(row):
    return bool(row["flags"] & FLUSHES_DENORMALS)


# ---- Memory

class GuardedBuffer:
    """At least `capacity` bytes between two pages that can't be touched: a read or write past either end crashes."""

    def __init__(self, capacity):
        self.capacity = max(1, -(-capacity // PAGE)) * PAGE
        self.map = mmap.mmap(-1, self.capacity + 2 * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        for page in (base, base + PAGE + self.capacity):
            if LIBC.mprotect(page, PAGE, PROT_NONE):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def raw(self):
        """The accessible bytes."""
        return np.frombuffer(self.map, np.uint8, self.capacity, PAGE)

    def place(self, values, strides=None, edge="end"):
        """A copy of `values` with `strides` whose last byte (edge "end") or first byte ("start") borders a guard.

        All bytes that are not the array's are poisoned.  Zero strides keep one of the repeated values.
        """
        values = np.asarray(values)
        if strides is None:
            strides = contiguous_strides(values.shape, values.itemsize)
        below, above = extent(values.shape, strides, values.itemsize)
        size = above - below
        if size > self.capacity:
            raise ValueError(f"{size} bytes are more than the buffer's {self.capacity}")
        first = PAGE + (self.capacity - size if edge == "end" else 0)
        self.raw()[:] = poison(values.dtype)
        view = np.ndarray(values.shape, values.dtype, self.map, first - below, strides)
        view[...] = values
        return view


def poison(dtype):
    return POISON_FNUZ if np.dtype(dtype).name.endswith("fnuz") else POISON


def contiguous_strides(shape, item):
    strides = []
    for length in reversed(shape):
        strides.insert(0, item)
        item *= length
    return tuple(strides)


def extent(shape, strides, item):
    """Lowest byte and end of an array, relative to its first element."""
    if 0 in shape:
        return 0, 0
    reach = [(length - 1) * stride for length, stride in zip(shape, strides)]
    return sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + item


def guarded(values, strides=None, edge="end"):
    """A copy of `values` in a buffer of its own, one end of which borders a page that can't be touched."""
    values = np.asarray(values)
    strides = contiguous_strides(values.shape, values.itemsize) if strides is None else strides
    below, above = extent(values.shape, strides, values.itemsize)
    return GuardedBuffer(above - below).place(values, strides, edge)


class PoisonedOutput:
    """A matrix `c` full of NaN in the middle of bytes that must keep their value, or against a guard page."""

    def __init__(self, m, n, dtype, margin, edge):
        dtype = np.dtype(dtype)
        before, after = (0 if edge == "start" else margin), (0 if edge == "end" else margin)
        shape = (before + m + after, before + n + after)
        if edge is None:
            whole = np.empty(shape, dtype)
            whole.view(np.uint8)[...] = POISON
        else:
            whole = guarded(np.zeros(shape, dtype), edge=edge)
            whole.view(np.uint8)[...] = POISON
        self.bits = whole.view(f"u{dtype.itemsize}")
        self.window = (slice(before, before + m), slice(before, before + n))
        self.c = whole[self.window]

    def check_margin(self):
        around = self.bits.copy()
        around[self.window] = np.iinfo(around.dtype).max
        assert (around == np.iinfo(around.dtype).max).all(), "a byte outside the output was written"


def poisoned_output(m, n, dtype, margin=3, edge=None):
    """See PoisonedOutput; with edge "end" or "start", `c` ends or begins at a page that can't be touched."""
    return PoisonedOutput(m, n, dtype, margin, edge)


# ---- Values

def small_integers(rng, shape, dtype):
    """Integers so small that they are exact in every type, and every sum of their products in float32."""
    return rng.integers(-4, 5, shape).astype(dtype)


def random_values(rng, shape, dtype):
    return rng.uniform(-1, 1, shape).astype(dtype)


def random_bits(rng, shape, dtype):
    """Any bit patterns, NaNs of every kind included: for code that only moves elements.  Of bools any bytes, half of them 0."""
    dtype = np.dtype(dtype)
    if dtype == bool:
        return (rng.integers(0, 256, shape, np.uint8) * rng.integers(0, 2, shape, np.uint8)).view(bool)
    return rng.integers(0, np.iinfo(f"u{dtype.itemsize}").max, shape, f"u{dtype.itemsize}", endpoint=True).view(dtype)


def same_bits(x, y):
    return x.shape == y.shape and x.dtype == y.dtype and x.tobytes() == y.tobytes()


def bits_of(x):
    x = np.ascontiguousarray(x)
    return x.view(f"u{x.dtype.itemsize}")


def is_nan(x):
    """Of any type; of a narrow one by numpy's or ml_dtypes' word."""
    return np.isnan(x) if x.dtype.kind == "f" else np.isnan(x.astype(np.float32))


def check_values(got, want, zeros_have_signs=True):
    """The same bits, element by element; one NaN is as good as another, and so perhaps are both zeros."""
    assert got.dtype == want.dtype and got.shape == want.shape
    same = (bits_of(got) == bits_of(want)) | (is_nan(got) & is_nan(want))
    if not zeros_have_signs:
        same |= (got == 0) & (want == 0)
    assert same.all(), f"{(~same).sum()} wrong, first {got[~same][0]!r} for {want[~same][0]!r} at {np.argwhere(~same)[0]}"


# ---- References

def accumulator(*operands):
    """The type that a product of these is summed in."""
    return np.float64 if np.float64 in [x.dtype for x in operands] else np.float32


def wider(dtype):
    return np.longdouble if np.dtype(dtype) == np.float64 else np.float64


def product(a, b):
    """a @ b as a plain sum of products (einsum without a contraction path calls no BLAS)."""
    return np.einsum("ik,kj->ij", a, b, optimize=False)


def integer_product(a, b):
    """The exact product of integer-valued matrices."""
    return product(a.astype(np.int64), b.astype(np.int64))


def reference(a, b, add=None):
    """add + a @ b in a wider type than they are summed in."""
    wide = wider(accumulator(a, b))
    out = product(a.astype(wide), b.astype(wide))
    return out if add is None else out + add.astype(wide)


def bound(a, b, add=None, extra=8):
    """(K + extra) u (|a| |b| + |add|): what rounding can do to add + a @ b in any order of summation."""
    acc = accumulator(a, b)
    u = np.finfo(acc).eps / 2 + np.finfo(wider(acc)).eps / 2  # the kernel's roundings and the reference's
    wide = [None if x is None else abs(x.astype(wider(acc))) for x in (a, b, add)]
    size = product(*wide[:2]) + (0 if add is None else wide[2])
    return (a.shape[1] + extra) * u * size


def check_close(c, a, b, add=None):
    error = abs(c.astype(wider(c.dtype)) - reference(a, b, add))
    assert (error <= bound(a, b, add)).all(), f"largest error {error.max()}"


# ---- Machine code

def disassemble(path):
    """Yield (function, mnemonic, operands) for each instruction of a library; needs binutils' objdump."""
    import shutil
    import subprocess

    objdump = shutil.which("objdump")
    if objdump is None:
        pytest.fail("objdump is needed to inspect the built kernels: install binutils")
    listing = subprocess.run([objdump, "-d", "--no-show-raw-insn", path], check=True, capture_output=True, text=True)
    function = None
    for line in listing.stdout.splitlines():
        if line.endswith(">:"):
            # gcc's clones and cold halves belong to the function that they were made from.
            function = re.sub(r"\.(constprop|isra|part|cold|lto_priv).*", "", line[line.index("<") + 1:-2])
        elif line.startswith(" ") and "\t" in line:
            mnemonic, _, operands = line.split("\t", 1)[1].partition(" ")
            yield function, mnemonic.strip(), operands.strip()

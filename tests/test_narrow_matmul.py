"""Half precision and float8 through matmul: shapes, types of results, memory layouts, operands of every kind, out.

Sums of the integers used here are exact in float32, so a result has one right value: theirs, rounded once.
"""
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from narrow import (
    BF16,
    E4M3FN,
    E5M2FNUZ,
    F16,
    F32,
    F64,
    NARROW,
    SHAPES,
    SINGLE,
    by_pair,
    by_type,
    cast,
    check,
    check_close,
    decoded,
    exact,
    full,
    integers,
    layouts,
    name,
    random_values,
    result_type,
    rounded,
    same_values,
    some_integers,
    turned,
)
from test_large import FAR, place, sparse

import gemmkit

# ---- Shapes and types of results

@by_pair
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes_follow_numpy(shapes, pair):
    a, b = some_integers(0, (shapes[0], pair[0]), (shapes[1], pair[1]))
    value = exact(a, b)
    got = gemmkit.matmul(a, b)
    assert got.shape == np.matmul(np.zeros(shapes[0]), np.zeros(shapes[1])).shape
    check(got, value, result_type(*pair))
    for out_dtype in SINGLE:
        check(gemmkit.matmul(a, b, out_dtype=out_dtype), value, out_dtype)
        out = full(got.shape, 7, out_dtype)
        assert gemmkit.matmul(a, b, out=out) is out
        check(out, value, out_dtype)
        check(gemmkit.matmul(a, b, out=out, out_dtype=out_dtype), value, out_dtype)


@pytest.mark.parametrize("other", (*SINGLE, F64), ids=name)
@pytest.mark.parametrize("dtype", (*SINGLE, F64), ids=name)
def test_a_result_has_one_type_whatever_its_rank_and_size(dtype, other):
    """Two halves of a kind stay so, float64 wins, all else is float32: vectors, stacks and empty results alike."""
    want = result_type(dtype, other)
    for a, b in (((4, 4), (4, 4)), ((4,), (4, 4)), ((4, 4), (4,)), ((2, 4, 4), (4, 4)), ((0, 4), (4, 4)),
                 ((4, 0), (0, 4)), ((100, 70), (70, 90)), ((1, 4), (4, 1))):
        got = gemmkit.matmul(full(a, 1, dtype), full(b, 1, other))
        assert type(got) is np.ndarray and got.dtype == want
        assert got.flags.c_contiguous and got.flags.owndata and got.flags.writeable
        if len(a) == len(b) == 2:
            assert gemmkit.gemm(full(a, 1, dtype), full(b, 1, other)).dtype == want
    for k in (4, 0, 300):
        for out_dtype in (None, *(SINGLE if want != F64 else (F64,))):
            scalar = gemmkit.matmul(full(k, 1, dtype), full(k, 1, other), out_dtype=out_dtype)
            assert type(scalar) is (out_dtype or want)
            check(scalar, np.float64(k), out_dtype or want)


@by_type
def test_types_may_be_given_in_every_way(dtype):
    a, b = some_integers(1, ((4, 3), dtype), ((3, 5), dtype))
    for way in (dtype, np.dtype(dtype), name(dtype)):
        check(gemmkit.matmul(a, b, out_dtype=way), exact(a, b), dtype)
        check(gemmkit.gemm(a, b, out_dtype=way), exact(a, b), dtype)
        for plan in (gemmkit.GemmPlan(4, 5, 3, way, out_dtype=way, b_dtype=way),
                     gemmkit.MatMulPlan((4, 3), (3, 5), way, out_dtype=way, b_dtype=way)):
            assert (plan.dtype, plan.b_dtype, plan.out_dtype) == (np.dtype(dtype),) * 3
            check(plan(a, b), exact(a, b), dtype)


@pytest.mark.parametrize("dtype", NARROW, ids=name)
def test_float64_beside_a_narrow_type_stays_float64(dtype, isa):
    """Nothing is rounded to float32 on the way: not the operand, not the sum."""
    rng = np.random.default_rng(2)
    for m, n, k in ((17, 20, 30), (1, 70, 130), (70, 1, 130), (1, 1, 1000)):
        a, b = random_values(rng, (m, k), dtype), random_values(rng, (k, n), F64)
        check_close(gemmkit.matmul(a, b), a, b, F64)
        check_close(gemmkit.matmul(b.T, a.T), b.T, a.T, F64)
        check_close(gemmkit.matmul(a, b, out_dtype=F64), a, b, F64)
        c = random_values(rng, (m, n), dtype)
        check_close(gemmkit.gemm(a, b, c), a, b, F64, add=decoded(c, F64))
        narrow = random_values(rng, (k, n), dtype)
        wide_c = random_values(rng, (m, n), F64)
        check_close(gemmkit.gemm(a, narrow, wide_c), a, narrow, F64, add=wide_c)


# ---- Memory layouts

@by_pair
@pytest.mark.parametrize("shape", [(21, 19, 18), (1, 30, 70), (70, 33, 1), (2, 40, 3), (130, 5, 100)], ids=str)
def test_every_pair_of_layouts(shape, pair, isa):
    m, k, n = shape
    a, b = some_integers(3, ((m, k), pair[0]), ((k, n), pair[1]))
    dtype = result_type(*pair)
    want, row, column = (rounded(exact(*x), dtype) for x in ((a, b), (a[-1], b), (a, b[:, n // 2])))
    for (left, x), (right, y) in itertools.product(layouts(a).items(), layouts(b).items()):
        assert same_values(gemmkit.matmul(x, y), want), (left, right)
        if "gaps" not in left or "gaps" not in right:
            assert same_values(gemmkit.matmul(x[-1], y), row), (left, right)
            assert same_values(gemmkit.matmul(x, y[:, n // 2]), column), (left, right)


@by_pair
def test_repeated_rows_columns_and_matrices(pair):
    one, row, column, matrix = some_integers(4, *[(shape, pair[0]) for shape in ((1, 1), (1, 19), (21, 1), (21, 19))])
    b, = some_integers(5, ((19, 18), pair[1]))
    for a in (np.broadcast_to(one, (21, 19)), np.broadcast_to(row, (21, 19)), np.broadcast_to(column, (21, 19)),
              np.broadcast_to(matrix, (4, 21, 19)), np.broadcast_to(row, (3, 2, 40, 19))):
        check(gemmkit.matmul(a, b), exact(a, b), result_type(*pair))
        check(gemmkit.matmul(b.T, a.swapaxes(-1, -2)), exact(b.T, a.swapaxes(-1, -2)), result_type(*pair))


@by_pair
@pytest.mark.parametrize("inner", [(5, 7, 9), (1, 7, 40), (9, 30, 1), (40, 33, 70)], ids=str)
def test_batch_axes_of_any_order_and_step(inner, pair):
    m, k, n = inner
    a, b = some_integers(6, ((3, 2, 4, m, k), pair[0]), ((3, 2, 4, k, n), pair[1]))
    stacks = (lambda x: x, lambda x: np.repeat(x, 2, 0)[::-2], lambda x: x[:, ::-1, 1:3], lambda x: x[:, :1],
              lambda x: x[0, 0, :1], lambda x: np.moveaxis(np.moveaxis(x, 3, 0).copy(), 0, 3))
    for left, right in itertools.product(stacks, stacks):
        x, y = left(a), right(b)
        try:
            np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        except ValueError:
            continue
        check(gemmkit.matmul(x, y), exact(x, y), result_type(*pair))


@pytest.mark.parametrize("pair", [(F16, F16), (BF16, BF16), (E4M3FN, E4M3FN), (E5M2FNUZ, BF16)], ids=name)
def test_rows_columns_and_results_far_apart(pair):
    """Offsets past 2^32 bytes, in operands of one and two bytes an element."""
    a, b = some_integers(7, ((3, 5), pair[0]), ((5, 4), pair[1]))
    far_rows, far_columns = place(a, (FAR, a.itemsize)), place(b, (b.itemsize, FAR))
    for out_dtype in (result_type(*pair), *pair):
        out = sparse((3, 4), (FAR, np.dtype(out_dtype).itemsize), out_dtype)
        check(gemmkit.matmul(far_rows, far_columns, out=out), exact(a, b), out_dtype)
        check(gemmkit.matmul(a, far_columns, out_dtype=out_dtype), exact(a, b), out_dtype)
        check(gemmkit.matmul(far_rows, b, out_dtype=out_dtype), exact(a, b), out_dtype)


# ---- What an operand may be

@by_type
def test_record_fields_and_foreign_byte_order(dtype):
    """Unaligned elements whose strides are no multiple of their size; float16 also byte by byte turned round."""
    a, b, c = some_integers(8, ((6, 9), dtype), ((9, 7), dtype), ((6, 7), dtype))
    records = [np.dtype([("tag", "S1"), ("x", dtype)]), np.dtype([("x", dtype), ("y", dtype)])]
    if dtype == F16:
        records += [np.dtype([("x", ">f2")]), np.dtype([("tag", "S1"), ("x", ">f2")])]
    native = result_type(dtype, dtype)
    for record in records:
        left, right, bias, out = (np.zeros(shape, record) for shape in ((6, 9), (9, 7), (6, 7), (6, 7)))
        left["x"], right["x"], bias["x"] = a, b, c
        check(gemmkit.matmul(left["x"], right["x"]), exact(a, b), native)
        check(gemmkit.matmul(left["x"], b), exact(a, b), native)
        check(gemmkit.matmul(a, right["x"][:, 2]), exact(a, b[:, 2]), native)
        check(gemmkit.gemm(a, b, bias["x"]), exact(a, b) + decoded(c, F64), native)
        for plan, given in ((gemmkit.GemmPlan(6, 7, 9, dtype), (b,)),
                            (gemmkit.GemmPlan(6, 7, 9, dtype, b=right["x"]), ())):
            check(plan(left["x"], *given), exact(a, b), native)
        assert gemmkit.matmul(a, right["x"], out=out["x"]).base is out
        np.testing.assert_array_equal(decoded(out["x"]), decoded(rounded(exact(a, b), dtype)))
        if "tag" in record.names:
            assert (out["tag"] == b"").all()


@by_type
def test_read_only_and_mapped_operands(dtype, tmp_path):
    a, b, c = some_integers(9, ((5, 6), dtype), ((6, 7), dtype), ((7,), dtype))
    mapped = []
    for label, x in zip("abc", (a, b, c)):
        x.tofile(tmp_path / label)
        x.flags.writeable = False
        mapped.append(np.memmap(tmp_path / label, dtype, "r", shape=x.shape))
    for x, y, z in ((a, b, c), mapped):
        got = gemmkit.matmul(x, y)
        assert type(got) is np.ndarray
        check(got, exact(a, b), result_type(dtype, dtype))
        check(gemmkit.gemm(x, y, z), exact(a, b) + decoded(c, F64), result_type(dtype, dtype))
        check(gemmkit.GemmPlan(5, 7, 6, dtype, b=y)(x, c=z), exact(a, b) + decoded(c, F64), result_type(dtype, dtype))


# ---- out

def windows(shape, dtype):
    """(buffer, out) pairs: views of a shape within a buffer full of 7, in any axis order, direction and step."""
    for order in itertools.permutations(range(len(shape))):
        for steps in itertools.product((1, 2, -1, -2), repeat=len(shape)):
            buffer = full([2 * shape[axis] + 3 for axis in order], 7, dtype)
            index = tuple(slice(1, 1 + size * step, step) if step > 0 else slice(size * -step, 0, step)
                          for size, step in zip(shape, steps))
            yield buffer, buffer.transpose(np.argsort(order))[index]


@pytest.mark.parametrize("shapes", [((4, 3), (3, 5)), ((3, 1, 40), (40, 70)), ((30,), (30, 70)), ((70, 30), (30,)),
                                    ((2, 70, 33), (33, 1)), ((70, 40), (40, 100)), ((5, 0), (0, 4)),
                                    ((3, 1500), (1500, 20))],
                         ids=str)
@by_type
def test_out_is_filled_and_nothing_around_it(shapes, dtype):
    for operand in (dtype, F32):
        a, b = some_integers(10, (shapes[0], operand), (shapes[1], operand))
        want = rounded(exact(a, b), dtype)
        for buffer, out in windows(want.shape, dtype):
            assert gemmkit.matmul(a, b, out=out) is out
            assert same_values(out, want)
            out[...] = cast(7.0, dtype)
            assert (decoded(buffer) == 7).all()


@pytest.mark.parametrize("n", [6, 70])
@by_pair
def test_out_may_overlap_its_operands(n, pair):
    """Also where an element of out covers several of an operand, or half of one."""
    a, b = some_integers(11, ((n, n), pair[0]), ((n, n), pair[1]))
    value = exact(a, b)
    for view in (lambda x: x, lambda x: x.T, lambda x: x[::-1], lambda x: x[:, ::-1].T):
        for own in range(2):
            operands = [a.copy(), b.copy()]
            out = view(operands[own])
            check(gemmkit.matmul(*operands, out=out), value, pair[own])
    for out_dtype in SINGLE:
        for shift in (0, 1, n, n * n):
            memory = np.zeros(8 * n * n + 64, np.uint8)
            left = memory[8 * shift % 64:][:a.nbytes].view(pair[0]).reshape(n, n)
            left[...] = a
            start = shift * np.dtype(out_dtype).itemsize
            out = memory[start:start + n * n * np.dtype(out_dtype).itemsize].view(out_dtype).reshape(n, n)
            check(gemmkit.matmul(left, b, out=out), value, out_dtype)
            left[...] = a
            check(gemmkit.gemm(b.T, left, out=out, trans_b=True), exact(b.T, a.T), out_dtype)
    stack = np.concatenate([a, a[::-1]]).reshape(2, n, n)
    value = exact(stack, stack[::-1])
    check(gemmkit.matmul(stack, stack[::-1], out=stack), value, pair[0])


@by_type
def test_out_may_be_c(dtype):
    for m, n, k in ((6, 6, 6), (70, 50, 40), (1, 40, 9), (40, 1, 9)):
        a, b, c = some_integers(12, ((m, k), dtype), ((k, n), dtype), ((m, n), dtype))
        value = exact(a, b) - 2 * decoded(c, F64)
        check(gemmkit.gemm(a, b, c, beta=-2.0, out=c), value, dtype)
        memory = some_integers(13, ((m + 1, n + 1), dtype))[0]
        window, out = memory[1:, 1:], memory[:m, :n]
        value = exact(a, b) + 2 * decoded(window, F64)
        check(gemmkit.gemm(a, b, window, beta=2.0, out=out), value, dtype)


# ---- Anything that a shape and strides can be

@st.composite
def operand(draw, shape, dtype, seed):
    """Random values of a shape, in memory of any axis order, with gaps, backwards or repeated."""
    values = random_values(np.random.default_rng(seed), shape, dtype)
    steps = [draw(st.sampled_from((1, 1, 1, -1, 2, -3, 0))) for _ in shape]
    for axis, step in enumerate(steps):
        if step == 0 and shape[axis] > 1:
            values = np.broadcast_to(values.take([0], axis), shape)
    order = draw(st.permutations(range(len(shape))))
    lengths = [1 if steps[axis] == 0 else shape[axis] * abs(steps[axis]) for axis in order]
    view = full(lengths, np.nan, dtype).transpose(np.argsort(order))
    view = np.broadcast_to(view[tuple(slice(None, None, step or 1) for step in steps)], shape)
    view.flags.writeable = True
    view[...] = values
    return view


SIDES = st.one_of(st.integers(0, 9), st.integers(0, 70), st.sampled_from((1, 4, 8, 16, 48, 96, 97, 130)))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), m=SIDES, n=SIDES, k=SIDES, dtypes=st.tuples(*[st.sampled_from(SINGLE)] * 3),
       seed=st.integers(0, 2 ** 16),
       batch=st.sampled_from(((), (2,), (3, 1))))
def test_any_operands(isa, data, m, n, k, dtypes, seed, batch):
    a_shape = data.draw(st.sampled_from(((*batch, m, k), (k,))))
    b_shape = data.draw(st.sampled_from(((k, n), (2, k, n), (k,))))
    a, b = data.draw(operand(a_shape, dtypes[0], seed)), data.draw(operand(b_shape, dtypes[1], seed + 1))
    check_close(gemmkit.matmul(a, b), a, b, result_type(*dtypes[:2]))
    out = data.draw(operand(exact(a, b).shape, dtypes[2], seed + 2))
    if 0 not in [stride for stride, length in zip(out.strides, out.shape) if length > 1]:
        gemmkit.matmul(a, b, out=out)
        check_close(out, a, b, dtypes[2])

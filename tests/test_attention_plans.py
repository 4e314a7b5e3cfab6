"""attention's outputs and memory; threads; descriptors and plans; every path with every instruction set."""
import itertools
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import support
from attention_oracle import (
    OUTPUTS,
    TYPES,
    attend,
    backwards,
    check_call,
    check_output,
    check_outputs,
    check_problem,
    gaps,
    heads_last,
    memories,
    normal,
    paths_for,
    plan_for,
    problem,
    qkv,
    some,
    turned,
)
from integers import windows
from narrow import BF16, F16, F32, F64, cast, full, name

import gemmkit

by_type = pytest.mark.parametrize("dtype", TYPES, ids=name)
PATHS = ("streaming", "materialized", "decode")


# ---- Outputs

def test_outputs_come_in_the_order_asked_for():
    q, k, v = qkv(30, F32, 2, 4, 2, 3, 5, 6)
    past = some(31, F32, (2, 2, 4, 6), (2, 2, 4, 6))
    answer = attend(q, k, v, None, *past)
    for count in range(1, 5):
        for outputs in itertools.permutations(OUTPUTS, count):
            got = gemmkit.attention(q, k, v, None, *past, outputs=outputs)
            check_outputs(got, answer, outputs)
            check_outputs(plan_for(q, k, v, None, *past, outputs=outputs)(q, k, v, None, *past), answer, outputs)
    assert isinstance(gemmkit.attention(q, k, v), np.ndarray)
    check_outputs(gemmkit.attention(q, k, v, outputs=["present_key", "y"]), attend(q, k, v), ("present_key", "y"))


@by_type
def test_present_is_past_and_new_bit_for_bit(dtype):
    rng = np.random.default_rng(32)
    for past, keys, memory in itertools.product((None, 0, 3, 130), (0, 1, 5), (np.ascontiguousarray, gaps, backwards)):
        q = normal(rng, (2, 4, 3, 6), dtype)
        k, v = (memory(support.random_bits(rng, (2, 2, keys, n), dtype)) for n in (6, 5))
        given = [] if past is None else [memory(support.random_bits(rng, (2, 2, past, n), dtype)) for n in (6, 5)]
        got = gemmkit.attention(q, k, v, None, *given, outputs=("present_value", "present_key"))
        answer = attend(q, k, v, None, *given)
        check_outputs(got, answer, ("present_value", "present_key"))
        got = gemmkit.attention(*map(heads_last, (q, k, v)), None, *given, q_num_heads=4, kv_num_heads=2,
                                outputs=("y", "present_key", "present_value"))
        for output in ("present_key", "present_value"):
            check_output(getattr(got, output), answer, output)
            assert not any(np.may_share_memory(getattr(got, output), x) for x in (k, v, *given))


@by_type
@pytest.mark.parametrize("mode", range(4))
def test_the_four_stages(mode, dtype):
    """0 raw, 1 capped, 2 with its biases, 3 weights; masked keys show scores in the first two."""
    both = ("y", "qk_matmul_output")
    for sizes, mask in itertools.product(((1, 2, 1, 3, 9, 8, 8), (2, 4, 2, 35, 150, 8, 5)), (None, "bool", "number")):
        for options in ({}, {"softcap": 1.5}, {"is_causal": True, "softcap": 2.0, "scale": 0.7}, {"past": 4, "is_causal": True},
                        {"nonpad": (7, 2)[:sizes[0]], "left_window_size": 3}):
            check_problem(dtype, sizes, mask=mask, qk_matmul_output_mode=mode, outputs=both, **options)
    q, k, v = qkv(33, dtype, 1, 1, 1, 2, 3, 4)
    _, stage = check_call(q, k, v, np.array([[True, True, False], [False] * 3]), outputs=both, qk_matmul_output_mode=mode)
    assert (np.isfinite(stage[0, 0, 1].astype(F32)).all(), (stage[0, 0, 1] == 0).all()) == (mode != 2, mode == 3)


@by_type
def test_out_is_filled_and_nothing_around_it(dtype):
    q, k, v = qkv(34, dtype, 2, 2, 1, 3, 20, 4, 5)
    answer = attend(q, k, v)
    for buffer, out in windows(answer.y.shape, dtype):
        assert gemmkit.attention(q, k, v, out=out) is out
        check_output(np.array(out), answer)
        out[...] = 7
        assert (buffer == 7).all()
    flat = heads_last(q), heads_last(k), heads_last(v)
    for buffer, out in windows((2, 3, 10), dtype):
        got = gemmkit.attention(*flat, q_num_heads=2, kv_num_heads=1, out=out, outputs=("present_key", "y"))
        assert got.y is out
        check_output(np.array(out), attend(*flat, q_num_heads=2, kv_num_heads=1))
        out[...] = 7
        assert (buffer == 7).all()


@by_type
@pytest.mark.parametrize("length", [6, 150])
def test_out_may_overlap_what_is_read(length, dtype):
    """All inputs and Y have one shape, so each may be where Y goes, shifted or turned over."""
    shape = (1, 2, length, length)
    arrays = some(35, dtype, *[shape] * 3, (1, 2, length, 2 * length), *[shape] * 2)
    answer = attend(*arrays)
    for index, x in enumerate(arrays):
        for shift in (0, 1, x.size // 2, x.size - 1):
            memory = full((2 * x.size,), 0, dtype)
            memory[:x.size] = x.ravel()
            given = [y if i != index else memory[:x.size].reshape(x.shape) for i, y in enumerate(arrays)]
            out = memory[shift:shift + answer.y.size].reshape(shape)
            for place in (out, out[:, ::-1, ::-1, ::-1], out.swapaxes(2, 3)):
                memory[:x.size] = x.ravel()
                got = gemmkit.attention(*given, out=place, outputs=("y", "present_key", "present_value"))
                check_output(np.array(place), answer)
                check_outputs(got._replace(y=np.array(got.y)), answer, ("y", "present_key", "present_value"))


@by_type
def test_inputs_in_any_memory(dtype):
    arrays = dict(zip(("q", "k", "v", "past_key", "past_value"),
                      some(36, dtype, (2, 4, 5, 6), (2, 2, 7, 6), (2, 2, 7, 3), (2, 2, 4, 6), (2, 2, 4, 3))))
    for given, flat in ((dict(list(arrays.items())[:3]), False), (arrays, False), (arrays, True)):
        heads = {"q_num_heads": 4, "kv_num_heads": 2} if flat else {}
        given = {n: heads_last(x) if flat and n in "qkv" else x for n, x in given.items()}
        answer = attend(**given, is_causal=True, **heads)
        for n, x in given.items():
            for form in memories(x).values():
                before = form.tobytes()
                got = gemmkit.attention(**given | {n: form}, is_causal=True, **heads)
                check_output(got, answer)
                assert form.tobytes() == before
        for form in memories(arrays["q"]):
            every = {n: memories(x).get(form, x) for n, x in given.items()}
            check_output(gemmkit.attention(**every, is_causal=True, **heads), answer)


@by_type
def test_inputs_that_repeat_themselves(dtype):
    q, k, v = qkv(37, dtype, 2, 3, 3, 5, 140, 6)
    for axis in range(4):
        first = tuple(slice(1) if d == axis else slice(None) for d in range(4))
        x, y, z = (np.broadcast_to(a[first], a.shape) for a in (q, k, v))
        for given in ((x, k, v), (q, y, v), (q, k, z), (x, y, z)):
            check_call(*given, is_causal=True)


def test_lists_are_float64():
    q, k, v = qkv(38, F64, 1, 2, 1, 3, 4, 2)
    y = gemmkit.attention(q.tolist(), k.tolist(), v.tolist(), [[True, False, True, True]] * 3, nonpad_kv_seqlen=[3])
    assert y.dtype == F64
    check_output(y, attend(q, k, v, np.array([True, False, True, True]), nonpad_kv_seqlen=np.array([3])))


@by_type
@pytest.mark.parametrize("edge", support.EDGES)
def test_nothing_around_the_operands_is_touched(edge, dtype, isa, guarded):
    for queries, keys, size in ((1, 5, 3), (3, 129, 7), (18, 33, 17)):
        given, answer = problem(dtype, (1, 2, 1, queries, keys, size, size + 2), mask="number", past=3)
        arrays = {n: guarded(x, edge=edge) for n, x in given.items()}
        out = guarded(np.zeros(answer.y.shape, dtype), edge=edge)
        gemmkit.attention(**arrays, out=out)
        check_output(np.array(out), answer)


# ---- Threads

# batch, query heads, key heads, queries, keys, size, size of V: few and many heads, few queries of long keys
THREAD_SIZES = [(1, 1, 1, 1, 5003, 64, 64), (1, 4, 1, 3, 4099, 32, 33), (2, 8, 2, 130, 257, 32, 40), (1, 2, 2, 300, 700, 64, 64),
                (5, 7, 7, 33, 65, 16, 16), (1, 1, 1, 513, 513, 24, 24), (3, 12, 4, 1, 600, 64, 64), (1, 1, 1, 20, 9001, 8, 8)]


@by_type
@pytest.mark.parametrize("sizes", THREAD_SIZES, ids=str)
def test_any_number_of_threads_gives_the_same_bits(sizes, dtype):
    batch, heads, _, queries, keys, _, _ = sizes
    rng = np.random.default_rng(1)
    q, k, v = qkv(rng, dtype, *sizes)
    mask = rng.random((heads, queries, keys)) < 0.7
    calls = [{}, {"is_causal": True}, {"attn_mask": mask, "left_window_size": keys // 2},
             {"nonpad_kv_seqlen": rng.integers(0, keys + 1, batch), "is_causal": True}]
    if queries * keys < 100_000:
        calls.append({"outputs": ("y", "qk_matmul_output"), "qk_matmul_output_mode": 3})
    for options in calls:
        results = []
        for count in (1, 2, 3, 5):
            with gemmkit.threads(count):
                got = gemmkit.attention(q, k, v, **options)
            results.append(got if isinstance(got, tuple) else (got,))
        for got in results[1:]:
            assert all(support.same_bits(x, y) for x, y in zip(got, results[0], strict=True)), options
    check_output(gemmkit.attention(q, k, v), attend(q, k, v))


def test_large_calls_use_threads():
    with gemmkit.threads(3):
        for sizes in ((1, 1, 1, 2000, 2000, 64), (1, 64, 64, 100, 500, 64), (1, 1, 1, 1, 200_000, 128)):
            batch, heads, kv_heads, queries, keys, size = sizes
            shapes = (batch, heads, queries, size), (batch, kv_heads, keys, size), (batch, kv_heads, keys, size)
            assert gemmkit.AttentionPlan(gemmkit.AttentionDescriptor(), *shapes, F32).num_threads == 3
        assert gemmkit.AttentionPlan(gemmkit.AttentionDescriptor(), *[(1, 1, 2, 2)] * 3, F32).num_threads == 1


# ---- Memory that a call needs

LIMIT = 24 << 20  # all scores of 8192 queries and keys are 256 MiB

PEAK = """
    import ml_dtypes, numpy as np, gemmkit  # numpy knows bfloat16 by name from ml_dtypes

    def status(key):
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))

    def filled(shape, dtype):
        x = np.empty(shape, dtype)
        x[...] = 1
        return x

    dtype, length, size = np.dtype({dtype!r}), {length}, {size}
    q, k, v, out = (filled((1, 1, length, size), dtype) for _ in range(4))
    options = {options}
    with gemmkit.threads(2):
        warm = q[:, :, :64].copy()
        gemmkit.attention(warm, warm, warm)  # what is loaded and started once
        try:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")  # the peak begins again from here
        except OSError:
            pass  # it then counts what importing took too, which is little
        before = status("VmRSS")
        gemmkit.attention(q, k, v, out=out, **options)
        after = status("VmHWM")
    assert (out == 1).all()
    print(after - before)
"""


@pytest.mark.parametrize("dtype,options", [
    (F32, ""), (BF16, "is_causal=True"), (F16, "left_window_size=700"),
    (F32, "attn_mask=np.broadcast_to(np.arange(length) % 3 > 0, (length, length))"),
    (F32, "attn_mask=np.broadcast_to(np.zeros(length, np.float16), (length, length)), nonpad_kv_seqlen=[length - 5]")],
    ids=["all keys", "causal", "window", "bool mask", "number mask"])
def test_nothing_of_the_size_of_all_scores_is_made(dtype, options):
    """Measured by the system in a new process: what a call holds at its peak beside its inputs and its output."""
    script = textwrap.dedent(PEAK).format(dtype=name(dtype), length=8192, size=64, options=f"dict({options})")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < LIMIT, f"{int(done.stdout) / 2 ** 20:.1f} MiB"


@by_type
def test_the_workspace_does_not_grow_with_scores(dtype):
    def workspace(queries, keys):
        shapes = (1, 1, queries, 64), (1, 1, keys, 64), (1, 1, keys, 64)
        return gemmkit.AttentionPlan(gemmkit.AttentionDescriptor(), *shapes, dtype).workspace_bytes

    with gemmkit.threads(2):
        assert 0 < workspace(8192, 8192) < LIMIT
        assert workspace(32768, 32768) < LIMIT
        assert workspace(1, 1 << 20) < LIMIT


# ---- Descriptors and plans

ATTRIBUTES = {"scale": 0.25, "is_causal": True, "softcap": 2.0, "q_num_heads": 4, "kv_num_heads": 2, "qk_matmul_output_mode": 3,
              "softmax_precision": np.float32, "left_window_size": 5, "right_window_size": 0}


def test_a_descriptor_tells_what_it_was_made_of():
    plain = gemmkit.AttentionDescriptor()
    assert (plain.inputs, plain.outputs) == (("q", "k", "v"), ("y",))
    assert [getattr(plain, n) for n in ATTRIBUTES] == [None, False, 0.0, None, None, 0, None, -1, -1]
    inputs = ("q", "k", "v", "attn_mask", "past_key", "past_value")
    every = gemmkit.AttentionDescriptor(inputs, OUTPUTS, **ATTRIBUTES)
    assert (every.inputs, every.outputs) == (inputs, OUTPUTS)
    for n, x in ATTRIBUTES.items():
        assert getattr(every, n) == x
        with pytest.raises(AttributeError):
            setattr(every, n, x)
    with pytest.raises(AttributeError):
        plain.inputs = inputs
    assert gemmkit.AttentionDescriptor(["q", "k", "v"], ["y"]).inputs == ("q", "k", "v")


def test_what_a_plan_tells():
    descriptor = gemmkit.AttentionDescriptor(("q", "k", "v", "attn_mask", "past_key", "past_value"))
    plan = gemmkit.AttentionPlan(descriptor, (2, 6, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4), F32, mask_shape=(6, 1, 9), mask_dtype=bool,
                                 past_length=4, v_dtype=F16)
    assert plan.descriptor is descriptor
    assert (plan.q_shape, plan.k_shape, plan.v_shape, plan.y_shape) == ((2, 6, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4), (2, 6, 5, 4))
    assert (plan.dtype, plan.v_dtype, plan.layout) == (np.dtype(F32), np.dtype(F16), "BHLD")
    assert (plan.head_map, plan.group_size, plan.total_length) == ((0, 0, 1, 1, 2, 2), 2, 11)
    assert plan.mask_broadcast == (True, False, True, False)
    for count in (plan.br, plan.bc, plan.splits, plan.num_threads, plan.workspace_bytes):
        assert isinstance(count, int) and count >= 1
    assert plan.path in PATHS and isinstance(plan.kernels, tuple) and plan.kernels
    for part in ("AttentionPlan", "float32", plan.path):
        assert part in repr(plan)
    assert all(isinstance(kernel, str) and kernel for kernel in plan.kernels)

    heads = gemmkit.AttentionDescriptor(q_num_heads=6, kv_num_heads=2)
    flat = gemmkit.AttentionPlan(heads, (2, 5, 48), (2, 7, 16), (2, 7, 6), BF16)
    assert (flat.layout, flat.y_shape, flat.head_map) == ("BLHD", (2, 5, 18), (0, 0, 0, 1, 1, 1))
    assert (flat.dtype, flat.v_dtype, flat.mask_broadcast, flat.total_length) == (np.dtype(BF16), np.dtype(BF16), None, 7)
    with pytest.raises(AttributeError):
        flat.path = "decode"
    masked = gemmkit.AttentionDescriptor(("q", "k", "v", "attn_mask"))
    for shape, want in (((11,), (True, True, True, False)), ((5, 1), (True, True, False, False)),
                        ((2, 1, 5, 11), (False, True, False, False)), ((2, 6, 5, 11), (False,) * 4)):
        plan = gemmkit.AttentionPlan(masked, (2, 6, 5, 8), (2, 3, 11, 8), (2, 3, 11, 8), F32, mask_shape=shape, mask_dtype=F32)
        assert plan.mask_broadcast == want


def test_a_plan_has_the_set_it_was_made_under(wide_isa):
    q, k, v = qkv(2, F32, 1, 2, 1, 5, 9, 4)
    plan = plan_for(q, k, v)
    assert plan.isa == wide_isa
    with gemmkit.isa("scalar"):
        assert plan.isa == wide_isa
        check_output(plan(q, k, v), attend(q, k, v))


@by_type
def test_a_plan_is_called_again_and_again(dtype):
    """With other values, other memory, an out; nothing is left of the call before."""
    rng = np.random.default_rng(3)
    q, k, v = qkv(rng, dtype, 2, 4, 2, 5, 140, 8)
    mask = rng.random((5, 140)) < 0.6
    plan = plan_for(q, k, v, mask, is_causal=True)
    for form in (np.ascontiguousarray, gaps, backwards, lambda x: turned(x, range(x.ndim)[::-1])):
        q, k, v = qkv(rng, dtype, 2, 4, 2, 5, 140, 8)
        want = attend(q, k, v, mask, is_causal=True)
        check_output(plan(form(q), form(k), form(v), form(mask)), want)
        out = full((2, 4, 5, 8), np.nan, dtype)
        assert plan(q, k, v, attn_mask=mask, out=out) is out
        check_output(out, want)


def test_a_plan_of_shapes_knows_no_counts():
    q, k, v = qkv(4, F32, 2, 2, 1, 3, 30, 8)
    plan = plan_for(q, k, v, nonpad_kv_seqlen=[30, 30], is_causal=True)
    for counts in ([30, 1], [0, 0], [17, 29]):
        check_output(plan(q, k, v, nonpad_kv_seqlen=np.array(counts)), attend(q, k, v, nonpad_kv_seqlen=counts, is_causal=True))


def test_many_python_threads_on_one_plan():
    jobs = []
    for path, sizes in (("streaming", (2, 4, 2, 40, 200, 16)), ("decode", (2, 4, 2, 2, 700, 16)),
                        ("materialized", (1, 4, 2, 40, 200, 16))):
        plan = plan_for(*qkv(5, F32, *sizes), path=path, is_causal=True)
        for seed in range(3):
            given = qkv(6 + seed, F32, *sizes)
            jobs.append((plan, given, plan(*given)))
            check_output(jobs[-1][2], attend(*given, is_causal=True))
    failures = []

    def work(seed):
        for index in np.random.default_rng(seed).integers(0, len(jobs), 30):
            plan, given, want = jobs[index]
            try:
                if not support.same_bits(plan(*given), want):
                    failures.append(index)
            except Exception as error:  # a thread's exception would pass unseen
                failures.append(error)

    with gemmkit.threads(2):
        workers = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert not failures


# ---- Paths

PROBLEMS = {
    "plain": {}, "causal": {"is_causal": True}, "bool mask": {"mask": "bool"}, "number mask": {"mask": "number"},
    "window": {"left_window_size": 40, "right_window_size": 7}, "past": {"past": 131, "is_causal": True},
    "padding": {"nonpad": (180, 1), "is_causal": True}, "softcap": {"softcap": 1.5, "scale": 0.7, "mask": "number"},
    "float64": {"softmax_precision": F64, "past": 5}, "all": {"mask": "bool", "past": 70, "is_causal": True, "softcap": 3.0,
                                                              "left_window_size": 90, "scale": 0.3}}


@by_type
@pytest.mark.parametrize("kind", PROBLEMS)
def test_every_path_with_every_set(kind, dtype, isa):
    """Each against the oracle, and so all against one another."""
    for sizes in ((2, 4, 2, 1, 180, 16, 16), (2, 2, 1, 8, 180, 7, 19), (2, 3, 3, 50, 180, 16, 9)):
        for path in paths_for(sizes[3] * sizes[1] // sizes[2]):
            check_problem(dtype, sizes, path=path, **PROBLEMS[kind])
    check_problem(dtype, (2, 2, 1, 3, 180, 7, 19), path="materialized", outputs=("qk_matmul_output", "y"),
                  qk_matmul_output_mode=3, **PROBLEMS[kind])


@by_type
@pytest.mark.parametrize("path", PATHS)
def test_a_forced_path_is_taken(path, dtype):
    q, k, v = qkv(7, dtype, 1, 4, 2, 3, 600, 8)
    plan = plan_for(q, k, v, path=path)
    assert plan.path == path and path in repr(plan)
    for keys in (k[:, :, :0], k[:, :, :1], k[:, :, :129], k):
        count = keys.shape[2]
        check_output(plan_for(q, keys, v[:, :, :count], path=path)(q, keys, v[:, :, :count]), attend(q, keys, v[:, :, :count]))
    mask = np.zeros((3, 600), bool)
    mask[0, 400:], mask[2, 599] = True, True
    y = plan_for(q, k, v, mask, path=path)(q, k, v, mask)
    check_output(y, attend(q, k, v, mask))
    np.testing.assert_array_equal(y[:, :, 2].astype(F64), v[:, [0, 0, 1, 1], 599].astype(F64))
    v[...] = np.nan
    assert (plan_for(q, k, v, mask, path=path)(q, k, v, mask)[:, :, 1] == 0).all()


@by_type
def test_every_path_with_long_keys(dtype):
    """So long that keys are split, with chunks that a query doesn't see at all, and one whose scores are all lower."""
    q, k, v = qkv(8, dtype, 1, 2, 1, 2, 9001, 16)
    mask = np.zeros((2, 9001), bool)
    mask[0, 3000:3100] = mask[1, 8990:] = True
    rising = cast(np.linspace(-40, 40, 9001), dtype)
    for path in PATHS:
        for given in ({}, {"attn_mask": mask}, {"attn_mask": rising}, {"attn_mask": rising[::-1]}, {"nonpad_kv_seqlen": [4000]},
                      {"nonpad_kv_seqlen": [8999], "left_window_size": 50}):
            attributes = {n: x for n, x in given.items() if n == "left_window_size"}
            arrays = {n: x for n, x in given.items() if n not in attributes}
            got = plan_for(q, k, v, path=path, **given)(q, k, v, **arrays)
            check_output(got, attend(q, k, v, **given))

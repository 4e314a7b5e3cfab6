"""Tests of the example; they need the model package and never skip without it."""

from __future__ import annotations

import math
from pathlib import Path

import embed
import numpy as np
import pytest
from checkpoint import INSTALL, ModelNotInstalledError
from elementwise import Array, erfc_nonneg, gelu, gelu_rows
from minilm import MiniLM, pad
from reference import encode_float64

SENTENCES = Path(__file__).with_name("sentences.txt").read_text(encoding="utf-8").splitlines()


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

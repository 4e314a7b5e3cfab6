"""Print each sentence of a text file with its nearest neighbours.

    python embed.py [FILE] [--weights TYPE] [--neighbours N] [--threads N] [--check]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import gemmkit
import numpy as np
from checkpoint import ModelNotInstalledError
from elementwise import Array
from linear import ACTIVATIONS
from minilm import MiniLM
from reference import encode_float64

# What --check wants every sentence's cosine to exceed, by the weights' type.
LIMITS = {"float32": 0.99999, "bfloat16": 0.999, "float16": 0.999, "float8_e4m3fn": 0.98,
          "int8": 0.98}
# Medians of few would not tell int8 from bfloat16 on a busy machine.
ROUNDS = 7


def neighbours(embeddings: Array, count: int) -> tuple[Array, Array]:
    """For each row the indices and cosines of the nearest others, best first."""
    # The rows are unit vectors: their products are the cosines.
    cosines = gemmkit.gemm(embeddings, embeddings, trans_b=True)
    np.fill_diagonal(cosines, -np.inf)
    nearest = np.argsort(-cosines, axis=1)[:, :count]
    return nearest, np.take_along_axis(cosines, nearest, axis=1)


def row_cosines(x: Array, y: Array) -> Array:
    """The cosine of each row of x with the same row of y, in float64."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    return (x * y).sum(axis=1) / np.sqrt(np.square(x).sum(axis=1) * np.square(y).sum(axis=1))


def timed(models: Sequence[MiniLM], sentences: Sequence[str]) -> tuple[list[Array], list[float]]:
    """Each model's embeddings, and the median of its times in seconds."""
    # Once untimed: first-touch pages, thread start, packed weights.
    embeddings = [model.encode(sentences) for model in models]
    seconds: list[list[float]] = [[] for _ in models]
    # The models take turns, so that a busy moment of the machine meets them all.
    for _ in range(ROUNDS):
        for model, times in zip(models, seconds, strict=True):
            start = time.perf_counter()
            model.encode(sentences)
            times.append(time.perf_counter() - start)
    return embeddings, [statistics.median(times) for times in seconds]


def check(dtype: str, embeddings: Sequence[Array], reference: Array) -> int:
    """Compare the last embeddings with those before and the reference: 0 if all is well."""
    *others, embedded = embeddings
    limit, status = LIMITS[dtype], 0
    for other in [*others, reference]:
        smallest = float(row_cosines(embedded, other).min())
        good = smallest > limit  # not if it is NaN
        verdict = "ok" if good else "TOO SMALL"
        status |= not good
        print(f"smallest cosine with the {other.dtype} network: "
              f"{smallest:.12f} (> {limit}: {verdict})")
    return int(status)


def show(sentences: Sequence[str], nearest: Array, cosines: Array) -> None:
    for sentence, indices, values in zip(sentences, nearest, cosines, strict=True):
        print(sentence)
        for index, cosine in zip(indices, values, strict=True):
            print(f"  {cosine:.3f}  {sentences[index]}")


def parse(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description="Nearest neighbours among sentences.")
    default = Path(__file__).with_name("sentences.txt")
    parser.add_argument("file", nargs="?", type=Path, default=default,
                        help="UTF-8 text, one sentence a line (default: sentences.txt)")
    # One option of two names: --dtype is from before there were integers.
    parser.add_argument("--weights", "--dtype", choices=list(ACTIVATIONS), default="float32",
                        help="type of the weights in the products; int8 quantises the "
                        "activations too (default: float32)")
    parser.add_argument("--neighbours", type=int, default=1, metavar="N",
                        help="how many neighbours to print (default: 1)")
    parser.add_argument("--threads", type=int, metavar="N",
                        help="threads for gemmkit (default: gemmkit's own)")
    parser.add_argument("--check", action="store_true",
                        help="compare with the network in float64, and in float32 for another "
                        "type of weights; exit 1 if it differs")
    args = parser.parse_args(argv)
    if args.neighbours < 1:
        parser.error("--neighbours must be at least 1")
    if args.threads is not None and args.threads < 1:
        parser.error("--threads must be at least 1")
    try:
        text = args.file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        parser.error(f"cannot read {args.file}: {error}")
    sentences = [line.strip() for line in text.splitlines() if line.strip()]
    if len(sentences) < 2:
        parser.error(f"{args.file} needs at least two sentences")
    return args, sentences


def main(argv: Sequence[str] | None = None) -> int:
    args, sentences = parse(argv)
    try:
        # A narrow type is compared with float32, and int8 with the quickest
        # floats as well; all share one checkpoint.
        models = [MiniLM()]
    except ModelNotInstalledError as error:
        print(error, file=sys.stderr)
        return 2
    checkpoint = models[0].checkpoint
    others = ["bfloat16"] if args.weights == "int8" else []
    if args.weights != "float32":
        models += [MiniLM(checkpoint, name) for name in [*others, args.weights]]

    threads = contextlib.nullcontext() if args.threads is None else gemmkit.threads(args.threads)
    with threads:
        embeddings, seconds = timed(models, sentences)
        nearest, cosines = neighbours(embeddings[-1], args.neighbours)

    show(sentences, nearest, cosines)
    *before, own = [f"{1e3 * s / len(sentences):.2f} ms per sentence" for s in seconds]
    named = zip(["float32", *others], before, strict=False)  # no `before` if it is float32 itself
    also = "".join(f"; in {name} {each}" for name, each in named)
    print(f"\n{len(sentences)} sentences, {own}{also}")
    # Between float32 and the chosen type is what ran for its time only.
    del embeddings[1:-1]
    if len(embeddings) > 1:
        agreement = row_cosines(embeddings[1], embeddings[0])
        print(f"cosine with float32: min {agreement.min():.6f}, mean {agreement.mean():.6f}")
    if not args.check:
        return 0
    return check(args.weights, embeddings, encode_float64(checkpoint, sentences))


if __name__ == "__main__":
    sys.exit(main())

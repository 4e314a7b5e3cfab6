"""Print each sentence of a text file with its nearest neighbours.

    python embed.py [FILE] [--neighbours N] [--threads N] [--check]
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import gemmkit
import numpy as np
from checkpoint import ModelNotInstalledError
from elementwise import Array
from minilm import MiniLM
from reference import encode_float64

LIMIT = 0.99999


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


def parse(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description="Nearest neighbours among sentences.")
    default = Path(__file__).with_name("sentences.txt")
    parser.add_argument("file", nargs="?", type=Path, default=default,
                        help="UTF-8 text, one sentence a line (default: sentences.txt)")
    parser.add_argument("--neighbours", type=int, default=1, metavar="N",
                        help="how many neighbours to print (default: 1)")
    parser.add_argument("--threads", type=int, metavar="N",
                        help="threads for gemmkit (default: gemmkit's own)")
    parser.add_argument("--check", action="store_true",
                        help="compare with the network in float64; exit 1 if it differs")
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
        model = MiniLM()
    except ModelNotInstalledError as error:
        print(error, file=sys.stderr)
        return 2

    threads = contextlib.nullcontext() if args.threads is None else gemmkit.threads(args.threads)
    with threads:
        model.encode(sentences)  # once untimed: first-touch pages, thread start
        start = time.perf_counter()
        embeddings = model.encode(sentences)
        seconds = time.perf_counter() - start
        nearest, cosines = neighbours(embeddings, args.neighbours)

    for sentence, indices, values in zip(sentences, nearest, cosines, strict=True):
        print(sentence)
        for index, cosine in zip(indices, values, strict=True):
            print(f"  {cosine:.3f}  {sentences[index]}")
    count = len(sentences)
    print(f"\n{count} sentences, {1e3 * seconds / count:.2f} ms per sentence")

    if not args.check:
        return 0
    smallest = float(row_cosines(embeddings, encode_float64(model.checkpoint, sentences)).min())
    good = smallest > LIMIT
    verdict = "ok" if good else "TOO SMALL"
    print(f"smallest cosine with the float64 network: {smallest:.12f} (> {LIMIT}: {verdict})")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

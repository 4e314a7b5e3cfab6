"""Every node test of ONNX whose operator is Attention, of all its versions, by the tolerances of ONNX's own runner."""
import importlib

import numpy as np
import pytest

import gemmkit

REASON = "not run: the node tests of onnx 1.23 aren't installed; those of older versions contradict them"
onnx = pytest.importorskip("onnx", minversion="1.23", reason=REASON)

INPUTS = ("q", "k", "v", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
OUTPUTS = ("y", "present_key", "present_value", "qk_matmul_output")
BFLOAT16_RTOL = 2.0 ** -6  # the runner's


def node_tests():
    """All node tests of this operator alone; the tests named *_expanded are the same models without it."""
    importlib.import_module("onnx.backend.test.case.node.attention")
    cases = importlib.import_module("onnx.backend.test.case.node")._NodeTestCases
    return [case for case in cases if [node.op_type for node in case.model.graph.node] == ["Attention"]]


CASES = node_tests()


def arguments(node):
    """The node's attributes as keyword arguments."""
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if "softmax_precision" in given:
        given["softmax_precision"] = onnx.helper.tensor_dtype_to_np_dtype(given["softmax_precision"])
    if "is_causal" in given:
        given["is_causal"] = bool(given["is_causal"])
    return given


def wired(names, labels):
    """Which of the operator's inputs or outputs a node has, in order; an empty label stands for none."""
    assert len(labels) <= len(names)
    return tuple(name for name, label in zip(names, labels) if label)


def check(got, want, case):
    assert isinstance(got, np.ndarray) and got.dtype == want.dtype and got.shape == want.shape
    rtol = max(case.rtol, BFLOAT16_RTOL) if want.dtype.name == "bfloat16" else case.rtol
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=case.atol)


def test_all_node_tests_were_found():
    versions = [case.model.opset_import[0].version for case in CASES]
    assert len(CASES) >= 93 and [versions.count(v) >= n for v, n in ((23, 69), (24, 13), (25, 11))] == [True] * 3
    assert len({case.name for case in CASES}) == len(CASES)
    types = {x.dtype.name for case in CASES for inputs, _ in case.data_sets for x in inputs[:1]}
    assert types == {"float32", "float16", "bfloat16"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.removeprefix("test_").removeprefix("attention_"))
def test_node(case):
    node, = case.model.graph.node
    inputs, outputs = wired(INPUTS, node.input), wired(OUTPUTS, node.output)
    assert case.data_sets
    for given, wanted in case.data_sets:
        given, wanted = list(map(np.asarray, given)), list(map(np.asarray, wanted))
        assert len(given) == len(inputs) and len(wanted) == len(outputs)
        operands, options = dict(zip(inputs, given)), arguments(node)
        before = [x.tobytes() for x in given]
        got = gemmkit.attention(**operands, outputs=outputs, **options)
        for x, want in zip((got,) if outputs == ("y",) else got, wanted, strict=True):
            check(x, want, case)
        assert [x.tobytes() for x in given] == before

        # The same node once more, as a plan that is made from shapes
        q, k, v = given[:3]
        mask, past = operands.get("attn_mask"), operands.get("past_key")
        plan = gemmkit.AttentionPlan(gemmkit.AttentionDescriptor(inputs, outputs, **options), q.shape, k.shape, v.shape, q.dtype,
                                     mask_shape=None if mask is None else mask.shape, v_dtype=v.dtype,
                                     mask_dtype=None if mask is None else mask.dtype,
                                     past_length=0 if past is None else past.shape[2])
        again = plan(**operands)
        for x, want in zip((again,) if outputs == ("y",) else again, wanted, strict=True):
            check(x, want, case)

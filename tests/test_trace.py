"""Kernel times from a trace."""

import gzip
import json

import pytest

from dualgoal.bench import trace


def write(folder, names):
    """A trace in which each kernel took 10 us on a stream of a GPU and 99 us on a CPU."""
    facts = [
        {"name": "process_name", "pid": 1, "args": {"name": "/device:GPU:0"}},
        {"name": "process_name", "pid": 2, "args": {"name": "/host:CPU"}},
        {"name": "thread_name", "pid": 1, "tid": 7, "args": {"name": "Stream #7(Compute)"}},
        {"name": "thread_name", "pid": 1, "tid": 8, "args": {"name": "XLA Ops"}},
    ]
    events = [
        {"ph": "X", "name": name, "pid": pid, "tid": tid, "dur": dur}
        for name in names
        for pid, tid, dur in ((1, 7, 10.0), (1, 8, 10.0), (2, 7, 99.0))
    ]
    (folder / "a").mkdir()
    (folder / "a" / "x.trace.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": facts + events}).encode()))


def test_kernels_are_summed_by_kind_and_step(tmp_path):
    names = ["activate_3", "activate_back", "activate_back_1", "nvjet_sm90_x", "gemm_fusion_dot_2", "loop_add_fusion"]
    write(tmp_path, [*names, "wrapped_convert_4", "input_reduce_fusion", "Memset 0", "cudnn_generic"])
    found = trace.kernels_by_kind(tmp_path, 2)
    assert found["activations, backward"] == found["matrix products"] == trace.Cost(us=10.0, launches=1.0)
    assert found["activations, forward"] == found["convolutions, other"] == trace.Cost(us=5.0, launches=0.5)
    assert set(found) >= {"reductions", "optimiser and slow copies", "conversions of weights", "everything else"}
    assert sum(cost.us for cost in found.values()) == pytest.approx(10 * 10 / 2)


def test_convolutions_are_no_matrix_products(tmp_path):
    """Libraries name them after the product they are computed as."""
    forward = [
        "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32",
        "cutlass_tensorop_bf16_s16816dgrad",
        "convolve",
        "convolve_pooled",
    ]
    weights = ["sm80_xmma_wgrad_implicit_gemm_indexed_bf16", "convolve_weights_pooled_2"]
    write(
        tmp_path,
        [
            *forward,
            *weights,
            "pool_1",
            "unpool",
            "cudnn::ops::nhwcAddPaddingKernel",
            "nvjet_tst_128x64_64x8_1x2_h_bz_NNT",
        ],
    )
    found = trace.kernels_by_kind(tmp_path, 1)
    assert {kind: cost.launches for kind, cost in found.items()} == {
        "convolutions, forward and of gradients": 4,
        "convolutions, gradients of weights": 2,
        "pooling": 2,
        "convolutions, other": 1,
        "matrix products": 1,
    }


def test_no_gpu_no_kernels(tmp_path):
    assert trace.kernels_by_kind(tmp_path, 1) is None
    write(tmp_path, [])
    assert trace.kernels_by_kind(tmp_path, 1) is None

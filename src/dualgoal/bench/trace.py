"""Where the time of a training step goes on a GPU, by kind of kernel, from the trace that JAX's profiler writes."""

import gzip
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

KINDS = (  # kinds of kernels, and patterns of their names; the first that matches counts
    ("activations, forward", r"^activate(?!_back)"),
    ("activations, backward", r"^activate_back"),
    # Before products: libraries name a convolution after the product it is computed as, and after its direction.
    ("convolutions, forward and of gradients", r"^convolve(?!_weights)|fprop|dgrad"),
    ("convolutions, gradients of weights", r"^convolve_weights|wgrad"),
    ("pooling", r"^(un)?pool"),
    ("convolutions, other", r"conv(?!ert)|cudnn|implicit_gemm|nhwc|nchw"),
    ("matrix products", r"gemm|nvjet|cutlass|xmma|dot"),
    ("reductions", r"reduce"),
    ("optimiser and slow copies", r"^loop_add"),
    ("conversions of weights", r"convert"),
    ("joining inputs", r"concatenate|broadcast|slice"),
)


@dataclass(frozen=True)
class Cost:
    """What the kernels of one kind cost per step."""

    us: float  # microseconds
    launches: float


def kernels_by_kind(folder: Path, steps: int) -> dict[str, Cost] | None:
    """The cost of each kind, the most expensive first; None if no GPU was traced.

    Kernels that run at the same time each count in full, so the sum may exceed the time of a step. The compiler chooses
    the names; most of what the optimiser does is in its `loop_add` loops.
    """
    files = sorted(folder.rglob("*.trace.json.gz"), key=lambda file: file.stat().st_mtime)
    if not files:
        return None
    events = json.loads(gzip.decompress(files[-1].read_bytes()))["traceEvents"]
    devices = {e["pid"] for e in events if e.get("name") == "process_name" and "GPU" in e["args"]["name"]}
    streams = {
        (e["pid"], e["tid"])
        for e in events
        if e.get("name") == "thread_name" and e["pid"] in devices and "Stream" in e["args"]["name"]
    }
    microseconds: Counter[str] = Counter()
    launches: Counter[str] = Counter()
    for event in events:
        if event.get("ph") == "X" and (event["pid"], event["tid"]) in streams:
            kind = next((kind for kind, pattern in KINDS if re.search(pattern, event["name"])), "everything else")
            microseconds[kind] += event["dur"]
            launches[kind] += 1
    found = {kind: Cost(us / steps, launches[kind] / steps) for kind, us in microseconds.most_common()}
    return found or None

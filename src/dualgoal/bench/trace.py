"""Where a step's time goes on a GPU, by kernel, from the trace that JAX's profiler writes."""

import gzip
import json
import re
from collections import Counter
from pathlib import Path

KINDS = (  # the first that fits a kernel's name
    ("activations, forward", r"^activate(?!_back)"),
    ("activations, backward", r"^activate_back"),
    ("matrix products", r"gemm|nvjet|cutlass|xmma|dot"),
    ("convolutions", r"conv(?!ert)|cudnn"),
    ("reductions", r"reduce"),
    ("optimiser and slow copies", r"^loop_add"),
    ("conversions of weights", r"convert"),
    ("joining inputs", r"concatenate|broadcast|slice"),
)


def kernels(folder: Path, steps: int) -> dict[str, dict[str, float]] | None:
    """Microseconds and launches per step by kind, the most expensive first; None if no GPU was traced.

    Kernels that run side by side each count in full, so the sum may exceed the time of a step. The names are the
    compiler's; what the optimiser does is mostly in its `loop_add` loops.
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
    found = {kind: {"us": us / steps, "launches": launches[kind] / steps} for kind, us in microseconds.most_common()}
    return found or None

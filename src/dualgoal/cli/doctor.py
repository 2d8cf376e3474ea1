"""`dualgoal doctor`: what this machine can do, and one line of advice for each thing that is missing."""

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from dualgoal import imports, machine
from dualgoal.cli.verb import Verb, show
from dualgoal.envs.versions import SIMULATORS
from dualgoal.errors import UserError

GIB = 2**30
_EXTRAS = {
    "h5py": "hdf5", "minari": "minari", "pyarrow": "lerobot", "onnxruntime": "onnx", "pandas": "notebook",
    "imageio-ffmpeg": "video", "tensorboardX": "track", "wandb": "track", "ray": "ray", "submitit": "slurm",
}  # package: extra that installs it  # fmt: skip


@dataclass(frozen=True)
class Doctor(Verb):
    """Each missing thing comes with the line that repairs it."""

    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        show(examine(), self.json, text)


def examine() -> dict[str, Any]:
    """Everything, as plain values; 'advice' holds a line for each thing to repair."""
    devices, problem = [], None
    try:
        devices = _devices()
    except UserError as error:
        problem = str(error)
    found: dict[str, Any] = {
        "versions": machine.versions(),
        "extras": {name: machine.version(name) for name in _EXTRAS},
        "system": f"{platform.platform()} {platform.machine()}",
        "cores": machine.cores(),
        "devices": devices,
        "devices_problem": problem,
        "rendering": _rendering(),
        # Elsewhere the system does not say, and `free_memory` guesses.
        "memory": {"free_gib": round(machine.free_memory() / GIB, 1) if sys.platform == "linux" else None},
        "disk": _disk(),
    }
    return found | {"advice": _advice(found)}


def _devices() -> list[dict[str, Any]]:
    out = []
    for device in machine.devices():
        try:
            stats = device.memory_stats() or {}
        except Exception:  # not every backend keeps statistics
            stats = {}
        limit = stats.get("bytes_limit")
        entry = {"platform": device.platform, "kind": device.device_kind}
        out.append(entry | {"free_gib": round((limit - stats.get("bytes_in_use", 0)) / GIB, 1) if limit else None})
    return out


def _rendering() -> dict[str, Any]:
    """Each backend is tried in a process of its own, because a broken one can crash the process."""
    from dualgoal.envs import rendering

    if machine.version("mujoco") is None:
        return {"chosen": "none", "backends": {"mujoco": "missing"}}
    lacks = rendering.missing() if platform.system() == "Linux" else {}
    return {"chosen": rendering.choose() or "default", "backends": {b: _draws(b, lacks) for b in ("egl", "osmesa")}}


def _draws(backend: str, lacks: dict[str, str]) -> str:
    """Whether this backend can render, in a few words."""
    if backend in lacks:
        return f"missing {lacks[backend]}"
    code = (
        "import mujoco; m = mujoco.MjModel.from_xml_string('<mujoco><worldbody/></mujoco>');"
        "r = mujoco.Renderer(m, 8, 8); r.update_scene(mujoco.MjData(m)); r.render(); r.close()"
    )
    command = [sys.executable, "-P", "-c", code]  # -P: a mujoco.py in the current folder is not MuJoCo
    environment = {**os.environ, "MUJOCO_GL": backend}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    except subprocess.TimeoutExpired:
        return "does not respond"
    if done.returncode == 0:
        return "works"
    return f"fails: {(done.stderr.strip().splitlines() or ['no message'])[-1][:120]}"


def _disk() -> dict[str, Any]:
    from dualgoal.files import cache_folder

    folder = cache_folder()
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    return {"cache": str(folder), "free_gib": round(shutil.disk_usage(existing).free / GIB, 1)}


def _advice(found: dict[str, Any]) -> list[str]:
    lines = [found["devices_problem"]] if found["devices_problem"] else []
    if found["devices"] and all(device["platform"] == "cpu" for device in found["devices"]):
        if shutil.which("nvidia-smi"):
            lines.append("JAX does not use the NVIDIA GPU: pip install 'dualgoal[cuda12]' (or cuda13)")
        else:
            lines.append("no GPU or TPU: small runs are fine here, those of the paper's size take very long")
    mujoco = found["versions"].get("mujoco")
    if mujoco and tuple(map(int, mujoco.split(".")[:2])) >= (3, 5):
        lines.append(f"MuJoCo {mujoco} simulates differently from the paper's version: pip install 'mujoco<3.5'")
    if any(found["versions"].get(name) is None for name in SIMULATORS):
        lines.append(f"no simulator; your own data need none, OGBench's tasks do: {imports.install('ogbench')}")
    elif "works" not in found["rendering"]["backends"].values() and platform.system() == "Linux":
        lines.append("no rendering, so no image tasks and no videos: apt-get install libegl1 libopengl0")
    absent = sorted({extra for name, extra in _EXTRAS.items() if found["extras"][name] is None})
    if absent:
        lines.append(f"optional packages are not installed: pip install 'dualgoal[{','.join(absent)}]'")
    if found["disk"]["free_gib"] < 5:
        lines.append(f"{found['disk']['cache']} has {found['disk']['free_gib']} GiB free: set DUALGOAL_CACHE elsewhere")
    if found["memory"]["free_gib"] is not None and found["memory"]["free_gib"] < 4:
        lines.append(f"only {found['memory']['free_gib']} GiB of memory are free: a full-size run needs about 4 GiB")
    return lines


def text(found: dict[str, Any]) -> str:
    versions = "  ".join(f"{name} {v or 'missing'}" for name, v in {**found["versions"], **found["extras"]}.items())
    room = lambda device: f", {device['free_gib']} GiB free" if device["free_gib"] else ""
    devices = "; ".join(f"{device['platform']} {device['kind']}{room(device)}" for device in found["devices"]) or "none"
    rendering = "; ".join(f"{name} {state}" for name, state in found["rendering"]["backends"].items())
    lines = [
        f"versions   {versions}",
        f"system     {found['system']}, {found['cores']} cores",
        f"devices    {devices}",
        f"rendering  {rendering} (using {found['rendering']['chosen']})",
        f"memory     {found['memory']['free_gib']} GiB free",
        f"disk       {found['disk']['free_gib']} GiB free at {found['disk']['cache']}",
    ]
    return "\n".join(lines + [f"to do      {line}" for line in found["advice"]])

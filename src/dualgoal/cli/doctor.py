"""What this machine can do: versions, devices, rendering, memory and disk, and one line for each missing thing."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from dualgoal import machine

GIB = 2**30
_EXTRAS = {"tensorboardX": "track", "wandb": "track", "minari": "minari"}


def examine() -> dict[str, Any]:
    """Everything, as plain values; 'advice' holds the lines that fix what is missing."""
    devices = _devices()
    found: dict[str, Any] = {
        "versions": machine.versions(),
        "extras": {name: machine.version(name) for name in _EXTRAS},
        "system": f"{platform.platform()} {platform.machine()}",
        "cores": machine.cores(),
        "devices": devices,
        "rendering": _rendering(),
        "memory": {"free_gib": _free_memory()},
        "disk": _disk(),
    }
    return found | {"advice": _advice(found)}


def _devices() -> list[dict[str, Any]]:
    import jax

    out = []
    for device in jax.local_devices():
        try:
            stats = device.memory_stats() or {}
        except Exception:  # not every backend keeps statistics
            stats = {}
        limit = stats.get("bytes_limit")
        entry = {"platform": device.platform, "kind": device.device_kind}
        out.append(entry | {"free_gib": round((limit - stats.get("bytes_in_use", 0)) / GIB, 1) if limit else None})
    return out


def _rendering() -> dict[str, Any]:
    """Each backend tried in a process of its own: a wrong one can take the process down with it."""
    from dualgoal.envs import rendering as render

    lacks = render.missing() if platform.system() == "Linux" else {}
    return {"chosen": render.choose() or "default", "backends": {b: _draws(b, lacks) for b in ("egl", "osmesa")}}


def _draws(backend: str, lacks: dict[str, str]) -> str:
    if backend in lacks:
        return f"missing {lacks[backend]}"
    code = (
        "import mujoco; m = mujoco.MjModel.from_xml_string('<mujoco><worldbody/></mujoco>');"
        "r = mujoco.Renderer(m, 8, 8); r.update_scene(mujoco.MjData(m)); r.render(); r.close()"
    )
    environment = {**os.environ, "MUJOCO_GL": backend}
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    except subprocess.TimeoutExpired:
        return "does not answer"
    if done.returncode == 0:
        return "works"
    return f"fails: {(done.stderr.strip().splitlines() or ['no message'])[-1][:120]}"


def _free_memory() -> float | None:
    """What new processes can have, where the system says."""
    info = Path("/proc/meminfo")
    if not info.exists():
        return None
    lines = [line for line in info.read_text().splitlines() if line.startswith("MemAvailable")]
    return round(int(lines[0].split()[1]) / 2**20, 1) if lines else None


def _disk() -> dict[str, Any]:
    from dualgoal.files import cache_folder

    folder = cache_folder()
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    return {"cache": str(folder), "free_gib": round(shutil.disk_usage(existing).free / GIB, 1)}


def _advice(found: dict[str, Any]) -> list[str]:
    lines = []
    if all(device["platform"] == "cpu" for device in found["devices"]):
        if shutil.which("nvidia-smi"):
            lines.append("an NVIDIA GPU is here but JAX does not use it: pip install 'dualgoal[cuda12]' (or cuda13)")
        else:
            lines.append("no accelerator: the paper's runs take hours on a GPU and days here; small runs are fine")
    mujoco = found["versions"].get("mujoco")
    if mujoco and tuple(map(int, mujoco.split(".")[:2])) >= (3, 5):
        lines.append(f"MuJoCo {mujoco} has other physics than the paper's: pip install 'mujoco<3.5'")
    if "works" not in found["rendering"]["backends"].values() and platform.system() == "Linux":
        lines.append("no headless rendering, so no image tasks and no videos: apt-get install libegl1 libopengl0")
    absent = sorted({extra for name, extra in _EXTRAS.items() if found["extras"][name] is None})
    if absent:
        lines.append(f"optional parts are not installed: pip install 'dualgoal[{','.join(absent)}]'")
    if found["disk"]["free_gib"] < 5:
        lines.append(f"{found['disk']['cache']} has {found['disk']['free_gib']} GiB left: set DUALGOAL_CACHE elsewhere")
    if found["memory"]["free_gib"] is not None and found["memory"]["free_gib"] < 4:
        lines.append(f"only {found['memory']['free_gib']} GiB of memory are free: a full-size run needs about 4")
    return lines


def text(found: dict[str, Any]) -> str:
    """The examination for people."""
    versions = "  ".join(f"{name} {v or 'missing'}" for name, v in {**found["versions"], **found["extras"]}.items())
    room = lambda device: f", {device['free_gib']} GiB free" if device["free_gib"] else ""
    devices = "; ".join(f"{device['platform']} {device['kind']}{room(device)}" for device in found["devices"])
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

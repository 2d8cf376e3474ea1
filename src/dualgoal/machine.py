"""What a result depends on besides its configuration: versions, the commit, the hardware, the compiler's cache."""

import contextlib
import os
import platform
import subprocess
import sys
import typing
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from dualgoal.errors import UserError, brief

PACKAGES = ("dualgoal", "jax", "jaxlib", "equinox", "optax", "numpy", "mujoco", "ogbench", "gymnasium", "safetensors")


def versions() -> dict[str, str | None]:
    """Installed versions of everything that can change a number, and Python's."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def commit() -> str | None:
    """The commit of the source this runs from, with '+' if files differ from it; None outside a checkout."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "--no-optional-locks", "-C", str(here), *words], capture_output=True, text=True, timeout=20
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if not git("ls-files", "--error-unmatch", __file__):  # some other repository that only contains an installation
        return None
    head = git("rev-parse", "HEAD")
    return head and head + ("+" if git("status", "--porcelain", "--untracked-files=no", str(here)) else "")


def devices() -> list[typing.Any]:
    """The devices JAX computes on, or one line where it has none, for instance because JAX_PLATFORMS asks for another
    kind than this machine has."""
    import jax

    try:
        return jax.local_devices()
    except (RuntimeError, AssertionError) as problem:  # without NVIDIA's plugin, JAX only asserts that it is there
        asked, reason = os.environ.get("JAX_PLATFORMS"), f" ({brief(problem)})" if str(problem) else ""
        what = f"JAX_PLATFORMS={asked}: JAX finds no such device here" if asked else "JAX finds no device"
        cure = "unset it" if asked else "run 'dualgoal doctor'"
        raise UserError(f"{what}{reason}; {cure}, or for a GPU pip install 'dualgoal[cuda12]' (or cuda13)") from problem


@dataclass(frozen=True)
class Hardware:
    """The devices JAX uses, the threads it computes with, and in which arithmetic; all of them can change bits."""

    system: str
    platform: str
    device: str
    devices: int
    threads: int
    precision: str

    @classmethod
    def here(cls, precision: str) -> "Hardware":
        """This machine, computing in `precision`."""
        device, *others = devices()
        system = f"{platform.system()} {platform.machine()}"
        return cls(system, device.platform, device.device_kind, 1 + len(others), cores(), precision)


Precision = typing.Literal["float32", "tf32", "bf16"]
PrecisionOption = typing.Literal["auto", "float32", "tf32", "bf16"]  # what users choose from; `arithmetic` resolves it


def arithmetic(precision: str) -> Precision:
    """The precision that `precision` means here: 'auto' is bf16 on a GPU that computes in it, where no loss was found
    (docs/speed.md)."""
    device = devices()[0]  # in any case: here a user hears that there is none
    if precision != "auto":
        return typing.cast(Precision, precision)
    return "bf16" if _computes_bf16(device) else "float32"


def _computes_bf16(device: object) -> bool:
    generation = str(getattr(device, "compute_capability", "")).split(".")[0]  # of NVIDIA's GPUs
    return generation.isdigit() and int(generation) >= 8


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def free_memory() -> int:
    """Bytes that new processes can have: what the system says is available, within the limit of a container or of this
    process; a generous guess where nothing says so."""
    found = [64 << 30]
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")))
    with contextlib.suppress(OSError, ValueError):  # "max" where there is no limit
        group = Path("/sys/fs/cgroup")
        used = int((group / "memory.current").read_text())
        found.append(max(0, int((group / "memory.max").read_text()) - used))
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            found.append(max(0, limit - pages * os.sysconf("SC_PAGE_SIZE")))
    return min(found)


def pin() -> list[int] | None:
    """Give this process the first half of its cores and return the other half, for workers; None where impossible.

    Has to happen before JAX is first used, which starts as many threads as there are cores. The system binds threads,
    not processes, so those that exist (NumPy's, or JAX's after all) are bound one by one; later ones inherit.
    """
    if sys.platform != "linux" or cores() < 2:
        return None
    mine = sorted(os.sched_getaffinity(0))
    half = len(mine) // 2
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread), mine[:half])
    return mine[half:]


def a_device_per_core() -> None:
    """Let JAX on a CPU see every core as a device, so that seeds train in parallel, one per core: small networks do not
    keep two cores busy with one seed. It has no effect once JAX has been used, or where the user has set a number."""
    import jax

    flags = os.environ.get("XLA_FLAGS", "")
    if getattr(jax.config, "jax_num_cpu_devices", -1) != -1 or "xla_force_host_platform_device_count" in flags:
        return
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", cores())


def keep_compiled(folder: Path) -> None:
    """Keep compiled programs between processes, unless the user has set JAX's own variable."""
    import jax

    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def ask_determinism() -> None:
    """Ask XLA for bit-reproducible GPU operations; has to happen before the first device is touched."""
    flag = "--xla_gpu_deterministic_ops=true"
    flags = os.environ.get("XLA_FLAGS", "")
    if flag not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}".strip()

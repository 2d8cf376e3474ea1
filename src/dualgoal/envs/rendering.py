"""Headless rendering: which OpenGL backend this machine has, decided before MuJoCo is imported.

MuJoCo and dm_control read `MUJOCO_GL` once, at import, and a wrong value breaks their import; so we look at the system
libraries first. EGL is preferred (it uses a GPU where there is one), OSMesa renders on the CPU, and with neither the
state environments still work while pixels end in one line that names the library to install.
"""

import ctypes
import importlib
import os
import platform
import sys

from dualgoal.errors import UserError

INSTALL = (
    "install one of: libegl1 + libopengl0 (Debian, Ubuntu), mesa-libEGL + libglvnd-opengl (Fedora), "
    "or for CPU rendering libosmesa6 (Debian, Ubuntu), mesa-libOSMesa (Fedora)"
)
_OFF = "disable"
_EGL_PLATFORM_DEVICE = 0x313F


def _library(*names: str) -> ctypes.CDLL | None:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _egl_devices(egl: ctypes.CDLL) -> int:
    """How many EGL devices can be opened; none if the library has no driver."""
    lookup = egl.eglGetProcAddress
    lookup.restype, lookup.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    query, display = lookup(b"eglQueryDevicesEXT"), lookup(b"eglGetPlatformDisplayEXT")
    if not query or not display:
        return 0
    handle, boolean, integer = ctypes.c_void_p, ctypes.c_uint, ctypes.c_int
    query_devices = ctypes.CFUNCTYPE(boolean, integer, ctypes.POINTER(handle), ctypes.POINTER(integer))(query)
    get_display = ctypes.CFUNCTYPE(handle, integer, handle, ctypes.c_void_p)(display)
    initialize = egl.eglInitialize
    initialize.restype, initialize.argtypes = boolean, [handle, ctypes.c_void_p, ctypes.c_void_p]
    devices, found = (handle * 16)(), integer(0)
    if not query_devices(16, devices, ctypes.byref(found)):
        return 0
    displays = [get_display(_EGL_PLATFORM_DEVICE, device, None) for device in devices[: found.value]]
    return sum(bool(d and initialize(d, None, None)) for d in displays)


def missing() -> dict[str, str]:
    """For each headless backend that cannot work here, what is missing."""
    problems = {}
    egl = _library("libEGL.so.1")
    if egl is None:
        problems["egl"] = "libEGL.so.1"
    elif _library("libOpenGL.so.0", "libGL.so.1") is None:
        problems["egl"] = "libOpenGL.so.0"
    elif not _egl_devices(egl):
        problems["egl"] = "an EGL driver (a GPU driver, or Mesa's libegl-mesa0)"
    if _library("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so") is None:
        problems["osmesa"] = "libOSMesa.so.8"
    return problems


def choose() -> str:
    """Set `MUJOCO_GL` for this process and its children unless the user has, and return it ('' = MuJoCo's default)."""
    chosen = os.environ.get("MUJOCO_GL", "")
    if chosen or platform.system() != "Linux":
        return chosen
    problems = missing()
    chosen = next((name for name in ("egl", "osmesa") if name not in problems), _OFF)
    os.environ["MUJOCO_GL"] = chosen
    return chosen


def require(what: str) -> None:
    """Raise a one-line error if nothing can be rendered here; `what` is the thing that needs it."""
    if os.environ.get("MUJOCO_GL", "").lower() not in (_OFF, "disabled", "off", "false", "0"):
        _use_choice()
        return
    problems = missing()
    if not problems:
        raise UserError(f"{what} needs rendering, which MUJOCO_GL={os.environ['MUJOCO_GL']} switches off; unset it")
    parts = ", ".join(f"{backend} lacks {part}" for backend, part in problems.items())
    raise UserError(f"{what} needs headless rendering, but {parts}; {INSTALL}")


def _use_choice() -> None:
    """If MuJoCo was imported before the backend was chosen, set it now; MuJoCo looks it up at each use."""
    loaded, chosen = sys.modules.get("mujoco.gl_context"), os.environ.get("MUJOCO_GL", "")
    if loaded is None or chosen not in ("egl", "osmesa"):
        return
    if loaded.GLContext.__module__ != f"mujoco.{chosen}":
        loaded.GLContext = importlib.import_module(f"mujoco.{chosen}").GLContext  # type: ignore[attr-defined]

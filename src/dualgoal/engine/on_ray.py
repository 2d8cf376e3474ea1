"""Runs as Ray tasks: one process each, on whichever node has room.

Ray's own retries are off. It cannot know whether a run gets on between two losses; the checkpoints say so.
"""

import contextlib
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dualgoal import files, imports
from dualgoal.engine import sites
from dualgoal.engine.items import ATTEMPTS, Item, Patience, Placement, Problem, Say, perform
from dualgoal.errors import Preempted, UserError, number_of
from dualgoal.runs import interruption
from dualgoal.runs.interruption import Interruption

CONNECT_SECONDS = 5.0
LOOK_SECONDS = 120.0
LEAVE_SECONDS = 30.0
SLICE_SECONDS = 0.5  # of waiting, between two looks whether a signal has come


class Lost(Exception):
    """Inside a task: this run has to go on elsewhere."""


def _task(item: Item, workers: int, gpus: float) -> Problem:
    try:
        return perform(item, workers, gpus)
    except (Preempted, KeyboardInterrupt) as request:  # what is not an Exception would end Ray's worker without a word
        raise Lost(str(request)) from None


class OnRay:
    """Carries out runs on a Ray cluster, or on one that is started on this machine for the purpose."""

    def __init__(self, address: str | None, placement: Placement, folder: Path, workers: int | None):
        self._ray: Any = imports.optional("ray", "ray", "--on ray")
        self._address, self._placement, self._folder, self._workers = address, placement, folder, workers

    def execute(self, items: Sequence[Item], say: Say) -> Iterator[tuple[Item, Problem]]:
        ours = self._connect()
        waiting: dict[Any, Item] = {}
        with Interruption() as stop:  # while Ray waits it swallows what other handlers raise
            try:
                self._check_nodes(stop)
                gpus, cpus = self._fit()
                say(f"ray: {number_of(len(self._nodes()), 'node')}; each run gets {cpus} CPU cores and {gpus:g} GPUs")
                start = self._starter(gpus, cpus)
                waiting = {start(item): item for item in items}
                yield from self._wait(waiting, start, say, stop)
            finally:
                self._leave(list(waiting))
                if ours:
                    self._ray.shutdown()

    def _connect(self) -> bool:
        """Whether the connection is new."""
        if self._ray.is_initialized():
            return False
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        address = self._address or os.environ.get("RAY_ADDRESS")
        if address and address != "auto":
            _require_reachable(address)
        try:
            with _same_handlers():
                self._ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            where = address or "this machine"
            raise UserError(f"no Ray cluster at {where} ({str(error).splitlines()[0]}); see ray status") from error
        except SystemExit as end:  # Ray's answer to SIGTERM while it starts
            raise Preempted("stopped", signal.SIGTERM) from end
        return True

    def _nodes(self) -> list[dict[str, Any]]:
        """The nodes that can run something."""
        return [n for n in self._ray.nodes() if n["Alive"] and n["Resources"].get("CPU", 0) >= 1]

    def _check_nodes(self, stop: Interruption) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        look = self._ray.remote(num_cpus=0, max_retries=0)(sites.look)
        if not self._nodes():
            raise UserError("the Ray cluster has no node with a CPU core; start one with ray start --address=...")
        planted = sites.plant(self._folder)
        try:
            here = sites.look(planted)
            for node in self._nodes():
                strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                name = node["NodeManagerHostname"]
                try:
                    answer = look.options(scheduling_strategy=strategy).remote(planted)
                    self._first([answer], stop, LOOK_SECONDS)
                    site = self._ray.get(answer, timeout=0)
                except self._ray.exceptions.RayError as error:
                    reason = str(error).strip().splitlines()[-1]
                    raise UserError(f"node {name} cannot run dualgoal ({reason}); install it there") from error
                sites.require_equal(site, here, planted)
        finally:
            planted.unlink(missing_ok=True)

    def _fit(self) -> tuple[float, int]:
        """GPUs and cores for a run, if some node has as many."""
        have = [(n["Resources"].get("GPU", 0), n["Resources"]["CPU"]) for n in self._nodes()]
        most = max(gpu for gpu, _ in have)
        gpus = self._placement.gpus if self._placement.gpus is not None else min(1.0, most)
        able = [(gpu, cpu) for gpu, cpu in have if gpu >= gpus]
        if not able:
            raise UserError(f"a run asks for {gpus:g} GPUs and no node has more than {most:g}; give a smaller --gpus")
        # An even share of the poorest node that could take it.
        share = min(int(cpu * gpus / gpu) if gpus else 1 for gpu, cpu in able)
        cpus = self._placement.cpus or max(1, share)
        cores = max(cpu for _, cpu in able)
        if cpus > cores:
            raise UserError(f"a run asks for {cpus} CPU cores and no node has more than {cores:g}; give smaller --cpus")
        return gpus, cpus

    def _starter(self, gpus: float, cpus: int) -> Any:
        # A process per run (max_calls): JAX keeps the devices and the memory that it has seen first.
        task = self._ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0, max_calls=1)(_task)
        workers = self._workers or max(1, cpus - 1)
        return lambda item: task.options(name=item.name).remote(item, workers, gpus)

    def _first(self, tasks: list[Any], stop: Interruption, seconds: float = math.inf) -> list[Any]:
        """The first of these tasks to end, unless none does for so long; a signal ends waiting."""
        done: list[Any] = []
        until = time.monotonic() + seconds
        while not done and time.monotonic() < until:
            if stop.requested:
                raise stop.error("stopped")
            done, _ = self._ray.wait(tasks, num_returns=1, timeout=SLICE_SECONDS)
        return done

    def _wait(
        self, waiting: dict[Any, Item], start: Any, say: Say, stop: Interruption
    ) -> Iterator[tuple[Item, Problem]]:
        patience, errors = Patience(), self._ray.exceptions
        while waiting:
            (done,) = self._first(list(waiting), stop)
            item = waiting.pop(done)
            try:
                yield item, self._ray.get(done)
                continue
            except errors.RayTaskError as error:
                if not isinstance(error.cause, Lost):
                    yield item, f"failed with {str(error).strip().splitlines()[-1]}"
                    continue
                reason = "asked to leave"
            except errors.RayError as error:
                reason = type(error).__name__
            if patience.again(item):
                say(f"{item.name}: lost its worker ({reason}); continues on another node")
                waiting[start(item)] = item
            else:
                yield item, f"lost its worker {ATTEMPTS} times without a new checkpoint (last: {reason})"

    def _leave(self, tasks: list[Any]) -> None:
        """Let runs that are under way save and end."""
        for task in tasks:
            self._ray.cancel(task)
        if tasks:
            self._ray.wait(tasks, num_returns=len(tasks), timeout=LEAVE_SECONDS)


@contextlib.contextmanager
def _same_handlers() -> Iterator[None]:
    """Ray takes signals for itself when it starts, in Python and below it: set all handlers again afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *interruption.FROM_SCHEDULERS)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                if handler is not None:
                    signal.signal(number, handler)


def _require_reachable(address: str) -> None:
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address.startswith("ray://"):
        raise UserError(f"'{address}' is for Ray's client; run this on a node of the cluster, with --on ray:HOST:PORT")
    if not colon or not port.isdigit():
        raise UserError(f"'{address}' is not the address of a Ray cluster; expected HOST:PORT, for instance head:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        why = files.reason(error)
        raise UserError(f"nothing answers at {address} ({why}); is the cluster's head there?") from error

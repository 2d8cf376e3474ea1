"""Runs on a Ray cluster of this machine: a node is lost in mid-run, and nothing else is."""

import ast
import functools
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dualgoal.engine import sites
from dualgoal.engine.items import Item, Placement
from dualgoal.errors import UserError
from dualgoal.paper import jobs, sweep
from dualgoal.paper.jobs import Execution
from dualgoal.runs import directory, memory, owner
from tiny import SWEEP, dualgoal, make_data, record

ray = pytest.importorskip("ray", reason="Ray is not installed (pip install 'dualgoal[ray]')")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc for a worker's node")

FILE = SWEEP.format(rates="1e-4, 2e-4, 3e-4, 4e-4")  # two runs for each of the two nodes


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    handler = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUALGOAL_HEARTBEAT", "0.3")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        memory = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
        found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **memory})
        nodes = [found.add_node(num_cpus=1, object_store_memory=80 * 2**20) for _ in range(2)]
        yield found, nodes
        ray.shutdown()
        found.shutdown()
        signal.signal(signal.SIGTERM, handler)  # the nodes of Ray's Cluster have set their own


def node_of(pid, nodes):
    """The node whose raylet has started a process."""
    parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    by_raylet = {node.all_processes["raylet"][0].process.pid: node for node in nodes}
    return by_raylet[parent]


def test_what_is_wrong_is_one_line_before_anything_is_trained(cluster, tmp_path, monkeypatch):
    address, compare = cluster[0].address, sites.require_equal

    def problem(on, placement=None):
        with pytest.raises(UserError) as found:
            execution = Execution(on=on, placement=placement or Placement())
            item = Item("a", tmp_path / "a", print)
            list(
                jobs.choice.engine(execution.on, tmp_path, execution.placement, None).execute([item], lambda text: None)
            )
        assert "\n" not in str(found.value) and not list(tmp_path.iterdir())
        return str(found.value)

    assert "nothing answers at 127.0.0.1:1 " in problem("ray:127.0.0.1:1")
    assert "expected HOST:PORT" in problem("ray:nowhere")
    assert "run this on a node of the cluster" in problem("ray:ray://head:10001")
    assert "asks for 2 GPUs and no node has more than 0" in problem(f"ray:{address}", Placement(gpus=2))
    assert "asks for 9 CPU cores and no node has more than 1" in problem(f"ray:{address}", Placement(cpus=9))
    other, look = dict.fromkeys(sites.COMPARED, "0.0"), sites.look
    older = lambda site, here, planted: compare(site, replace(here, versions=other), planted)
    monkeypatch.setattr(sites, "require_equal", older)
    assert "has python 3" in problem(f"ray:{address}")
    monkeypatch.undo()
    monkeypatch.setattr(sites, "look", lambda planted: look(Path("/nowhere/at/all")))
    assert "does not see" in problem(f"ray:{address}")


def test_gpus_and_shares_of_them(cluster, tmp_path):
    """GPUs that only Ray believes in: which a run sees, and the share of their memory that JAX is told to take."""
    node = cluster[0].add_node(num_cpus=4, num_gpus=2, object_store_memory=80 * 2**20)

    def note(file, workers):
        """Stands for a run: what JAX would find when it first touches a GPU. Sent to the worker by value."""
        environment = [os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", memory.FRACTION)]
        file.write_text(repr((*environment, workers)))

    try:

        def seen(gpus, count):
            files = [tmp_path / f"{gpus}-{number}" for number in range(count)]
            items = [Item(file.name, file, functools.partial(note, file)) for file in files]
            engine = jobs.choice.engine(f"ray:{cluster[0].address}", tmp_path, Placement(gpus=gpus), None)
            handler = signal.getsignal(signal.SIGTERM)
            ends = list(engine.execute(items, lambda text: None))
            assert signal.getsignal(signal.SIGTERM) is handler
            assert [problem for _, problem in ends] == [None] * count
            return [ast.literal_eval(file.read_text()) for file in files]

        assert seen(2, 1) == [("0,1", None, 3)]  # two GPUs, over which the loop splits the seeds
        halves = seen(0.5, 2)
        assert {device for device, *_ in halves} <= {"0", "1"} and {tuple(rest) for _, *rest in halves} == {
            ("0.450", 1)
        }
    finally:
        cluster[0].remove_node(node)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_a_signal_to_the_command_saves_the_runs_and_is_one_line(cluster, tmp_path, name):
    """At once, and not when some run ends, although Ray waits in C++ and has a handler for SIGTERM there."""
    data, file, out = make_data(tmp_path / "data"), tmp_path / "long.toml", tmp_path / "runs"
    file.write_text(FILE.replace("30_000", "60_000_000"))
    words = ["sweep", str(file), "--on", f"ray:{cluster[0].address}", "--data", str(data), "--out", str(out)]
    process = dualgoal(*words, cache=tmp_path / "cache")
    try:
        while not (begun := [job.out for job in sweep.plan(file, out) if directory.steps(job.out)]):
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.1)
        process.send_signal(getattr(signal, name))
        said = process.communicate(timeout=60)[0].splitlines()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert process.returncode == 75 and said[-1].startswith("dualgoal: stopped: dualgoal sweep "), said
    assert not any("SIGTERM" in line or "Traceback" in line for line in said), said
    for run in begun:
        status = owner.read_status(run)
        assert status.state == "interrupted" and directory.steps(run)[-1] == status.step > 0


def test_a_lost_node_costs_time_and_no_result(cluster, tmp_path, monkeypatch):
    found, nodes = cluster
    data, file = make_data(tmp_path / "data"), tmp_path / "four.toml"
    file.write_text(FILE)
    said, removed = [], []

    def remove_a_node():
        outs = [job.out for job in sweep.plan(file, tmp_path / "ray")]
        while not removed:
            for out in outs:
                status = owner.read_status(out)
                if status and status.state == "running" and directory.steps(out):
                    node = node_of(status.pid, nodes)
                    found.remove_node(node, allow_graceful=False)
                    removed.append((out, directory.steps(out)[-1]))
                    return
            time.sleep(0.02)

    remover = threading.Thread(target=remove_a_node)
    remover.start()
    execution = Execution(on=f"ray:{found.address}", data=data)
    done = sweep.carry_out(file, out=tmp_path / "ray", execution=execution, say=said.append)
    remover.join()
    assert not done.problems and any("lost its worker" in line for line in said), said
    sweep.carry_out(file, out=tmp_path / "here", execution=Execution(data=data, quiet=True), say=said.append)
    for job in sweep.plan(file, tmp_path / "ray"):
        same = tmp_path / "here" / job.out.relative_to(tmp_path / "ray")
        assert job.status == "finished" and record(job.out) == record(same)
        steps = [row["step"] for row in directory.inspect(job.out).metrics if row["split"] == "train"]
        assert steps == list(range(1_500, 31_500, 1_500)), "every row exactly once"
    assert os.path.exists(tmp_path / "ray" / jobs.LOG)

"""Rings and meshes of real daemons on loopback, with probe workers or real ones, for tests of the whole: everything starts in a
folder of its own, on free ports, and everything that was started is stopped when the test ends, however it ends."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import zlib

import pytest

BUILD = pathlib.Path(os.environ.get("BUILD", "build")).resolve()
SLOW = 4 if "san-" in str(BUILD) else 1  # sanitizers take their time

CONFIG = """{method}
[node]
name = {name}
run = test
runtime_dir = {folder}/run
state_dir = {folder}/state
keys = {folder}/keys
{node}
[sync]
interval = {interval}
{ring}
[mesh]
shards = {shards}
{mesh}
[members]
{members}
"""

# A model that a step takes a millisecond for.
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32", "hidden_act": "silu",
    "vocab_size": 256, "hidden_size": 16, "intermediate_size": 44, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}


def free_ports(count):
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def wait_until(condition, seconds, what):
    """Returns what condition returns as soon as that is true."""
    end = time.monotonic() + seconds * SLOW
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < end, f"not within {seconds * SLOW} s: {what() if callable(what) else what}"
        time.sleep(0.05)


def ready(identity):
    """What a ZeroMQ DEALER says first (ZMTP 3.0, no security)."""
    properties = b"".join(bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value
                          for name, value in ((b"Socket-Type", b"DEALER"), (b"Identity", identity)))
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
    command = b"\x05READY" + properties
    return greeting + bytes([4, len(command)]) + command


class Node:
    """One member: its config, its daemon, its worker."""

    def __init__(self, ring, name, port):
        self.ring, self.name, self.port = ring, name, port
        self.folder = ring.folder / name
        self.config = self.folder / "editd.conf"
        self.log_file = self.folder / "log"
        self.daemon = self.worker = None
        self.starts = 0
        (self.folder / "run").mkdir(parents=True)
        (self.folder / "state").mkdir()

    def configure(self, node="", ring="", interval=5, members=None, method=None, shards=None, mesh=""):
        """mesh: more of [mesh]; [places] and [shard_addresses] may follow. ring: more of [sync], and sections as well."""
        members = members or [f"{n.name} = tcp://127.0.0.1:{n.port}" for n in self.ring.nodes]
        self.config.write_text(CONFIG.format(name=self.name, folder=self.folder, node=node, ring=ring, interval=interval,
                                             shards=self.ring.shards if shards is None else shards, mesh=mesh,
                                             method=f"method = {method}" if method else "", members="\n".join(members)))

    def start(self):
        with open(self.log_file, "ab") as log:
            self.daemon = subprocess.Popen([BUILD / "editd", "-c", self.config], stderr=log)
        self.starts += 1
        # Sockets of one that was killed are there before this one listens.
        wait_until(lambda: self.log().count("listening on") == self.starts or self.daemon.poll() is not None, 5, self.log)
        assert self.daemon.poll() is None, self.log()

    def start_worker(self, *options):
        """The probe worker."""
        self.run_worker([BUILD / "tests/probe_worker", *map(str, options), self.folder / "run/worker.sock"])

    def start_training(self, data, *options, model=None):
        """The real worker with a tiny model on a file of text; its settings are for a few steps in a few seconds."""
        path = self.ring.write_model(model or {})
        self.run_worker([BUILD / "edit-worker", "train", "--socket", self.folder / "run/worker.sock", "--model", path,
                         "--data", data, "--batch", "2", "--context", "16", "--threads", "1", "--log-interval", "0",
                         *map(str, options)])

    def run_worker(self, command):
        with open(self.folder / "worker", "ab") as output:
            self.worker = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT,
                                           env=dict(os.environ, OPENBLAS_NUM_THREADS="1"))

    def worker_text(self):
        return (self.folder / "worker").read_text()

    def log(self):
        return self.log_file.read_text()

    def ctl(self, *words, status=0):
        """Asks with editctl; returns its JSON. status None: whatever it exits with."""
        done = subprocess.run([BUILD / "editctl", "-s", self.folder / "run/control.sock", "-t", str(3 * SLOW), "--json",
                               *map(str, words)], capture_output=True, text=True)
        assert status is None or done.returncode == status, (done.returncode, done.stdout, done.stderr, self.log())
        return json.loads(done.stdout) if done.stdout else {}

    def status(self):
        return self.ctl("status")

    def wait_for(self, key, value, seconds=15):
        wait_until(lambda: self.status()[key] == value, seconds,
                   lambda: (self.name, key, value, self.status(), [node.log() for node in self.ring.nodes]))

    def wait_for_round(self, number, seconds=20):
        wait_until(lambda: self.status()["round"] >= number, seconds, lambda: (self.status(), self.log()))

    def wait_for_log(self, text, seconds=15):
        wait_until(lambda: text in self.log(), seconds, lambda: f"{text!r} in the log of {self.name}:\n{self.log()}")

    def stop(self, seconds=2):
        """SIGTERM; the daemon must be gone in time, with exit 0."""
        self.daemon.terminate()
        begin = time.monotonic()
        assert self.daemon.wait(10 * SLOW) == 0, self.log()
        assert time.monotonic() - begin < seconds * SLOW
        self.daemon = None

    def kill(self):
        self.daemon.kill()
        self.daemon.wait()
        self.daemon = None


class Ring:
    """Several members that know each other. With shards above 1 a mesh: `shards` nodes side by side hold a replica."""

    def __init__(self, folder, count, shards):
        self.folder, self.shards = folder, shards
        self.nodes = []
        self.nodes = [Node(self, chr(ord("a") + i), port) for i, port in enumerate(free_ports(count))]
        for node in self.nodes:
            node.configure()

    def start(self):
        for node in self.nodes:
            node.start()

    def start_workers(self, *options):
        for node in self.nodes:
            node.start_worker(*options)

    def start_training(self, data, *options, model=None):
        for node in self.nodes:
            node.start_training(data, *options, model=model)

    def write_model(self, changes):
        """A folder with the config of the tiny model and these changes."""
        text = json.dumps(MODEL | changes)
        folder = self.folder / f"model-{zlib.crc32(text.encode())}"
        if not folder.exists():  # workers may be reading it
            folder.mkdir()
            (folder / "config.json").write_text(text)
        return folder

    def columns(self):
        """The nodes that hold the same pieces: lists in the order of the replicas."""
        return [self.nodes[column::self.shards] for column in range(self.shards)]

    def wait_until_finished(self, seconds=30):
        for node in self.nodes:
            node.wait_for("phase", "finished", seconds)

    def check_hashes(self):
        """Every member says that all of its column hold the same bits of one round; if no round is under way, it is the same round
        and the same bits for all. Returns the hashes by layer that the first member tells; of a mesh, a list for each column."""
        columns = [self.check_column(nodes) for nodes in self.columns()]
        return columns[0] if self.shards == 1 else columns

    def check_column(self, nodes):
        answers = [wait_until(lambda n=node: (lambda a: a if a["equal"] else None)(n.ctl("hash", status=None)), 5,
                              lambda n=node: n.ctl("hash", status=None)) for node in nodes]
        hashes = [[layer["members"][0]["hash"] for layer in answer["layers"]] for answer in answers]
        if all(node.status()["phase"] in ("finished", "paused") for node in self.nodes):
            assert all(h == hashes[0] for h in hashes)
        return hashes[0]

    def check_no_fault(self):
        """Nobody died of a failed CHECK or a sanitizer."""
        for node in self.nodes:
            if not node.log_file.exists():
                continue
            text = node.log()
            assert "check failed" not in text and "Sanitizer" not in text and "runtime error" not in text, text


@pytest.fixture
def ring():
    """A function that makes a ring of so many members, or a mesh: ring(6, shards=2) is one of three replicas of two nodes."""
    made = []
    # Short, because paths of sockets must be.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="editd-"))

    def make(count, shards=1):
        made.append(Ring(folder / str(len(made)), count, shards))
        return made[-1]

    yield make
    for one in made:
        for node in one.nodes:
            for process in (node.worker, node.daemon):
                if process and process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
    for one in made:
        one.check_no_fault()
    shutil.rmtree(folder)

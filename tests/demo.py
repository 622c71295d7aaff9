#!/usr/bin/env python3
"""The demonstration: N nodes on this machine train one small Llama on Debian's fortunes, each on its own part of it.

    tests/demo.py [--nodes 4 | --mesh 2x2] [--steps 400] [--poison] [--build build] [--out build/demo]

With --mesh NxM there are N replicas of the model, each cut over M nodes that hold a piece of every layer. Every node is an editd and
an edit-worker of its own, as on as many machines; they meet on loopback. All that is shown is read from the running daemons by
editctl. The last line is `demo: ok ...` (exit 0) only if the model is better than a table of byte pairs can be, all nodes (of a
column of the mesh) hold the same bits, these changed at every round, and every node had its weight in the last one; otherwise
`demo: FAILED why` (exit 1). Whatever happens, no process started here is left behind.
"""

import argparse
import collections
import ctypes
import hashlib
import json
import math
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

LOSS_LIMIT = 2.5           # nats per byte, on text that no node has seen
HELD_OUT_EVERY = 50        # one fortune of so many is held out
RUN = "fortunes"
BATCH, CONTEXT = 8, 128    # sequences per step and node, bytes per sequence
SOCKET_PATH_MAX = 107      # bytes of a unix socket's path
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STALL_S = 90               # without a round for so long, the demonstration gives up
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32", "hidden_act": "silu",
    "vocab_size": 256, "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 4, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "initializer_range": 0.02,
    "bos_token_id": None, "eos_token_id": None,
}


class Failed(Exception):
    """Why the demonstration cannot say ok."""


def say(text=""):
    """Prints at once, also into a pipe."""
    print(text, flush=True)


# ---- Text ------------------------------------------------------------------------------------------------------------

def read_fortunes(folder):
    """Every fortune of Debian's packages fortunes and fortunes-min, once, in a fixed order; and the number of files."""
    files = [path for path in sorted(folder.glob("*")) if path.is_file() and not path.is_symlink() and not path.suffix]
    fortunes = {}
    for path in files:
        for text in path.read_bytes().split(b"\n%\n"):
            fortunes.setdefault(text.strip(b"\n%"), None)
    fortunes.pop(b"", None)
    if len(fortunes) < 1000:
        raise Failed(f"no fortunes in {folder} (apt install fortunes fortunes-min)")
    return list(fortunes), len(files)


def pair_entropy(text):
    """Entropy of a byte given the one before, nats: what a table of byte pairs can reach."""
    pairs, singles = collections.Counter(zip(text, text[1:])), collections.Counter(text[:-1])
    return -sum(n * math.log(n / singles[first]) for (first, _), n in pairs.items()) / (len(text) - 1)


def write_text(out, folder):
    """Writes train.txt and heldout.txt, tells about them, returns the entropy of byte pairs."""
    fortunes, file_count = read_fortunes(folder)
    heldout = fortunes[HELD_OUT_EVERY - 1::HELD_OUT_EVERY]
    del fortunes[HELD_OUT_EVERY - 1::HELD_OUT_EVERY]
    train, heldout = b"\n%\n".join(fortunes), b"\n%\n".join(heldout)
    (out / "train.txt").write_bytes(train)
    (out / "heldout.txt").write_bytes(heldout)
    entropy = pair_entropy(train)
    say(f"text     {file_count} files of fortunes: {len(train) / 1e6:.2f} MB to train on, {len(heldout) / 1e3:.0f} kB "
        f"held out; a table of byte pairs reaches {entropy:.2f} nats per byte")
    return entropy


# ---- Processes -------------------------------------------------------------------------------------------------------

def die_with_parent():
    """In the child: the kernel ends it when the demonstration dies, however that happens."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Processes:
    """All that was started. Stops it all, workers before daemons."""

    def __init__(self):
        self.list = []

    def start(self, name, command, log, **more):
        """Starts command in a process group of its own, its output (unless more says otherwise) in the file log."""
        with open(log, "ab") as file:
            try:
                process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stderr=file,
                                           start_new_session=True, preexec_fn=die_with_parent, **{"stdout": file, **more})
            except OSError as error:
                raise Failed(f"{command[0]} does not start ({error.strerror})") from error
        process.name, process.log = name, log
        self.list.append(process)
        return process

    def check(self):
        """Raises Failed if a process ended badly, with the last words of its log."""
        for process in self.list:
            if process.poll() not in (None, 0):
                words = pathlib.Path(process.log).read_text(errors="replace").strip().splitlines()
                how = (f"ended with status {process.returncode}" if process.returncode > 0 else
                       f"was killed by {signal.Signals(-process.returncode).name}")
                raise Failed(f"{process.name} {how}"
                             + (f", its last words: {words[-1]} (all of them in {process.log})" if words else ""))

    def stop(self):
        """TERM to all groups, last started first; KILL to those that are still there after 5 s."""
        for process in reversed(self.list):
            self.signal(process, signal.SIGTERM)
        deadline = time.monotonic() + 5
        for process in reversed(self.list):
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
            self.signal(process, signal.SIGKILL)
            process.wait()

    @staticmethod
    def signal(process, number):
        """Signals the group of a process; it may be gone."""
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass


class Watch:
    """`editctl COMMAND --json --watch` as a stream: line() gives the next object, or None if none came in time."""

    def __init__(self, processes, demo, node, command):
        command_line = demo.editctl(node) + ["--json", "--watch=0.2", command]
        self.process = processes.start(f"editctl {command}", command_line, demo.out / node / f"editctl-{command}.log",
                                       stdout=subprocess.PIPE)
        self.pending = b""

    def line(self, timeout_s):
        """The next answer of the daemon."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self.pending:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                raise Failed("editctl lost the daemon")
            self.pending += more
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)


# ---- The ring --------------------------------------------------------------------------------------------------------

class Demo:
    """One run: its folder, its nodes, and what was seen of it."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.build, self.out = pathlib.Path(arguments.build).resolve(), pathlib.Path(arguments.out).resolve()
        self.names = [f"node-{chr(ord('a') + i)}" for i in range(arguments.nodes)]
        self.shards = arguments.shards
        self.columns = [self.names[column::self.shards] for column in range(self.shards)]
        self.first_row = self.names[:self.shards]
        self.all_nodes = f"all {arguments.nodes} nodes" if arguments.nodes > 1 else "the only node"
        self.processes = Processes()
        self.run_dirs = self.out   # of the nodes' sockets and memory
        self.rounds = []           # status of node-a after each round
        self.losses = []           # per round: {name: loss}
        self.hashes = [{} for _ in self.columns]  # of each column: round -> hashes of all layers, one text
        self.set_round = None      # round after which the live change is in force
        self.problems = []

    # -- before

    def prepare(self):
        """An empty folder for the run; sockets elsewhere if their paths would be too long here."""
        for name in ("editd", "edit-worker", "editctl"):
            if not os.access(self.build / name, os.X_OK):
                raise Failed(f"{self.build / name} is not there (run make first)")
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        if len(os.fsencode(self.out / self.names[0] / "run" / "control.sock")) > SOCKET_PATH_MAX:
            self.run_dirs = pathlib.Path(tempfile.mkdtemp(prefix="editd-demo-"))
        (self.out / "config.json").write_text(json.dumps(MODEL, indent=2) + "\n")

    def run_dir(self, name):
        """Runtime folder of a node."""
        return self.run_dirs / name / "run"

    def write_configs(self):
        """One editd.conf per node, as they would stand on N machines."""
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in self.names]  # all open at once: all different
        ports = [one.getsockname()[1] for one in sockets]
        for one in sockets:
            one.close()
        members = "".join(f"{name} = tcp://127.0.0.1:{port}\n" for name, port in zip(self.names, ports))
        for name in self.names:
            (self.out / name / "state").mkdir(parents=True)
            self.run_dir(name).mkdir(parents=True, mode=0o700)
            (self.out / name / "editd.conf").write_text(
                f"[node]\nname = {name}\ncurve = no\nrun = {RUN}\nruntime_dir = {self.run_dir(name)}\n"
                f"state_dir = {self.out / name / 'state'}\n\n"
                f"[mesh]\nshards = {self.shards}\n\n[sync]\ninterval = {self.arguments.interval}\n\n"
                f"[outer]\nlr = {self.arguments.outer_lr}\nmomentum = {self.arguments.outer_momentum}\n\n"
                f"[penalty]\nwarmup = {self.arguments.penalty_warmup}\n\n"
                f"[members]\n{members}")

    def editctl(self, name):
        """Command line of editctl for a node."""
        return [self.build / "editctl", "-t", "20", "-s", self.run_dir(name) / "control.sock"]

    def ask(self, name, *words, statuses=(0,)):
        """One answer of a node as JSON."""
        done = subprocess.run([str(word) for word in self.editctl(name)] + ["--json", *words], capture_output=True,
                              text=True, check=False)
        if done.returncode not in statuses:
            raise Failed(f"editctl {' '.join(words)} on {name}: {done.stderr.strip()} (exit status {done.returncode})")
        return json.loads(done.stdout) if done.stdout else None

    def start(self):
        """All daemons, then all workers."""
        for name in self.names:
            self.processes.start(f"editd of {name}", [self.build / "editd", "--config", self.out / name / "editd.conf"],
                                 self.out / name / "editd.log")
        for name in self.names:
            self.await_daemon(name)
        environment = dict(os.environ, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
        for name in self.names:
            self.processes.start(f"edit-worker of {name}", self.worker_command(name), self.out / name / "worker.log",
                                 env=environment)

    def worker_command(self, name):
        """Command line of a node's worker; the last node is the one that --poison spoils."""
        arguments = self.arguments
        command = [self.build / "edit-worker", "train", "--socket", self.run_dir(name) / "worker.sock",
                   "--model", self.out, "--data", self.out / "train.txt", "--steps", arguments.steps,
                   "--batch", BATCH, "--context", CONTEXT, "--lr", arguments.lr, "--warmup", arguments.warmup,
                   "--seed", arguments.seed, "--run", RUN, "--threads", 1]
        if arguments.poison and name == self.names[-1]:
            command += [f"--drill=nan@{arguments.steps // 4}", f"--drill=scale@{arguments.steps * 7 // 16}x100+2",
                        f"--drill=slow@{arguments.steps * 3 // 8}x4+{arguments.interval}"]
        return command

    def await_daemon(self, name):
        """Until the daemon answers on its control socket, at most 10 s."""
        deadline = time.monotonic() + 10
        while self.ask(name, "status", statuses=(0, 3)).get("error"):
            self.processes.check()
            if time.monotonic() > deadline:
                raise Failed(f"editd of {name} does not answer (see {self.out / name / 'editd.log'})")
            time.sleep(0.05)

    # -- while it trains

    def show_round(self, status):
        """One line per round."""
        answer = self.ask(self.names[0], "peers")
        peers = answer["peers"] + [peer for name in self.first_row[1:] for peer in self.ask(name, "peers")["peers"]]
        losses = {peer["name"]: float(peer["loss"]) for peer in peers}
        if self.shards > 1:  # what a daemon calls the ring is its column
            status["ring_loss"] = sum(losses.values()) / len(losses)
            status["ring_tokens_per_second"] = sum(float(peer["tokens_per_second"]) for peer in peers)
        before = self.rounds[-1] if self.rounds else {"round": 0, "step": 0}
        if answer["round"] == status["round"] == before["round"] + 1:
            status["step"] = before["step"] + answer["peers"][0]["steps"]  # the worker itself is further by now
        self.rounds.append(status)
        self.losses.append(losses)
        say(f"{status['round']:5}  {status['step']:5}  {float(status['ring_loss']):6.3f}  "
            f"{float(status['ring_tokens_per_second']):8.0f}  {status['sync_us'] / 1e3:8.1f}  "
            f"{status['exposed_us'] / 1e3:10.1f}  {status['round_bytes'] / 1e6:7.2f}  {status['outliers']:8}")
        if status["outliers"] > 0:
            self.show_left_out()

    def show_left_out(self):
        """Who was left out of the last round, and why."""
        penalties = self.ask(self.names[0], "penalties")
        for peer in penalties["peers"]:
            rows = [row for row in peer["layers"] if row["verdict"] != "accepted"]
            if rows:
                row = rows[0]
                layer = penalties["layer_names"][row["layer_index"]]
                say(f"       {peer['name']} left out in {len(rows)} of {len(peer['layers'])} layers, for instance "
                    f"{layer}: {row['verdict']}, norm {float(row['norm']):.3g}, z {float(row['z']):.1f}")

    def take_hashes(self, hashes, answer):
        """Notes the hashes of a round that all members of a column have confirmed."""
        if answer is None or not answer.get("equal") or answer["round"] == 0:
            return
        layers = "".join(layer["members"][0]["hash"] for layer in answer["layers"])
        hashes.setdefault(answer["round"], layers)

    def change_live(self):
        """`editctl set` on one node; then every node is asked."""
        node = self.names[len(self.names) // 2]
        words = ["set", "sync.interval", str(self.arguments.interval * 2), "--wait", "--timeout", "60"]
        say(f"\n$ editctl -s {node}/run/control.sock {' '.join(words)}")
        done = subprocess.run([str(word) for word in self.editctl(node)] + words, capture_output=True, text=True,
                              check=False)
        say((done.stdout + done.stderr).rstrip())
        if done.returncode != 0:
            raise Failed(f"editctl set on {node} ended with status {done.returncode}")
        seen = {}
        for name in self.names:
            setting = self.ask(name, "get", "sync.interval")["settings"][0]
            if setting["value"] != words[2]:  # the last round may not have ended there yet
                self.ask(name, "wait", "round", str(self.ask(node, "status")["round"]), "--timeout", "10")
                setting = self.ask(name, "get", "sync.interval")["settings"][0]
            seen[name] = (setting["value"], setting["since_round"])
        say("each node says: " + ", ".join(f"{name}: {value} since round {since}"
                                           for name, (value, since) in seen.items()) + "\n")
        if len(set(seen.values())) != 1 or seen[node][0] != words[2]:
            self.problems.append("the nodes did not change sync.interval at the same round")
        self.set_round = seen[node][1]

    def train(self):
        """Follows the run to its end."""
        say("round   step    loss  tokens/s   sync ms  exposed ms  sent MB  left out")
        statuses = Watch(self.processes, self, self.names[0], "status")
        watches = [Watch(self.processes, self, name, "hash") for name in self.first_row]
        moved = time.monotonic()
        while True:
            self.processes.check()
            status = statuses.line(5)
            for hashes, watch in zip(self.hashes, watches):
                self.take_hashes(hashes, watch.line(5))
            if status is not None and "error" in status:
                status = None  # no worker has come yet
            if status is not None and status["round"] > (self.rounds[-1]["round"] if self.rounds else 0):
                self.show_round(status)
                moved = time.monotonic()
                if self.set_round is None and status["step"] * 2 >= self.arguments.steps:
                    self.change_live()
            if (status is not None and status["phase"] == "finished"
                    and all(status["round"] in hashes for hashes in self.hashes)):
                return
            if time.monotonic() - moved > STALL_S:
                raise Failed(f"no round for {STALL_S} s; {self.names[0]} says: {status and status['text']}")

    # -- afterwards

    def check_hashes(self):
        """All nodes (of a column) hold the same bits, by every node's own answer, and these were others after every round."""
        for column, (names, hashes) in enumerate(zip(self.columns, self.hashes)):
            where = f"column {column} ({', '.join(names)})" if self.shards > 1 else self.all_nodes
            self.check_column(names, hashes, where)

    def check_column(self, names, hashes, where):
        """The same for nodes that hold the same pieces."""
        last = self.rounds[-1]["round"]
        answers = [self.ask(name, "hash", statuses=(0, 5)) for name in names]
        texts = {json.dumps([answer["round"], answer["layers"]]) for answer in answers}
        equal = all(answer["equal"] for answer in answers) and len(texts) == 1
        layers = answers[0]["layers"]
        say(f"hashes   {'equal' if equal else 'NOT EQUAL'} on {where} in all {len(layers)} layers "
            f"after round {last}; of the first layer: {layers[0]['members'][0]['hash']}")
        if not equal:
            self.problems.append(f"hashes differ on {where}" if self.shards > 1 else "hashes differ")
        for number in range(1, last + 1):
            if number not in hashes:
                self.problems.append(f"the hashes of round {number} were not seen equal on {where}")
            elif number > 1 and hashes[number] == hashes.get(number - 1):
                self.problems.append(f"round {number} changed nothing on {where}")

    def check_weights(self):
        """Every node was accepted with a weight in the last round."""
        for name in self.first_row:
            for peer in self.ask(name, "penalties")["peers"]:
                weights = [row["weight"] for row in peer["layers"] if row["verdict"] == "accepted"]
                if len(weights) < len(peer["layers"]) or min(weights) <= 0:
                    self.problems.append(f"{peer['name']} was left out of the last round")

    def checkpoint(self):
        """Folder of the model after the last round: the checkpoint that node-a wrote; those of the others must be the same. In a
        mesh the latter holds for each column, and the model is joined from pieces: that of column 0 from the first replica, that
        of column 1 from the second, and so on."""
        folders = {}
        for name in self.names:
            folders[name] = self.ask(name, "status")["checkpoint"]
            if not folders[name]:
                raise Failed(f"{name} has written no checkpoint")
        for names in self.columns:
            files = [next(path for path in pathlib.Path(folders[name]).glob("*.safetensors") if path.name != "state.safetensors")
                     for name in names]
            if len({(path.name, hashlib.sha256(path.read_bytes()).digest()) for path in files}) != 1:
                self.problems.append(f"the checkpoints of {', '.join(names)} differ")
        if self.shards == 1:
            return pathlib.Path(folders[self.names[0]])
        pieces = [folders[names[column % len(names)]] for column, names in enumerate(self.columns)]
        self.worker_tool("join", "--out", self.out / "model", *pieces)
        return self.out / "model"

    def worker_tool(self, *words):
        """Output of a tool of edit-worker."""
        done = subprocess.run([str(self.build / "edit-worker"), *map(str, words)], capture_output=True, check=False)
        if done.returncode != 0:
            raise Failed(f"edit-worker {words[0]}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout.decode(errors="replace")

    def draw(self, entropy):
        """loss.svg by gnuplot, from loss.dat: one line per round with step, ring loss, and the loss of each node."""
        rows = [[status["step"], status["ring_loss"], *(losses[name] for name in self.names)]
                for status, losses in zip(self.rounds, self.losses)]
        (self.out / "loss.dat").write_text("# step ring " + " ".join(self.names) + "\n"
                                           + "".join(" ".join(map(str, row)) + "\n" for row in rows))
        nodes = ", ".join(f"'loss.dat' using 1:{i + 3} with lines lw 1 title '{name}'"
                          for i, name in enumerate(self.names))
        changed = ""
        if self.set_round is not None:
            step = next(status["step"] for status in self.rounds if status["round"] >= self.set_round)
            changed = (f"set arrow from {step}, graph 0 to {step}, graph 1 nohead dt 3\n"
                       f"set label 'sync.interval {self.arguments.interval * 2}' at {step}, graph 0.95 offset 1,0\n")
        script = (f"set terminal svg size 800,480 background 'white'\nset output 'loss.svg'\n"
                  f"set xlabel 'local steps per node'\nset ylabel 'loss (nats per byte)'\nset grid\n{changed}"
                  f"plot {nodes}, 'loss.dat' using 1:2 with linespoints lw 2 lc 'black' title 'ring', "
                  f"{entropy} with lines dt 2 lc 'gray' title 'table of byte pairs'\n")
        try:
            done = subprocess.run(["gnuplot"], input=script, cwd=self.out, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise Failed("gnuplot is not installed (apt install gnuplot-nox)") from None
        if done.returncode != 0:
            raise Failed(f"gnuplot: {done.stderr.strip()}")

    def conclude(self, entropy):
        """What came out; returns the held-out loss."""
        first, last = self.losses[0], self.rounds[-1]
        say(f"\nloss     first round {sum(first.values()) / len(first):.3f}, last round {float(last['ring_loss']):.3f}")
        self.check_hashes()
        self.check_weights()
        folder = self.checkpoint()
        result = json.loads(self.worker_tool("eval", "--model", folder, "--data", self.out / "heldout.txt",
                                             "--context", CONTEXT, "--json"))
        say(f"heldout  loss {result['loss']:.4f} nats per byte over {result['tokens']} bytes that no node has seen "
            f"(limit {LOSS_LIMIT}; byte pairs {entropy:.2f})")
        if not result["loss"] < LOSS_LIMIT:
            self.problems.append(f"held-out loss {result['loss']:.4f} is not below {LOSS_LIMIT}")
        say(f"saved    {folder}")
        self.draw(entropy)
        say(f"picture  {self.out / 'loss.svg'}")
        say("sample")
        for seed in (1, 2, 3):
            text = self.worker_tool("sample", "--model", folder, "--prompt", "The ", "--temperature", "0.7",
                                    "--tokens", CONTEXT - 8, "--seed", seed)
            say("  | " + text.strip().replace("\n", "\n  | ") + "\n")
        return result["loss"]

    def run(self):
        """From nothing to the last line but one; returns that one."""
        begin = time.monotonic()
        self.prepare()
        entropy = write_text(self.out, pathlib.Path(self.arguments.corpus))
        self.write_configs()
        parameters = (2 * 256 * 128 + 128 + 4 * (4 * 128 * 128 + 3 * 128 * 352 + 2 * 128)) / 1e6
        say(f"model    a Llama of {parameters:.2f} M parameters that reads and writes bytes")
        if self.shards > 1:
            rows = ["+".join(self.names[row:row + self.shards]) for row in range(0, len(self.names), self.shards)]
            say(f"mesh     {', '.join(rows)}: each row is a replica of the model, each node holds a piece of every layer")
        say(f"{'nodes' if self.shards > 1 else 'ring ':8} {self.all_nodes} on loopback, each with its own part of the text: "
            f"{self.arguments.steps} steps of {BATCH} x {CONTEXT} bytes, a round every {self.arguments.interval} steps")
        say(f"files    configs, logs and checkpoints in {self.out}\n")
        self.start()
        self.train()
        loss = self.conclude(entropy)
        if self.problems:
            raise Failed("; ".join(self.problems))
        return (f"{self.all_nodes}, {self.rounds[-1]['round']} rounds, held-out loss {loss:.3f} < {LOSS_LIMIT}, "
                f"hashes equal and new after every round, {time.monotonic() - begin:.0f} s")

    def clean(self):
        """Nothing of the run stays but its folder; no signal interrupts this."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        self.processes.stop()
        if self.run_dirs != self.out:
            shutil.rmtree(self.run_dirs, ignore_errors=True)


class Parser(argparse.ArgumentParser):
    """Tells what is wrong in one line."""

    def error(self, message):
        self.exit(2, f"demo: {message}\n")


def parse_arguments():
    """The command line; defaults are tuned for the limits above on two cores."""
    parser = Parser(description="N nodes on this machine train one small Llama on Debian's fortunes.")
    parser.add_argument("--nodes", type=int, help="1 to 26; default 4")
    parser.add_argument("--mesh", metavar="NxM", help="N replicas of M nodes each instead of --nodes; 1 to 26 nodes in all")
    parser.add_argument("--steps", type=int, default=400, help="local steps of each node")
    parser.add_argument("--poison", action="store_true",
                        help="the last node gets NaN, is slow, and takes far too long steps, each for a while")
    parser.add_argument("--interval", type=int, default=10, help="steps between two rounds, doubled half-way")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--warmup", type=int, help="steps; default a tenth, up to 40")
    parser.add_argument("--outer-lr", type=float, default=0.8)
    parser.add_argument("--outer-momentum", type=float, default=0.85)
    parser.add_argument("--penalty-warmup", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", default="/usr/share/games/fortunes")
    parser.add_argument("--build", default="build")
    parser.add_argument("--out", default="build/demo")
    arguments = parser.parse_args()
    arguments.shards = 1
    if arguments.mesh is not None:
        sides = re.fullmatch("([1-9][0-9]?)x([1-9][0-9]?)", arguments.mesh, re.ASCII)
        if arguments.nodes is not None:
            parser.error("--mesh and --nodes: one of them only")
        if not sides or int(sides[1]) * int(sides[2]) > 26:
            parser.error(f"--mesh: \"{arguments.mesh}\", expected NxM as in 2x2: N replicas of M nodes each, "
                         f"1 to 26 nodes in all")
        arguments.shards, arguments.nodes = int(sides[2]), int(sides[1]) * int(sides[2])
    elif arguments.nodes is None:
        arguments.nodes = 4
    if not 1 <= arguments.nodes <= 26:
        parser.error("--nodes: 1 to 26")
    if arguments.warmup is None:
        arguments.warmup = min(40, arguments.steps // 10)
    if arguments.steps < 4 * arguments.interval:
        parser.error("--steps: at least four rounds, 4 x --interval")
    return arguments


def stop_by_signal(number, _frame):
    """A signal ends the demonstration like a failure, so that everything is stopped."""
    raise Failed(f"stopped by {signal.Signals(number).name}")


def main():
    """Runs, stops everything, prints the last line."""
    arguments = parse_arguments()
    for number in SIGNALS:
        signal.signal(number, stop_by_signal)
    demo = Demo(arguments)
    try:
        verdict, status = f"demo: ok ({demo.run()})", 0
    except Failed as failure:
        verdict, status = f"demo: FAILED {failure}", 1
    except Exception as error:  # a fault of this program is a failure too, and the last line says so
        traceback.print_exc()
        verdict, status = f"demo: FAILED {error!r}", 1
    finally:
        demo.clean()
    say(verdict)
    return status


if __name__ == "__main__":
    sys.exit(main())

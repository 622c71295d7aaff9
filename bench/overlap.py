#!/usr/bin/env python3
"""How much of a round hides behind the forward pass, by prefetch depth, on a link of a given rate.

    bench/overlap.py [--build build] [--rate 200mbit] [--prefetch 0 1 2] [--rounds 5] [--repeats 4] [--json FILE]

Two nodes, each in a network namespace and pinned to a core of its own, joined by a veth pair that tbf limits both ways, train
the same Llama. `sync.prefetch` is changed on the running ring, depth after depth, again and again, so that all depths see the
same machine. Printed for each depth: medians over its rounds and both nodes of the time that a round took (sync), of that part
of it for which a worker stood still (exposed), and what the link's rate alone would need. Needs root, ip and tc.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

NODES = ("a", "b")
ADDRESSES = {"a": "10.91.0.1", "b": "10.91.0.2"}
PORT = 7700
MODEL = {"model_type": "llama", "hidden_act": "silu", "vocab_size": 256, "hidden_size": 128, "intermediate_size": 352,
         "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 256,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}
INTERVAL = 2       # steps
SETTLE_ROUNDS = 1  # after a change, not counted
PATIENCE_S = 120
ROUND_LINE = re.compile(r"round (\d+): .* sync ([\d.]+) ms, exposed ([\d.]+) ms, (\d+) bytes sent")


def must(*command):
    """Output of a command that must succeed."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(map(str, command))}: {done.stderr.strip()} (exit status {done.returncode})")
    return done.stdout


class Bench:
    """The two namespaces, the nodes in them, and a folder for both."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.folder = tempfile.mkdtemp(prefix="editd-overlap-")
        self.namespaces = {name: f"editd-{os.getpid()}-{name}" for name in NODES}
        self.cores = dict(zip(NODES, sorted(os.sched_getaffinity(0))))
        self.processes = []

    def join(self):
        """A veth pair from one namespace to the other, both ends limited."""
        for name in NODES:
            must("ip", "netns", "add", self.namespaces[name])
        a, b = (self.namespaces[name] for name in NODES)
        must("ip", "-n", a, "link", "add", "ring", "type", "veth", "peer", "name", "ring", "netns", b)
        for name in NODES:
            must("ip", "-n", self.namespaces[name], "address", "add", f"{ADDRESSES[name]}/24", "dev", "ring")
            must("ip", "-n", self.namespaces[name], "link", "set", "ring", "up")
            must("tc", "-n", self.namespaces[name], "qdisc", "replace", "dev", "ring", "root", "tbf", "rate", self.arguments.rate,
                 "burst", "64kb", "latency", "200ms")

    def start(self, name, program, *more):
        """Starts a program of the build in a node's namespace, on its core; output into the folder."""
        with open(os.path.join(self.folder, f"{name}.{program}.log"), "ab") as log:
            command = ["ip", "netns", "exec", self.namespaces[name], "taskset", "-c", str(self.cores[name]),
                       os.path.join(self.arguments.build, program), *more]
            environment = dict(os.environ, OPENBLAS_NUM_THREADS="1")
            self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment))

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def start_nodes(self):
        members = "".join(f"{name} = tcp://{ADDRESSES[name]}:{PORT}\n" for name in NODES)
        with open(self.path("config.json"), "w", encoding="utf-8") as file:
            json.dump(MODEL, file)
        with open(self.path("text"), "w", encoding="utf-8") as file:
            file.write("what is measured is time; any text will do. " * 20000)
        for name in NODES:
            for part in ("run", "state"):
                os.makedirs(self.path(name, part))
            with open(self.path(name, "editd.conf"), "w", encoding="utf-8") as file:
                file.write(f"[node]\nname = {name}\nplain = anywhere\nruntime_dir = {self.path(name, 'run')}\n"
                           f"state_dir = {self.path(name, 'state')}\n[sync]\ninterval = {INTERVAL}\n[members]\n{members}")
            self.start(name, "editd", "--config", self.path(name, "editd.conf"))
        for name in NODES:
            self.start(name, "edit-worker", "train", "--socket", self.path(name, "run", "worker.sock"), "--model", self.folder,
                       "--data", self.path("text"), "--steps=1000000", "--batch=16", "--context=256", "--lr=1e-5", "--threads=1")

    def editctl(self, *words):
        return must(os.path.join(self.arguments.build, "editctl"), "-t", PATIENCE_S, "-s", self.path("a", "run", "control.sock"),
                    *words)

    def round(self):
        return json.loads(self.editctl("--json", "status"))["round"]

    def await_rounds(self, number):
        self.editctl("wait", "round", number, "--timeout", PATIENCE_S)

    def measure(self):
        """Rounds of each depth: {prefetch: [numbers]}."""
        end = time.monotonic() + PATIENCE_S
        while not os.path.exists(self.path("a", "run", "control.sock")):
            if time.monotonic() > end:
                sys.exit("bench: editd does not listen")
            time.sleep(0.1)
        self.await_rounds(2)
        rounds = {prefetch: [] for prefetch in self.arguments.prefetch}
        for _ in range(self.arguments.repeats):
            for prefetch in self.arguments.prefetch:
                self.editctl("set", "sync.prefetch", prefetch, "--wait", "--timeout", PATIENCE_S)
                first = self.round() + 1 + SETTLE_ROUNDS
                rounds[prefetch] += range(first, first + self.arguments.rounds)
                self.await_rounds(first + self.arguments.rounds)  # one more: a round is told in full at the next one's offer
        return rounds

    def lines(self):
        """Of both nodes: {round: (sync ms, exposed ms, bytes)}, as their logs tell."""
        told = []
        for name in NODES:
            with open(self.path(f"{name}.editd.log"), encoding="utf-8") as file:
                found = (ROUND_LINE.search(line) for line in file)
                told.append({int(one[1]): (float(one[2]), float(one[3]), int(one[4])) for one in found if one})
        return told

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        for namespace in self.namespaces.values():
            subprocess.run(["ip", "netns", "delete", namespace], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def bits_per_second(rate):
    """Of a rate as tc takes it."""
    number, unit = re.fullmatch(r"([\d.]+)([kmg]?)bit", rate).groups()
    return float(number) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[unit]


def report(rounds, told, rate):
    """Prints the table; returns it."""
    print(f"two nodes, {rate} each way, one core each, {INTERVAL} steps an interval, Llama of 0.87 M parameters")
    print(f"  {'prefetch':>8} {'rounds':>7} {'sync ms':>9} {'exposed ms':>11} {'hidden':>7} {'link alone ms':>14}")
    table = []
    for prefetch, numbers in rounds.items():
        rows = [node[number] for node in told for number in numbers if number in node]
        sync, exposed, sent = (statistics.median(column) for column in zip(*rows))
        quartiles = statistics.quantiles([row[1] for row in rows], n=4)
        link = 1000 * sent * 8 / bits_per_second(rate)
        table.append({"prefetch": prefetch, "rounds": len(numbers), "sync_ms": sync, "exposed_ms": exposed,
                      "exposed_quartiles_ms": quartiles[::2], "link_ms": link})
        print(f"  {prefetch:8} {len(numbers):7} {sync:9.1f} {exposed:11.1f} {100 * (1 - exposed / sync):5.0f} % {link:14.1f}"
              f"   (half of the exposed times: {quartiles[0]:.1f} to {quartiles[2]:.1f})")
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--rate", default="200mbit", help="of the link, as tc takes it")
    parser.add_argument("--prefetch", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=5, help="of one depth, before the next one's turn")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--json", help="also write the numbers to this file")
    arguments = parser.parse_args()
    missing = [tool for tool in ("ip", "tc") if not shutil.which(tool)]
    if os.geteuid() != 0 or missing or len(os.sched_getaffinity(0)) < 2:
        print("overlap: left out, needs root, two cores, and ip and tc (apt install iproute2)")
        return
    bench = Bench(arguments)
    try:
        bench.join()
        bench.start_nodes()
        rounds = bench.measure()
        told = bench.lines()
    finally:
        bench.stop()
    table = report(rounds, told, arguments.rate)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(table, file, indent=1)


if __name__ == "__main__":
    main()

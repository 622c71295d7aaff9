"""Rings of real daemons on slow links, on one machine: every member in a network namespace of its own, a veth pair between ring
neighbours, and tbf on both its ends. So each line is full duplex, and nobody shares one with another pair. For bench/ and
experiments/. Needs root, ip and tc; close() takes back everything, however the caller ends.
"""

import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PORT, LINE_PORT = 7700, 7600
LINE = pathlib.Path(__file__).resolve().with_name("line.py")
LINE_BYTES = 24 << 20  # to measure a line with
PATIENCE_S = 120
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Trouble(Exception):
    """Why it cannot go on, in one line."""


def missing(*more):
    """What this machine lacks, as words behind "needs"; empty if nothing. more: other programs that are needed."""
    tools = [tool for tool in ("ip", "tc", *more) if not shutil.which(tool)]
    return " and ".join((["root"] if os.geteuid() != 0 else []) + tools)


def trap_signals():
    """From now on a signal ends the program like a failure, so that everything is taken back."""
    def trouble(number, _frame):
        raise Trouble(f"stopped by {signal.Signals(number).name}")
    for number in SIGNALS:
        signal.signal(number, trouble)


def must(*command):
    """Output of a command that must succeed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Trouble(f"{' '.join(words)}: {done.stderr.strip()} (exit status {done.returncode})")
    return done.stdout


def bits_per_second(rate):
    """Of a rate as tc takes it."""
    number, unit = re.fullmatch(r"([\d.]+)([kmg]?)bit", rate).groups()
    return float(number) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[unit]


def die_with_parent():
    """In the child: the kernel ends it when this program dies, however that happens."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Ring:
    """Members by name, in ring order; a folder for their files, or a passing one; programs from the build folder; sockets and
    segments in a passing folder of `memory`, or where the system has such ones."""

    def __init__(self, names, build, folder=None, memory=None):
        self.names, self.build = list(names), pathlib.Path(build).resolve()
        self.has_own_folder = folder is None
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="editd-ring-")).resolve()
        self.sockets = pathlib.Path(tempfile.mkdtemp(prefix="editd-run-", dir=memory))  # short: a socket's path has little room
        self.namespaces = {name: f"editd-{os.getpid()}-{name}" for name in self.names}
        self.address = {name: f"10.91.0.{i + 1}" for i, name in enumerate(self.names)}
        self.made, self.processes = [], []

    # -- network

    def join(self, rate):
        """The namespaces and the lines between them, each of that rate (as tc takes it) both ways."""
        for name, namespace in self.namespaces.items():
            self.made.append(namespace)
            must("ip", "netns", "add", namespace)
            must("ip", "-n", namespace, "link", "set", "lo", "up")
            must("ip", "-n", namespace, "address", "add", f"{self.address[name]}/32", "dev", "lo")
        count = len(self.names)
        for i in range(count if count > 2 else count - 1):
            self.link(self.names[i], self.names[(i + 1) % count], rate)

    def link(self, left, right, rate):
        """One line: the left member's device `right`, the right member's device `left`."""
        must("ip", "-n", self.namespaces[left], "link", "add", "right", "type", "veth",
             "peer", "name", "left", "netns", self.namespaces[right])
        for name, device, other in ((left, "right", right), (right, "left", left)):
            namespace = self.namespaces[name]
            must("ip", "-n", namespace, "link", "set", device, "up")
            must("ip", "-n", namespace, "route", "add", f"{self.address[other]}/32", "dev", device, "src", self.address[name])
            must("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", "64kb",
                 "latency", "200ms")

    def measure_line(self, left, right):
        """Bytes per second that TCP brings from left to right while nobody else sends, and half a round trip in ms."""
        server = self.start(right, sys.executable, LINE, "serve", self.address[right], LINE_PORT)
        must("ip", "netns", "exec", self.namespaces[left], sys.executable, LINE, "send", self.address[right], LINE_PORT,
             LINE_BYTES)
        if server.wait(PATIENCE_S) != 0:
            self.check()
        answer = json.loads(server.log.read_text())
        return answer["bytes_per_second"], answer["round_trip_us"] / 2000

    # -- processes

    def place(self, name):
        """Words before a command that take it to a member's namespace."""
        return ["ip", "netns", "exec", self.namespaces[name]]

    def start(self, name, *command, core=None):
        """Starts a program in a member's namespace, its output in NAME.PROGRAM.log of the folder; returns the process."""
        words = [str(word) for word in command]
        log = self.folder / f"{name}.{pathlib.Path(words[0]).name}.log"
        pin = [] if core is None else ["taskset", "-c", str(core)]
        environment = dict(os.environ, OPENBLAS_NUM_THREADS="1")
        with open(log, "ab") as file:
            process = subprocess.Popen([*self.place(name), *pin, *words], stdin=subprocess.DEVNULL,
                                       stdout=file, stderr=file, env=environment, start_new_session=True,
                                       preexec_fn=die_with_parent)
        process.name, process.log = f"{pathlib.Path(words[0]).name} of {name}", log
        self.processes.append(process)
        return process

    def check(self):
        """Trouble if a process ended badly, with the last words of its log."""
        for process in self.processes:
            if process.poll() not in (None, 0):
                words = process.log.read_text(errors="replace").strip().splitlines()
                raise Trouble(f"{process.name} ended with {process.returncode}" + (f": {words[-1]}" if words else ""))

    def run_folder(self, name):
        """Runtime folder of a member: its sockets and its segment."""
        return self.sockets / name

    def start_daemons(self, settings, cores=None):
        """One editd per member with these settings of the ring ({name: value}); returns when all answer."""
        method = f"method = {settings['method']}\n" if "method" in settings else ""
        members = "".join(f"{name} = tcp://{self.address[name]}:{PORT}\n" for name in self.names)
        sections = {}
        for name, value in settings.items():
            if name != "method":
                sections.setdefault(name.split(".")[0], []).append(f"{name.split('.')[1]} = {value}\n")
        rest = "".join(f"[{section}]\n{''.join(lines)}" for section, lines in sections.items())
        for name in self.names:
            self.run_folder(name).mkdir(mode=0o700)
            state, config = self.folder / f"{name}.state", self.folder / f"{name}.conf"
            state.mkdir(parents=True)
            config.write_text(f"{method}[node]\nname = {name}\ncurve = no\nplain = anywhere\nruntime_dir = {self.run_folder(name)}\n"
                              f"state_dir = {state}\n{rest}[members]\n{members}")
            self.start_daemon(name, cores and cores[name])
        for name in self.names:
            self.await_daemon(name)

    def start_daemon(self, name, core=None):
        """editd of a member whose config start_daemons has written."""
        return self.start(name, self.build / "editd", "--config", self.folder / f"{name}.conf", core=core)

    def await_daemon(self, name):
        """Until it answers."""
        end = time.monotonic() + PATIENCE_S
        while "error" in self.ask(name, "status", statuses=(0, 3)):
            self.check()
            if time.monotonic() > end:
                raise Trouble(f"editd of {name} does not answer")
            time.sleep(0.05)

    def start_worker(self, name, *options, core=None):
        """edit-worker train with these options."""
        return self.start(name, self.build / "edit-worker", "train", "--socket", self.run_folder(name) / "worker.sock",
                          *options, core=core)

    def editctl(self, name, *words):
        """Command line of editctl for a member."""
        command = (self.build / "editctl", "-t", PATIENCE_S, "-s", self.run_folder(name) / "control.sock", *words)
        return [str(word) for word in command]

    def ask(self, name, *words, statuses=(0,)):
        """One answer of a member's daemon, as JSON."""
        done = subprocess.run(self.editctl(name, "--json", *words), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)
        if done.returncode not in statuses:
            raise Trouble(f"editctl {' '.join(map(str, words))} on {name}: {done.stderr.strip()} "
                          f"(exit status {done.returncode})")
        return json.loads(done.stdout) if done.stdout else {}

    def trace(self, name):
        """`editctl trace`: the first line, and the rounds behind it."""
        lines = [json.loads(line) for line in must(*self.editctl(name, "trace")).splitlines()]
        return lines[0], lines[1:]

    def await_round(self, number, patience_s=PATIENCE_S):
        """Until that round is complete on the first member."""
        end = time.monotonic() + patience_s
        while int(self.ask(self.names[0], "status", statuses=(0, 5)).get("round", 0)) < number:
            self.check()
            if time.monotonic() > end:
                raise Trouble(f"round {number} did not come within {patience_s:.0f} s")
            time.sleep(0.2)

    def stop(self):
        """Ends all processes, last started first; KILL to what is still there after 5 s."""
        for process in reversed(self.processes):
            process.terminate()
        end = time.monotonic() + 5
        for process in reversed(self.processes):
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes = []

    def close(self):
        """Takes back processes, namespaces and passing folders; no signal interrupts this."""
        before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
        self.stop()
        for namespace in self.made:
            subprocess.run(["ip", "netns", "delete", namespace], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(self.sockets, ignore_errors=True)
        if self.has_own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        for number, handler in before.items():
            signal.signal(number, handler)


class Loopback(Ring):
    """The same without namespaces: every member has an address of its own on the loopback device, so it needs nothing."""

    def __init__(self, names, build, folder=None, memory=None):
        super().__init__(names, build, folder, memory)
        pid = os.getpid()
        self.address = {name: f"127.{20 + pid % 200}.{pid // 200 % 250}.{i + 1}" for i, name in enumerate(self.names)}

    def place(self, name):
        return []

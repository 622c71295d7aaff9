"""Rings of real daemons and workers to which faults happen, and when what followed: for bench/robustness.py. Everything is read from what
the daemons say, each line with the time at which it came; a round's line comes up to 50 ms after the round. Nobody is asked while
it is measured, so that asking costs nothing. Processes that are killed come back after a fixed time, as systemd brings them back.
"""

import heapq
import os
import re
import shutil
import signal
import threading
import time

import namespaces

RESTART_S = 2       # RestartSec of both units
AWAY_S = 5          # a machine that starts again; a daemon that stands still
LOOK_S = 0.005      # between two looks at the logs
SAMPLE_S = 1        # between two looks at memory and descriptors
SETTLE_S = 60       # a fault that is not over by then never will be
TROUBLE = re.compile(r"check failed|Sanitizer|runtime error")
VIEW = re.compile(r"view (\d+): member \d+ of (\d+) \((.*)\)")
ROUND = re.compile(r"round (\d+): loss .*?, (\d+) steps, .* (\d+) left out")

# By name: processes that are killed, whether what is in memory and on disk is lost too, how long it lasts.
KINDS = {
    "daemon": (("daemon",), (), RESTART_S),
    "worker": (("worker",), (), RESTART_S),
    "both": (("daemon", "worker"), (), RESTART_S),
    "frozen": ((), (), AWAY_S),
    "power": (("daemon", "worker"), ("memory",), AWAY_S),
    "disk": (("daemon", "worker"), ("memory", "disk"), AWAY_S),
    "leave": ((), (), AWAY_S),
}
DROPPED = ("frozen", "power", "disk", "leave")  # it lasts so long that the others go on without the member
SPARED = ("worker", "frozen")                   # the daemon lives on


class Fault:
    """What happens to a member, and for how long."""

    def __init__(self, kind, victim, down_s=None):
        self.kind, self.victim = kind, victim
        self.killed, self.lost, self.down_s = KINDS[kind]
        self.down_s = down_s or self.down_s
        self.at = self.back_at = None  # when it happened, and when all that was taken was given back


class Member:
    """What a daemon has said of itself so far. Times are those of time.monotonic()."""

    def __init__(self, name):
        self.name = name
        self.view = None      # (time, names) of the view that this start of it is in
        self.views = []       # (time, number, names)
        self.rounds = []      # (time, number, accepted steps)
        self.downs = []       # (time, peer)
        self.ready_at = 0.0   # its worker
        self.trouble = []     # lines of failed checks and sanitizers

    def take(self, at, text, ring):
        """A line of its log."""
        view, done = VIEW.match(text), ROUND.match(text)
        if view:
            self.view = (at, view[3].split())
            self.views.append((at, int(view[1]), view[3].split()))
        elif text.startswith("ring: all ") and self.view is None:
            self.view = (at, list(ring.names))
        elif "listening on" in text:
            self.view = None
        elif done and self.view:
            contributors = len(self.view[1]) - int(done[3]) / ring.layer_count
            self.rounds.append((at, int(done[1]), min(int(done[2]), ring.interval * contributors)))
        elif text.startswith("peer ") and ": down," in text:
            self.downs.append((at, text.split()[1].rstrip(":")))
        elif " ready at step " in text:
            self.ready_at = at
        elif TROUBLE.search(text):
            self.trouble.append(text)


class Reader(threading.Thread):
    """Reads the logs as they grow and gives each whole line its time."""

    def __init__(self, paths):
        super().__init__(daemon=True)
        self.paths, self.lines, self.is_done = paths, [], False

    def run(self):
        files = {name: open(path, "rb") for name, path in self.paths.items()}
        rest = dict.fromkeys(files, b"")
        while not self.is_done:
            for name, file in files.items():
                text = file.read()
                if text:
                    at = time.monotonic()
                    *whole, rest[name] = (rest[name] + text).split(b"\n")
                    self.lines += [(at, name, re.sub(r"^<\d>", "", line.decode(errors="replace"))) for line in whole]
            time.sleep(LOOK_S)
        for file in files.values():
            file.close()


class Ring(namespaces.Loopback):
    """On loopback. `interval` steps make a round; start_worker_of(ring, name) starts a member's worker, whose model has `layer_count`
    layers. Everything happens in turns of the caller's thread."""

    def __init__(self, names, build, interval, layer_count, start_worker_of):
        super().__init__(names, build)
        self.interval, self.layer_count, self.start_worker_of = interval, layer_count, start_worker_of
        self.members = {name: Member(name) for name in self.names}
        self.running = {}    # (what, name): process
        self.due = []        # heap of (time, number, function)
        self.number = 0      # so that what is due at the same time has an order
        self.unplanned = []  # who ended without being told to: lines
        self.samples = []    # (time, name, pid, resident KiB, descriptors, round)
        self.sample_at = 0.0
        self.reader, self.taken = None, 0

    def begin(self, settings):
        """Daemons, workers, and the first round."""
        self.start_daemons({"sync.interval": self.interval, **settings})
        self.running = {("daemon", name): process for name, process in zip(self.names, self.processes)}
        self.reader = Reader({name: self.folder / f"{name}.editd.log" for name in self.names})
        self.reader.start()
        for name in self.names:
            self.running["worker", name] = self.start_worker_of(self, name)
        self.wait(lambda: all(len(member.rounds) > 1 for member in self.members.values()), SETTLE_S, "the first rounds")

    def close(self):
        if self.reader:
            self.reader.is_done = True
            self.reader.join()
        for process in self.running.values():
            process.send_signal(signal.SIGCONT)
        super().close()

    # -- time

    def later(self, seconds, function):
        self.number += 1
        heapq.heappush(self.due, (time.monotonic() + seconds, self.number, function))

    def turn(self):
        """Takes what has been said and does what is due."""
        lines = self.reader.lines
        while self.taken < len(lines):
            at, name, text = lines[self.taken]
            self.members[name].take(at, text, self)
            self.taken += 1
        now = time.monotonic()
        while self.due and self.due[0][0] <= now:
            heapq.heappop(self.due)[2]()
        for (what, name), process in list(self.running.items()):
            if process.poll() is not None:
                self.end_unplanned(what, name, process)
        if now >= self.sample_at:
            self.sample_at = now + SAMPLE_S
            self.sample(now)
        time.sleep(LOOK_S)

    def wait(self, condition, seconds, what):
        """Turns until the condition holds; trouble if it does not in time."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise namespaces.Trouble(f"not within {seconds:.0f} s: {what}; {self.tell()}")
            self.turn()

    def pass_time(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.turn()

    def tell(self):
        """What each member says of itself, in a line."""
        told = []
        for name in self.names:
            answer = self.ask(name, "status", statuses=(0, 1, 3, 5, 6)) if ("daemon", name) in self.running else {}
            told.append(f"{name}: {answer.get('text', 'no answer')}")
        return "; ".join(told)

    def sample(self, now):
        """Memory and descriptors of every daemon."""
        for name in self.names:
            process = self.running.get(("daemon", name))
            try:
                with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
                    resident = re.search(r"VmRSS:\s+(\d+)", file.read())
                descriptors = len(os.listdir(f"/proc/{process.pid}/fd"))
            except (AttributeError, OSError):
                continue  # it is down
            if resident:
                rounds = self.members[name].rounds
                self.samples.append((now, name, process.pid, int(resident[1]), descriptors, rounds[-1][1] if rounds else 0))

    # -- processes

    def end_unplanned(self, what, name, process):
        """Its service starts it anew, and it is told."""
        self.forget(what, name)
        words = process.log.read_text(errors="replace").strip().splitlines()
        self.unplanned.append(f"{process.name} ended with {process.returncode}: {words[-1] if words else 'no word'}")
        self.later(RESTART_S, lambda: self.bring(what, name))

    def forget(self, what, name):
        process = self.running.pop((what, name))
        self.processes.remove(process)
        return process

    def end(self, what, name, number=signal.SIGKILL):
        """Ends a process, if it runs."""
        if (what, name) in self.running:
            process = self.forget(what, name)
            process.send_signal(number)
            process.wait()

    def bring(self, what, name):
        """Starts a daemon or a worker, unless it runs."""
        if (what, name) not in self.running:
            start = self.start_daemon if what == "daemon" else lambda one: self.start_worker_of(self, one)
            self.running[what, name] = start(name)

    # -- faults

    def strike(self, fault):
        """It happens now; what it takes comes back by itself."""
        name = fault.victim
        self.turn()
        fault.at = time.monotonic()
        for what in fault.killed:
            self.end(what, name)
        for folder, is_lost in ((self.run_folder(name), "memory" in fault.lost), (self.folder / f"{name}.state", "disk" in fault.lost)):
            if is_lost:
                shutil.rmtree(folder)
                folder.mkdir(mode=0o700)
        if fault.kind == "frozen":
            self.running["daemon", name].send_signal(signal.SIGSTOP)
        if fault.kind == "leave":
            worker = self.forget("worker", name)  # ends when the others have decided
            self.ask(name, "leave")
            self.later(fault.down_s - 0.5, lambda: (worker.terminate(), worker.wait()))
        self.later(fault.down_s, lambda: self.give_back(fault))

    def give_back(self, fault):
        name = fault.victim
        if fault.kind == "frozen":
            self.running["daemon", name].send_signal(signal.SIGCONT)
        if fault.kind == "leave":
            self.end("daemon", name, signal.SIGTERM)
        self.bring("daemon", name)
        self.bring("worker", name)
        fault.back_at = time.monotonic()

    def is_whole(self, since):
        """All run, are in a view with all, and each has done a round in it after that time with a worker that is there."""
        if len(self.running) != 2 * len(self.names):
            return False
        for member in self.members.values():
            if not member.view or len(member.view[1]) != len(self.names) or not member.rounds:
                return False
            if member.rounds[-1][0] <= max(since, member.view[0], member.ready_at):
                return False
        return True

    def settle(self, fault):
        """Until the fault is over for all."""
        self.wait(lambda: fault.back_at and self.is_whole(fault.back_at), fault.down_s + SETTLE_S,
                  f"all members together after {fault.kind} of {fault.victim}")

    # -- bits

    def compare(self):
        """True if all members hold the same bits of the same round: pauses them, looks, and lets them go on."""
        first = self.names[0]
        self.ask(first, "pause", "--wait", "--timeout", SETTLE_S)
        self.wait(lambda: all(self.ask(name, "status", statuses=(0, 5))["phase"] == "paused" for name in self.names), SETTLE_S, "a pause")
        told = []
        for name in self.names:
            answer = self.ask(name, "hash", statuses=(0, 1, 5))
            told.append([(layer["round"], sorted({one["hash"] for one in layer["members"]})) for layer in answer["layers"]])
        self.ask(first, "resume", "--wait", "--timeout", SETTLE_S)
        return all(len(hashes) == 1 for layers in told for _, hashes in layers) and all(layers == told[0] for layers in told)

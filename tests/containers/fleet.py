"""Nodes under systemd in a lab of containers, as on as many machines: what is installed runs as its units say, is configured by files
and asked by editctl. A scenario runs inside `with Fleet(...)`; when it ends well, the ring must be well too."""

import json
import pathlib
import re
import shutil
import subprocess
import time

from netlab import LabError, address, processes

PORT = 7700
CPUS = 1.8  # of the machine's cores for all nodes together: the rest is for whoever watches them
SLOW_MACHINE = 60  # seconds that anything may take that is not the matter of a scenario

CONFIG = """{method}
[node]
name = {name}
run = test
plain = anywhere
[sync]
interval = {interval}
[mesh]
shards = {shards}
{settings}
[members]
{members}
"""
TRAIN = """EDIT_WORKER_OPTIONS="--run test --model /srv/editd/model --data /srv/editd/text.txt --holdout 0.02 --steps 1000000 \
--batch 4 --context 64 --threads 1 {more}"
"""


def wait_until(condition, seconds, what):
    """Returns what condition returns as soon as that is true. what: text, or a function that returns it."""
    end = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < end, f"not within {seconds} s: {what() if callable(what) else what}"
        time.sleep(0.2)


class Node:
    """One machine: its container, its files, its services."""

    def __init__(self, fleet, number):
        self.fleet, self.number, self.name = fleet, number, f"n{number}"
        self.journal_folder = fleet.lab.journals / self.name
        self.pid = None

    # ---- The machine ----

    def boot(self):
        self.fleet.containers.append(self.fleet.lab.start_node(self.name, self.number, self.fleet.cpus))
        self.wait_for_boot()

    def wait_for_boot(self):
        self.pid = self.fleet.lab.init_pid(self.name)
        wait_until(lambda: self.run("systemctl", "is-system-running", status=None).strip() in ("running", "degraded"), SLOW_MACHINE,
                   f"systemd of {self.name} is up")
        assert self.run("systemctl", "--failed", "--plain", "--no-legend") == ""

    def power_off(self):
        """As if the plug were pulled: its neighbours hear nothing any more, not even that it is gone."""
        for other in self.fleet.nodes:
            if other is not self:
                self.fleet.cut(self, other)
        self.fleet.lab.podman("kill", self.name)

    def power_on(self):
        """Boots again, with the disk that it had."""
        self.fleet.lab.heal()
        self.fleet.lab.podman("start", self.name)
        self.wait_for_boot()

    def freeze(self):
        self.fleet.lab.podman("pause", self.name)

    def thaw(self):
        self.fleet.lab.podman("unpause", self.name)

    def limit_cpu(self, share):
        """To this share of what the other nodes have."""
        self.fleet.lab.podman("update", "--cpus", f"{self.fleet.cpus * share:.3f}", self.name)

    def limit_rate(self, rate):
        """Of what it sends; a rate as `tc` takes it."""
        self.enter("--net", "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "16kb", "latency", "200ms")

    def enter(self, *command, status=0):
        """Output of a program that runs in these namespaces of the node."""
        done = subprocess.run(["nsenter", "--target", str(self.pid), *map(str, command)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False, stdin=subprocess.DEVNULL)
        assert status is None or done.returncode == status, (self.name, command, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def run(self, *command, status=0):
        """Output of a program of the node. status: its exit status, None: any."""
        return self.enter("--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd", *command, status=status)

    def file(self, path):
        """A file of the node, to read or write from here."""
        return pathlib.Path(f"/proc/{self.pid}/root") / path.lstrip("/")

    # ---- Its services ----

    def configure(self):
        fleet = self.fleet
        members = "\n".join(f"{node.name} = tcp://{address(node.number)}:{PORT}" for node in fleet.nodes)
        self.file("/etc/editd/editd.conf").write_text(CONFIG.format(
            name=self.name, interval=fleet.interval, shards=fleet.shards, settings=fleet.settings, members=members,
            method=f"method = {fleet.method}"))
        self.train_with()

    def train_with(self, more=""):
        """Sets the options of the worker, these after the usual ones."""
        self.file("/etc/default/editd-worker").write_text(TRAIN.format(more=more))

    def drop_in(self, unit, text):
        """Changes a unit, as an administrator does."""
        folder = self.file(f"/etc/systemd/system/{unit}.service.d")
        folder.mkdir(parents=True)
        (folder / "test.conf").write_text(text)
        self.run("systemctl", "daemon-reload")

    def start(self):
        self.run("systemctl", "enable", "--quiet", "--now", "editd", "editd-worker")

    def stop(self):
        self.run("systemctl", "stop", "editd-worker", "editd")

    def signal(self, unit, name):
        """Sends a signal to the main process of a unit."""
        self.run("systemctl", "kill", "--kill-who=main", f"--signal={name}", unit)

    def property(self, unit, name):
        return self.run("systemctl", "show", "--property", name, "--value", unit).strip()

    def forget_run(self):
        """Removes what belongs to the run in progress; services must be stopped."""
        for name in ("segment", "state"):
            self.file(f"/run/editd/{name}").unlink(missing_ok=True)

    # ---- What it says ----

    def ctl(self, *words, status=0):
        """Asks with editctl; returns its JSON, which is {} if it has no answer."""
        text = self.run("editctl", "--json", "--time=20", *words, status=status)
        return json.loads(text) if text.strip() else {}

    def status(self):
        """{"phase": ""} and nothing else while the daemon does not answer."""
        return self.ctl("status", status=None) or {"phase": ""}

    def journal(self, *options):
        """Entries of all its boots, in order."""
        text = subprocess.run(["journalctl", "--directory", self.journal_folder, "--output=json", "--quiet", *options],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False).stdout
        return [json.loads(line) for line in text.splitlines()]

    def lines(self, unit="editd"):
        return [str(entry.get("MESSAGE")) for entry in self.journal(f"_SYSTEMD_UNIT={unit}.service")]

    def wait_for_line(self, pattern, count=1, unit="editd"):
        """Until so many lines of the unit match."""
        wait_until(lambda: sum(bool(re.search(pattern, line)) for line in self.lines(unit)) >= count, SLOW_MACHINE,
                   lambda: f"{count} x {pattern!r} in the journal of {self.name}: {self.lines(unit)[-10:]}")

    def losses(self):
        """Mean loss of all members in each round, as logged."""
        return [float(match[1]) for line in self.lines() if (match := re.match(r"round \d+: loss ([0-9.]+)", line))]

    def member_in(self, round_record):
        return next(member for member in round_record["members"] if member["name"] == self.name)

    def rounds(self, last):
        """What the last rounds have cost, oldest first."""
        lines = self.run("editctl", "trace", f"--last={last}").splitlines()
        return [json.loads(line) for line in lines[1:]]


class Fleet:
    """So many nodes that know each other. When the scenario ends well they must have trained on, hold the same bits, have learned
    something, and their journals may hold these errors (patterns of which each must occur) and no others."""

    def __init__(self, lab, scenario, count=4, *, method="edit", interval=20, shards=1, settings="", errors=()):
        self.lab, self.scenario, self.method, self.interval, self.shards = lab, scenario, method, interval, shards
        self.settings, self.errors = settings, errors
        self.cpus = CPUS / count
        self.containers = []
        self.nodes = [Node(self, number + 1) for number in range(count)]
        self.kept = lab.kept / scenario

    def __enter__(self):
        shutil.rmtree(self.kept, ignore_errors=True)
        try:
            for node in self.nodes:
                node.boot()
                node.configure()
        except BaseException:
            self.end(is_well=False)
            raise
        return self

    def __exit__(self, kind, value, traceback):
        is_well = False
        try:
            if kind is None:
                self.check()
                is_well = True
        finally:
            self.end(is_well)

    def end(self, is_well):
        """Removes the nodes, without a trace but their journals if something was wrong."""
        if not is_well:
            self.keep_journals()
        self.lab.remove_nodes()
        shutil.rmtree(self.lab.journals)
        self.lab.journals.mkdir()
        wait_until(lambda: not self.processes(), 5, lambda: f"processes of removed nodes: {self.processes()}")

    def processes(self):
        """Those that run in containers of this fleet."""
        return processes(lambda folder: any(one in (folder / "cgroup").read_text() for one in self.containers))

    def keep_journals(self):
        self.kept.mkdir(parents=True, exist_ok=True)
        for node in self.nodes:
            with open(self.kept / f"{node.name}.log", "w", encoding="utf-8") as file:
                subprocess.run(["journalctl", "--directory", node.journal_folder, "--output=short-precise"], stdout=file,
                               stderr=subprocess.STDOUT, check=False)
            if node.pid:
                text = "".join(node.run("timeout", "10", "editctl", word, status=None) for word in ("status", "peers", "hash", "mesh"))
                (self.kept / f"{node.name}.status").write_text(text)

    # ---- All nodes ----

    def start(self):
        for node in self.nodes:
            node.start()
        self.wait_for_rounds(3)

    def restart_daemons(self):
        for node in self.nodes:
            node.run("systemctl", "restart", "editd")

    def round(self):
        """Of the node that has done the least; nodes that do not answer do not count."""
        return min(status.get("round", 0) for node in self.nodes if (status := node.status()))

    def wait_for_rounds(self, more, seconds=SLOW_MACHINE):
        """Until each node has done so many rounds more than the slowest has now."""
        goal = self.round() + more
        wait_until(lambda: self.round() >= goal, seconds,
                   lambda: f"round {goal}: {[(node.name, node.status()) for node in self.nodes]}")

    def cut(self, sender, receiver):
        self.lab.cut(sender.number, receiver.number)

    def part(self, *groups):
        """No packet from one group to another."""
        for group in groups:
            for sender in group:
                for receiver in self.nodes:
                    if receiver not in group:
                        self.cut(sender, receiver)

    def wait_until_all_wait(self, who=None):
        """Until every node says that it waits, and for whom: all for this one, or each for somebody else. Returns the round."""
        def is_told(node):
            status = node.status()
            return status.get("stalled_us", 0) > 0 and status["waiting_for"] != node.name and not status["healthy"] and \
                (status["waiting_for"] == who.name if who and node is not who else status["waiting_for"] != "")

        for node in self.nodes:
            wait_until(lambda n=node: is_told(n), SLOW_MACHINE, lambda n=node: f"{n.name} says for whom it waits: {n.status()}")
        return self.round()

    # ---- The end of a scenario ----

    def check(self):
        self.wait_for_rounds(10)
        self.nodes[0].ctl("pause", "--wait", "--timeout", SLOW_MACHINE)
        for node in self.nodes:
            wait_until(lambda n=node: n.status()["phase"] == "paused", SLOW_MACHINE, lambda n=node: f"{n.name} pauses: {n.status()}")
        self.check_hashes()
        self.check_losses()
        self.check_errors()

    def check_hashes(self):
        """All nodes (of each column of a mesh) hold the same bits of one round in all layers, and each says so."""
        for column in range(self.shards):
            nodes = self.nodes[column::self.shards]
            answers = [wait_until(lambda n=node: (lambda a: a if a.get("equal") else None)(n.ctl("hash", status=None)), SLOW_MACHINE,
                                  lambda n=node: f"hashes are equal: {n.ctl('hash', status=None)}") for node in nodes]
            told = {json.dumps([answer["round"]] + [[m["hash"] for m in layer["members"]] for layer in answer["layers"]])
                    for answer in answers}
            assert len(told) == 1, told
            hashes = [{member["hash"] for member in layer["members"]} for layer in answers[0]["layers"]]
            assert hashes and all(len(one) == 1 for one in hashes), hashes

    def check_losses(self):
        losses = self.nodes[0].losses()
        assert len(losses) >= 10
        begin, end = losses[0], sum(losses[-3:]) / 3
        assert end < begin - 0.5, losses

    def check_errors(self):
        found = [f"{node.name}: {entry.get('SYSLOG_IDENTIFIER', '?')}: {entry.get('MESSAGE')}"
                 for node in self.nodes for entry in node.journal("--priority=err")]
        unexpected = [line for line in found if not any(re.search(pattern, line) for pattern in self.errors)]
        assert not unexpected, unexpected
        missing = [pattern for pattern in self.errors if not any(re.search(pattern, line) for line in found)]
        assert not missing, (missing, found)
        assert not any(node.property("editd", "Result") != "success" for node in self.nodes)

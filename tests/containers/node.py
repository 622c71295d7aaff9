"""One machine of the container tests: its container, its files, its services under systemd, and what it says of itself."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import time

from netlab import address

PORT = 7700
SLOW_MACHINE = 60  # seconds that anything may take that is not the matter of a scenario

CONFIG = """method = {method}
[node]
name = {name}
run = test
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
        time.sleep(0.1)


class Node:
    """One machine of a fleet. number: of its address; since: the moment from which on its journal is looked at."""

    def __init__(self, fleet, number):
        self.fleet, self.number, self.name = fleet, number, f"n{number}"
        self.lab = fleet.lab
        self.journal_folder = self.lab.journals / self.name
        self.pid = None
        self.since = 0

    # ---- The machine ----

    def boot(self):
        """Begins to boot a new machine, with a new disk."""
        self.fleet.containers.append(self.lab.start_node(self.name, self.number, self.fleet.cpus))

    def wait_for_boot(self):
        self.pid = self.lab.init_pid(self.name)
        wait_until(lambda: self.run("systemctl", "is-system-running", status=None).strip() in ("running", "degraded"), SLOW_MACHINE,
                   f"systemd of {self.name} is up")
        assert self.run("systemctl", "--failed", "--plain", "--no-legend") == ""

    def power_off(self):
        """As if the plug were pulled: its neighbours hear nothing any more, not even that it is gone."""
        self.fleet.part([self])
        self.lab.podman("kill", self.name)
        self.pid = None

    def power_on(self):
        """Boots again, with the disk that it had, and lines that work."""
        self.fleet.rejoin(self)
        self.lab.podman("start", self.name)
        self.wait_for_boot()

    def replace_disk(self):
        """The machine, switched off, gets a new disk with what is installed, the config and the keys that it had, and is switched on."""
        self.fleet.rejoin(self)
        self.lab.remove_node(self.name)
        self.boot()
        self.wait_for_boot()
        self.configure()
        for other in self.fleet.nodes:
            self.know(other)

    def freeze(self):
        self.lab.podman("pause", self.name)

    def thaw(self):
        self.lab.podman("unpause", self.name)

    def limit_cpu(self, share):
        """To this share of what the other nodes have."""
        self.lab.podman("update", "--cpus", f"{self.fleet.cpus * share:.3f}", self.name)

    @contextlib.contextmanager
    def limited_rate(self, rate):
        """Of what it sends; a rate as `tc` takes it."""
        self.enter("--net", "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "16kb", "latency", "200ms")
        yield
        self.enter("--net", "tc", "qdisc", "del", "dev", "eth0", "root")

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

    def configure(self, members=None):
        """Writes what an administrator does: config, keys, options of the worker. members: nodes of its list, first all of the fleet."""
        fleet = self.fleet
        listed = "\n".join(f"{node.name} = tcp://{address(node.number)}:{PORT}" for node in members or fleet.nodes)
        self.file("/etc/editd/editd.conf").write_text(CONFIG.format(
            name=self.name, method=fleet.method, interval=fleet.interval, shards=fleet.shards, settings=fleet.settings, members=listed))
        self.file("/etc/default/editd-worker").write_text(TRAIN.format(more=""))
        if not self.own_keys.exists():
            self.make_key()
        self.give_keys(self.own_keys)

    @property
    def own_keys(self):
        """Where this machine's pair of keys is kept for a new disk."""
        return self.lab.work / "keys" / self.name

    def make_key(self):
        """A new pair, in place of the one that it may have had."""
        self.run("editctl", "keygen", self.name, "--force")
        shutil.rmtree(self.own_keys, ignore_errors=True)
        self.own_keys.mkdir(parents=True)
        for name in ("secret", f"{self.name}.pub"):
            shutil.copy2(self.file("/etc/editd/keys") / name, self.own_keys)

    def know(self, other):
        """Brings the public key of another node here."""
        self.give_keys(other.own_keys, "*.pub")

    def give_keys(self, folder, names="*"):
        keys = self.file("/etc/editd/keys")
        owner = keys.stat()
        for path in folder.glob(names):
            shutil.copy2(path, keys)
            os.chown(keys / path.name, owner.st_uid, owner.st_gid)

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

    def daemon(self):
        """Process id of its editd, as the node counts."""
        return self.property("editd", "MainPID")

    def forget_run(self):
        """Removes what belongs to the run in progress; services must be stopped."""
        for name in ("segment", "state"):
            self.file(f"/run/editd/{name}").unlink(missing_ok=True)

    def begin_anew(self):
        """Removes also that the run was ever begun here."""
        self.forget_run()
        self.file("/var/lib/editd/begun-test").unlink(missing_ok=True)

    def copy_folder(self, other, path):
        """From the disk of another node."""
        parent = self.file(path).parent
        self.run("install", "--directory", "--owner=editd", "--group=editd", "/" + str(parent.relative_to(self.file("/"))))
        subprocess.run(["cp", "--archive", other.file(path), parent], check=True)

    # ---- What it says ----

    def ctl(self, *words, status=0):
        """Asks with editctl; returns its JSON, which is {} if it has no answer."""
        text = self.run("editctl", "--json", "--time=20", *words, status=status)
        return json.loads(text) if text.strip() else {}

    def status(self):
        """{"phase": ""} and nothing else while the daemon does not answer."""
        return (self.pid and self.ctl("status", status=None)) or {"phase": ""}

    def view(self):
        """What it knows of who is a member; {} while it does not answer."""
        return (self.pid and self.ctl("view", status=None)) or {}

    def members(self):
        """Their names, in the order of the ring."""
        return [member["name"] for member in self.view().get("members", [])]

    def journal(self, *options):
        """Entries of all its boots since the scenario began, in order."""
        text = subprocess.run(["journalctl", "--directory", self.journal_folder, "--output=json", "--quiet", f"--since=@{self.since:.6f}",
                               *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False).stdout
        return [json.loads(line) for line in text.splitlines()]

    def lines(self, program="editd", *options):
        return [str(entry.get("MESSAGE")) for entry in self.journal(f"SYSLOG_IDENTIFIER={program}", *options)]

    def wait_for_line(self, pattern, seconds=SLOW_MACHINE):
        """Until a line of editd matches."""
        wait_until(lambda: self.has_line(pattern), seconds, lambda: f"{pattern!r} in the journal of {self.name}: {self.lines()[-10:]}")

    def has_line(self, pattern):
        return any(re.search(pattern, line) for line in self.lines())

    def time_of(self, pattern, since):
        """When editd first said so, after that moment; seconds since 1970, None: it has not."""
        times = [int(entry["__REALTIME_TIMESTAMP"]) / 1e6 for entry in self.journal("SYSLOG_IDENTIFIER=editd")
                 if re.search(pattern, str(entry.get("MESSAGE")))]
        return next((moment for moment in times if moment > since), None)

    def round_lines(self):
        """[(number, mean loss of all members)] of the rounds, as logged."""
        return [(int(match[1]), float(match[2])) for line in self.lines() if (match := re.match(r"round (\d+): loss ([0-9.]+)", line))]

    def member_in(self, round_record):
        return next(member for member in round_record["members"] if member["name"] == self.name)

    def rounds(self, last):
        """What the last rounds have cost, oldest first."""
        lines = self.run("editctl", "trace", f"--last={last}").splitlines()
        return [json.loads(line) for line in lines[1:]]

    def holdings(self):
        """What a daemon that leaks would have more of: files of the node that belong to it, and descriptors."""
        if not self.pid or self.daemon() == "0":
            return {}
        files = {path.name for path in self.file("/run/editd").iterdir()}
        part = {path.name for path in self.file("/var/lib/editd").glob("checkpoints/.*.partial")}
        return {"files": files | part, "descriptors": len(list(self.file(f"/proc/{self.daemon()}/fd").iterdir()))}

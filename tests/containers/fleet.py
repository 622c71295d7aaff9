"""Nodes under systemd in a lab of containers, as on as many machines: what is installed runs as its units say, is configured by files
and asked by editctl. Every scenario ends with the same questions: do all hold the same bits, has the model learned, do the journals
explain every error, is anything left over?"""

import json
import re
import shutil
import subprocess
import time

from netlab import processes
from node import SLOW_MACHINE, Node, wait_until

CPUS = 1.8  # of the machine's cores for all nodes together: the rest is for whoever watches them
MORE_DESCRIPTORS = 4  # that a daemon may have at the end of a scenario: connections that are being made


class Fleet:
    """So many nodes that know each other. Between boot and end any number of scenarios, one after the other; after one that went
    wrong no other, because nobody knows what they start from."""

    def __init__(self, lab, count=4, *, method="edit", interval=20, shards=1, settings=""):
        self.lab, self.method, self.interval, self.shards, self.settings = lab, method, interval, shards, settings
        self.cpus = CPUS / count
        self.containers = []
        self.nodes = [Node(self, number + 1) for number in range(count)]
        self.first_loss = None
        self.before = {}  # what each node held when the scenario began
        self.boot_seconds = 0
        self.is_paused = False

    # ---- Up and down ----

    def boot(self):
        """Boots and configures all; nothing is started."""
        begin = time.monotonic()
        for node in self.nodes:
            node.since = time.time()
            node.boot()
        for node in self.nodes:
            node.wait_for_boot()
            node.configure()
        self.exchange_keys()
        self.boot_seconds = time.monotonic() - begin

    def exchange_keys(self):
        for node in self.nodes:
            for other in self.nodes:
                node.know(other)

    def add_node(self):
        """One machine more, booted, with a list of members that has it too. The others have its key, and the list that they had."""
        node = Node(self, len(self.nodes) + 1)
        node.since = time.time()
        node.boot()
        node.wait_for_boot()
        node.configure(members=self.nodes + [node])
        for other in self.nodes:
            node.know(other)
            other.know(node)
            other.run("systemctl", "reload", "editd")
        self.nodes.append(node)
        return node

    def remove_node(self, node):
        """A machine that is not needed any more."""
        self.nodes.remove(node)
        self.lab.remove_node(node.name)

    def end(self):
        """Removes the nodes, without a trace."""
        self.lab.remove_nodes()
        for folder in (self.lab.journals, self.lab.work / "keys"):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        wait_until(lambda: not self.processes(), 5, lambda: f"processes of removed nodes: {self.processes()}")

    def processes(self):
        """Those that run in containers of this fleet."""
        return processes(lambda folder: any(one in (folder / "cgroup").read_text() for one in self.containers))

    def keep_journals(self, folder):
        """Journals of all boots of all nodes, and what each says now."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for node in self.nodes:
            with open(folder / f"{node.name}.log", "w", encoding="utf-8") as file:
                subprocess.run(["journalctl", "--directory", node.journal_folder, "--output=short-precise"], stdout=file,
                               stderr=subprocess.STDOUT, check=False)
            if node.pid:
                text = "".join(node.run("timeout", "10", "editctl", word, status=None) for word in ("status", "peers", "hash", "mesh"))
                (folder / f"{node.name}.status").write_text(text)

    # ---- All nodes ----

    def start(self):
        """All services, for the first time or again, until training goes on."""
        done = [len(node.round_lines()) for node in self.nodes]
        for node in self.nodes:
            node.start()
        wait_until(lambda: all(len(node.round_lines()) > count for node, count in zip(self.nodes, done)), SLOW_MACHINE, self.describe)
        if self.first_loss is None:
            self.first_loss = self.nodes[0].round_lines()[0][1]
        self.wait_for_rounds(2)

    def restart_daemons(self):
        for node in self.nodes:
            node.run("systemctl", "restart", "editd")

    def round(self, nodes=None):
        """Of the node that has done the least; 0 while one of them does not answer."""
        return min(node.status().get("round", 0) for node in nodes or self.nodes)

    def wait_for_round(self, goal, nodes=None, seconds=SLOW_MACHINE):
        wait_until(lambda: self.round(nodes) >= goal, seconds, lambda: f"round {goal}: {self.describe()}")

    def wait_for_rounds(self, more, nodes=None, seconds=SLOW_MACHINE):
        """Until each of these nodes, first all, has done so many rounds more than the first of them has now."""
        first = (nodes or self.nodes)[0]
        wait_until(lambda: "round" in first.status(), SLOW_MACHINE, self.describe)
        self.wait_for_round(first.status()["round"] + more, nodes, seconds)

    def describe(self):
        return [(node.name, node.status(), node.lines()[-5:]) for node in self.nodes]

    def cut(self, sender, receiver):
        self.lab.cut(sender.number, receiver.number)

    def part(self, *groups):
        """No packet from one group to another."""
        for group in groups:
            for sender in group:
                for receiver in self.nodes:
                    if receiver not in group:
                        self.cut(sender, receiver)

    def rejoin(self, node):
        """Ends all cuts from this node."""
        for other in self.nodes:
            if other is not node:
                self.lab.mend(node.number, other.number)

    def wait_until_all_wait(self, who=None):
        """Until every node says that it waits, and for whom: all for this one, or each for somebody else. Returns the round."""
        def is_told(node):
            status = node.status()
            return status.get("stalled_us", 0) > 0 and status["waiting_for"] != node.name and not status["healthy"] and \
                (status["waiting_for"] == who.name if who and node is not who else status["waiting_for"] != "")

        for node in self.nodes:
            wait_until(lambda n=node: is_told(n), SLOW_MACHINE, lambda n=node: f"{n.name} says for whom it waits: {n.status()}")
        return max(node.status()["round"] for node in self.nodes)

    # ---- A scenario ----

    def begin(self):
        """The journals are looked at from now on. Training goes on, if the scenario before has paused it."""
        for node in self.nodes:
            node.since = time.time()
        if self.is_paused:
            self.is_paused = False
            self.nodes[0].ctl("resume", "--wait", "--timeout", SLOW_MACHINE)
            self.wait_for_rounds(2)
        self.before = {node.name: (node.daemon(), node.holdings()) for node in self.nodes}

    def check(self, errors=(), maybe=()):
        """All train on, hold the same bits, have learned something and nothing too much, and their journals hold these errors (patterns,
        each of which must occur), maybe those, and no others. Training is paused then."""
        self.wait_for_rounds(10)
        self.nodes[0].ctl("pause", "--wait", "--timeout", SLOW_MACHINE)
        for node in self.nodes:
            wait_until(lambda n=node: n.status()["phase"] == "paused", SLOW_MACHINE, lambda n=node: f"{n.name} pauses: {n.status()}")
        self.is_paused = True
        self.check_hashes()
        self.check_losses()
        self.check_errors(errors, maybe)
        self.check_holdings()

    def check_hashes(self):
        """All nodes (of each column of a mesh) hold the same bits of one round in all layers, and each says so."""
        for column in range(self.shards):
            nodes = self.nodes[column::self.shards]
            answers = [wait_until(lambda n=node: (lambda a: a if a.get("equal") else None)(n.ctl("hash", status=None)), SLOW_MACHINE,
                                  lambda n=node: f"hashes are equal: {n.ctl('hash', status=None)}") for node in nodes]
            told = {(answer["round"], frozenset((layer["layer"], member["name"], member["hash"]) for layer in answer["layers"]
                                                for member in layer["members"])) for answer in answers}
            assert len(told) == 1, told
            hashes = [{member["hash"] for member in layer["members"]} for layer in answers[0]["layers"]]
            assert hashes and all(len(one) == 1 for one in hashes), hashes
            assert all(len(layer["members"]) == len(nodes) for layer in answers[0]["layers"])

    def check_losses(self):
        """The loss is below that of the first round, and not above that at the scenario's begin by more than rounds differ."""
        losses = [loss for _, loss in self.nodes[0].round_lines()]
        assert len(losses) >= 10
        begin, end = losses[0], sum(losses[-3:]) / 3
        assert end < self.first_loss - 0.5 and end < begin + 0.1, (self.first_loss, losses)

    def check_errors(self, errors, maybe):
        found = [f"{node.name}: {entry.get('SYSLOG_IDENTIFIER', '?')}: {entry.get('MESSAGE')}"
                 for node in self.nodes for entry in node.journal("--priority=err")]
        unexpected = [line for line in found if not any(re.search(pattern, line) for pattern in [*errors, *maybe])]
        assert not unexpected, unexpected
        missing = [pattern for pattern in errors if not any(re.search(pattern, line) for line in found)]
        assert not missing, (missing, found)
        assert not any(node.property("editd", "Result") != "success" for node in self.nodes)

    def check_holdings(self):
        """A daemon that was there from the begin holds the files that it held, and about as many descriptors."""
        def is_as_before(node):
            daemon, before = self.before.get(node.name, ("0", {}))
            now = node.holdings()
            return daemon == "0" or daemon != node.daemon() or (
                now["files"] == before["files"] and now["descriptors"] <= before["descriptors"] + MORE_DESCRIPTORS)

        for node in self.nodes:
            wait_until(lambda n=node: is_as_before(n), SLOW_MACHINE, lambda n=node: f"{n.name}: {self.before[n.name]}, {n.holdings()}")

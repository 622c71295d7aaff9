"""Rings with keys, for tests: pairs made and handed round, the line that refuses some, and tools on other hosts."""

import json
import shutil
import subprocess

from conftest import BUILD, SLOW, free_ports


def keygen(folder, name, *options):
    return subprocess.run([BUILD / "editctl", "keygen", name, "--out", folder, *options], capture_output=True, text=True)


def give_keys(r, nodes=None):
    """A pair for each of the nodes, and to each the public keys of all."""
    nodes = nodes or r.nodes
    for node in nodes:
        assert keygen(node.folder / "keys", node.name).returncode == 0
    exchange(nodes)


def exchange(nodes):
    for node in nodes:
        for other in nodes:
            if other is not node:
                shutil.copy(other.folder / f"keys/{other.name}.pub", node.folder / "keys")


def check_config(node):
    done = subprocess.run([BUILD / "editd", "-c", node.config, "--check-config"], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def refused(node, *words):
    """The one line with which --check-config and editd itself refuse the keys of node."""
    status, _, line = check_config(node)
    assert status == 2 and len(line.splitlines()) == 1, line
    done = subprocess.run([BUILD / "editd", "-c", node.config], capture_output=True, text=True, timeout=10)
    assert done.returncode == 2 and done.stderr == "<3>" + line
    assert all(word in line for word in words), line
    return line


def peer(node, name):
    return next(p for p in node.ctl("peers")["peers"] if p["name"] == name)


class Remote:
    """A node that listens for tools of other hosts, and those who come."""

    def __init__(self, r, ring_keys=True):
        self.node = r.nodes[0]
        self.port = free_ports(1)[0]
        self.node.configure(node=f"{'' if ring_keys else 'curve = no'}\n[control]\nlisten = tcp://127.0.0.1:{self.port}")
        give_keys(r)
        (self.node.folder / "keys/clients").mkdir()

    def client(self, name, rights=None):
        """A new key; rights None: the node is not given it, "": it is without a word of rights."""
        folder = self.node.folder / name
        assert keygen(folder, name).returncode == 0
        if rights is not None:
            path = self.node.folder / f"keys/clients/{name}.pub"
            path.write_text((folder / f"{name}.pub").read_text() + (f"rights = {rights}\n" if rights else ""))
        return folder

    def ctl(self, folder, *words, server=None, port=None):
        """editctl's exit status, its JSON and what it said on standard error."""
        done = subprocess.run([BUILD / "editctl", "--host", f"tcp://127.0.0.1:{port or self.port}", "--key", folder / "secret",
                               "--server", server or self.node.folder / "keys/a.pub", "-t", str(5 * SLOW), "--json",
                               *map(str, words)], capture_output=True, text=True, timeout=60)
        return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr

"""More connections than a daemon has descriptors for: those of strangers are refused, and what it needs itself is left."""

import os
import random
import resource
import selectors
import socket
import threading

import pytest

from conftest import ready, wait_until

DESCRIPTORS = 256
CONNECTIONS = 400


class Flood(threading.Thread):
    """Keeps many connections open at an address, each anew when it is ended; says `hello` on each, once connected."""

    def __init__(self, family, address, hello=b""):
        super().__init__(daemon=True)
        self.family, self.address, self.hello = family, address, hello
        self.is_over = False
        self.ended = 0

    def open(self, selector):
        s = socket.socket(self.family)
        s.setblocking(False)
        if s.connect_ex(self.address) != 0 and self.family == socket.AF_UNIX:
            s.close()  # its queue is full
            return
        selector.register(s, selectors.EVENT_WRITE)

    def serve(self, selector, s, events):
        try:
            if events & selectors.EVENT_WRITE:
                s.send(self.hello)
                selector.modify(s, selectors.EVENT_READ)
            elif not s.recv(4096):
                raise ConnectionError
        except OSError:
            selector.unregister(s)
            s.close()
            self.ended += 1

    def run(self):
        with selectors.DefaultSelector() as selector:
            while not self.is_over:
                for _ in range(min(20, CONNECTIONS - len(selector.get_map()))):
                    self.open(selector)
                for key, events in selector.select(0.01):
                    self.serve(selector, key.fileobj, events)
            for key in list(selector.get_map().values()):
                key.fileobj.close()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.join()


def bound(node):
    """Leaves the daemon few descriptors, and this process enough."""
    resource.prlimit(node.daemon.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def peer_port(node, hello=b""):
    return Flood(socket.AF_INET, ("127.0.0.1", node.port), hello)


def descriptors(node):
    return len(os.listdir(f"/proc/{node.daemon.pid}/fd"))


@pytest.mark.parametrize("hello", [b"", b"\xff\0\0\0\0\0\0\0\1\x7f", ready(b"")], ids=["silent", "greeting", "handshake"])
def test_strangers_that_would_use_up_the_descriptors_stop_neither_ring_nor_editctl(ring, hello):
    r = ring(2)
    r.start()
    bound(r.nodes[0])
    r.start_workers("--steps", 1000000, "--step-ms", 2)
    node = r.nodes[0]
    node.wait_for_round(2)
    with peer_port(node, hello) as flood:
        node.wait_for_log("connections refused, ")
        wait_until(lambda: "strangers hold all" in node.status()["degraded"], 5, node.log)
        for _ in range(20):  # each time editctl needs a descriptor of the daemon
            before = node.status()["round"]
            node.wait_for_round(before + 3)
            assert descriptors(node) < DESCRIPTORS
        assert node.daemon.poll() is None, node.log()
        assert flood.ended > CONNECTIONS
    assert node.log().count("connections refused, ") == 1
    assert node.status()["healthy"]
    assert all(": down, not heard" not in n.log() for n in r.nodes), node.log()
    r.check_hashes()


def test_neighbour_that_comes_during_a_flood_gets_in(ring):
    r = ring(2)
    node, other = r.nodes
    node.start()
    bound(node)
    node.start_worker("--steps", 1000000, "--step-ms", 2)
    with peer_port(node, ready(b"")):
        node.wait_for_log("connections refused, ")
        other.start()
        other.start_worker("--steps", 1000000, "--step-ms", 2)
        node.wait_for_round(3, 30)
    assert node.daemon.poll() is None


def test_worker_that_comes_during_a_flood_is_attached(ring):
    r = ring(1)
    node = r.nodes[0]
    node.start()
    bound(node)
    with peer_port(node):
        node.wait_for_log("connections refused, ")
        node.start_worker("--steps", 20)
        node.wait_for("phase", "finished")


def test_flood_at_the_control_socket_ends_nothing_but_itself(ring):
    r = ring(2)
    r.start()
    node = r.nodes[0]
    bound(node)
    r.start_workers("--steps", 1000000, "--step-ms", 2)
    node.wait_for_round(2)
    with Flood(socket.AF_UNIX, str(node.folder / "run/control.sock"), random.Random(1).randbytes(9)):
        node.wait_for_log("connections refused, ")
        assert descriptors(node) < DESCRIPTORS
        before = r.nodes[1].status()["round"]
        r.nodes[1].wait_for_round(before + 20)
    before = node.status()["round"]
    node.wait_for_round(before + 3)
    r.check_hashes()

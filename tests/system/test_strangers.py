"""What strangers may send: garbage is dropped and counted, and neither the ring nor editctl notices."""

import random
import socket
import struct
import subprocess

import pytest

from conftest import BUILD, wait_until


def probe(*words):
    return subprocess.run([BUILD / "tests/probe_frames", *map(str, words)], capture_output=True, text=True, timeout=60)


KINDS = [("garbage",), ("empty",), ("parts",), ("large", 3 << 20), ("large", 16 << 20)]


@pytest.mark.parametrize("kind", KINDS)
def test_frames_of_strangers_at_the_peer_port_change_nothing(ring, kind):
    r = ring(2)
    r.start()
    r.start_workers("--steps", 100, "--step-ms", 1)
    assert probe(f"tcp://127.0.0.1:{r.nodes[0].port}", *kind).returncode == 0
    r.wait_until_finished()
    r.check_hashes()
    status = r.nodes[0].status()
    assert status["round"] == 20
    if kind != ("large", 16 << 20):  # those do not even get through ZeroMQ
        assert status["frames_dropped"] >= 4
    assert status["memory_bytes"] < 1 << 29


def test_bytes_that_are_not_zeromq_at_the_peer_port_change_nothing(ring):
    r = ring(2)
    r.start()
    r.start_workers("--steps", 100, "--step-ms", 1)
    assert probe("127.0.0.1", r.nodes[0].port, "raw").returncode == 0
    r.wait_until_finished()
    r.check_hashes()


@pytest.mark.parametrize("kind", KINDS)
def test_frames_at_the_control_socket_that_are_no_requests_change_nothing(ring, kind):
    r = ring(1)
    r.start()
    endpoint = f"ipc://{r.nodes[0].folder}/run/control.sock"
    assert probe(endpoint, *kind).returncode == 0
    assert r.nodes[0].status()["phase"] == "no-worker"


@pytest.mark.parametrize("size", [1, 4096, 4097, 65536])
def test_malformed_request_gets_an_error_reply(ring, size):
    r = ring(1)
    r.start()
    done = probe(f"ipc://{r.nodes[0].folder}/run/control.sock", "request", size)
    assert int(done.stdout) > 10
    assert r.nodes[0].status()["frames_dropped"] == 1


def test_two_daemons_of_one_name_the_second_is_refused(ring):
    r = ring(3)
    r.start()
    r.start_workers("--steps", 100000, "--step-ms", 2)
    r.nodes[0].wait_for_round(2)
    # Another start of b, with folders and a port of its own, that talks to the same neighbours.
    twin = ring(3)
    copy = twin.nodes[1]
    members = [f"a = tcp://127.0.0.1:{r.nodes[0].port}", f"b = tcp://127.0.0.1:{r.nodes[1].port}",
               f"c = tcp://127.0.0.1:{r.nodes[2].port}"]
    copy.configure(node=f"listen = tcp://127.0.0.1:{copy.port}", members=members)
    copy.start()
    copy.start_worker()
    copy.wait_for_log("refused by peer a (")
    before = r.nodes[0].status()["round"]
    r.nodes[0].wait_for_round(before + 3)
    r.check_hashes()


BELL = struct.Struct("<IIQQ232s")
ATTACH, READY, OFFER = 1, 4, 5

PACKETS = {
    "nothing": [],
    "bytes": [random.Random(1).randbytes(100)],
    "another version": [BELL.pack(ATTACH, 99, 100, 0, b"")],
    "unknown kind": [BELL.pack(77, 1, 0, 0, b"")],
    "no description": [BELL.pack(READY, 1, 0, 0, b""), BELL.pack(OFFER, 1, 0, 0, b"")],
    "empty description": [BELL.pack(ATTACH, 1, 0, 0, b"")],
    "huge description": [BELL.pack(ATTACH, 1, 1 << 60, 0, b"")],
    "random description": [BELL.pack(ATTACH, 1, 1000, 0, b""), random.Random(2).randbytes(1000)],
    "long description": [BELL.pack(ATTACH, 1, 1000, 0, b""), random.Random(3).randbytes(2000)],
}


@pytest.mark.parametrize("packets", PACKETS.values(), ids=PACKETS.keys())
def test_worker_that_breaks_the_rules_is_dropped_and_another_let_in(ring, packets):
    r = ring(1)
    r.start()
    node = r.nodes[0]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as worker:
        worker.connect(str(node.folder / "run/worker.sock"))
        for packet in packets:
            try:
                worker.send(packet)
            except OSError:
                break  # dropped already
    wait_until(lambda: "is gone" in node.log() or "refused" in node.log(), 5, node.log)
    node.start_worker("--steps", 20)
    node.wait_for("phase", "finished")

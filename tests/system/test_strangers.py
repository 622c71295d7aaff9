"""What strangers may send: garbage is dropped and counted, and neither the ring nor editctl notices."""

import subprocess

import pytest

from conftest import BUILD


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

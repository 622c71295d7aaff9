"""What systemd is told, and what daemons cost over time."""

import ctypes
import os
import pathlib
import shutil
import socket
import subprocess
import time

import pytest

from conftest import BUILD, SLOW, ready, wait_until

PTRACE_ATTACH, PTRACE_DETACH = 16, 17


class Manager:
    """Stands where systemd does: hears what the daemon notifies."""

    def __init__(self, folder):
        self.path = folder / "notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.heard = []

    def hear(self, seconds):
        """Whatever comes within that time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                self.heard += self.socket.recv(4096).decode().splitlines()
            except TimeoutError:
                break
        return self.heard


@pytest.fixture
def managed(ring):
    """A node whose daemon runs under a Manager, with a watchdog of 600 ms."""
    r = ring(1)
    node = r.nodes[0]
    manager = Manager(node.folder)
    with open(node.log_file, "ab") as log:
        node.daemon = subprocess.Popen([BUILD / "editd", "-c", node.config], stderr=log,
                                       env={**os.environ, "NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "600000"})
    yield node, manager
    manager.socket.close()


def test_ready_status_watchdog_and_stopping_are_notified(managed):
    node, manager = managed
    wait_until(lambda: "READY=1" in manager.hear(0.2), 5, node.log)
    node.start_worker("--steps", 1000000, "--step-ms", 5)
    wait_until(lambda: any(line.startswith("STATUS=training, ") for line in manager.hear(0.2)), 5, lambda: manager.heard)
    assert "STATUS=no run yet: waiting for a worker at " + str(node.folder / "run/worker.sock") in manager.heard
    manager.heard.clear()
    assert 4 <= manager.hear(2).count("WATCHDOG=1") <= 12
    node.stop()
    assert manager.hear(0.2)[-1] == "STOPPING=1"


def test_watchdog_is_not_fed_by_a_loop_that_hangs(managed):
    node, manager = managed
    wait_until(lambda: "WATCHDOG=1" in manager.hear(0.2), 5, node.log)
    # Stops the thread of the main loop alone, as a debugger does: those of ZeroMQ run on, and none of them feeds.
    libc = ctypes.CDLL(None, use_errno=True)
    pid = node.daemon.pid
    if libc.ptrace(PTRACE_ATTACH, pid, None, None) != 0:
        pytest.skip(f"threads cannot be stopped one by one here ({os.strerror(ctypes.get_errno())})")
    assert os.WIFSTOPPED(os.waitpid(pid, 0)[1])
    others = [task for task in os.listdir(f"/proc/{pid}/task") if task != str(pid)]
    states = {pathlib.Path(f"/proc/{pid}/task/{task}/stat").read_text().rsplit(")", 1)[1].split()[0] for task in others}
    assert states and states <= {"S", "R"}
    manager.hear(0.1)
    manager.heard.clear()
    assert manager.hear(1) == []
    assert libc.ptrace(PTRACE_DETACH, pid, None, None) == 0
    wait_until(lambda: "WATCHDOG=1" in manager.hear(0.2), 5, node.log)


@pytest.mark.parametrize("name", ["lock", "state", "segment", "worker.sock"])
def test_file_of_the_runtime_directory_that_is_deleted_is_missed(ring, name):
    r = ring(1)
    node = r.nodes[0]
    node.start()
    node.start_worker("--steps", 1000000, "--step-ms", 5)
    node.wait_for_round(1)
    path = node.folder / "run" / name
    assert node.status()["degraded"] == ""
    path.unlink()
    node.wait_for_log(f"{path}: deleted or replaced under this editd")
    status = node.status()
    assert str(path) in status["degraded"] and not status["healthy"]
    node.wait_for_round(status["round"] + 5)
    assert node.log().count("deleted or replaced") == 1


def test_runtime_directory_that_is_deleted_is_told_to_systemd(managed):
    node, manager = managed
    node.start_worker("--steps", 1000000, "--step-ms", 5)
    wait_until(lambda: any(line.startswith("STATUS=training, ") for line in manager.hear(0.2)), 5, lambda: manager.heard)
    shutil.rmtree(node.folder / "run")
    wait_until(lambda: any(line.endswith(", degraded") for line in manager.hear(0.2)), 5, lambda: manager.heard)
    assert node.log().count("run/lock: deleted or replaced") == 1


def test_connections_that_come_and_go_cost_nothing_that_lasts(ring):
    r = ring(1)
    r.start()
    node = r.nodes[0]
    folder = f"/proc/{node.daemon.pid}/fd"

    def shake_hands(peer, number):
        peer.sendall(ready(b"stranger-%d" % number))
        heard = b""
        while len(heard) < 64 + 10:  # its greeting, and the begin of its own READY
            more = peer.recv(1024)
            assert more, (number, heard)
            heard += more
        peer.sendall(b"\0\2\xff\xff")  # a frame of two bytes that means nothing

    def churn(numbers):
        for number in numbers:
            with socket.create_connection(("127.0.0.1", node.port)) as peer:
                shake_hands(peer, number)
            with socket.create_connection(("127.0.0.1", node.port)) as peer:
                peer.sendall(b"\xff\0\0\0\0\0\0\0\1\x7f")
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as worker:
                worker.connect(str(node.folder / "run/worker.sock"))
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tool:
                tool.connect(str(node.folder / "run/control.sock"))
                if number % 10 == 0:
                    shake_hands(tool, number)

    churn(range(300))
    time.sleep(0.5)
    files, memory = len(os.listdir(folder)), node.status()["memory_bytes"]
    churn(range(300, 3000))  # with those before 12,000 in all
    wait_until(lambda: len(os.listdir(folder)) <= files + 2, 10, lambda: os.listdir(folder))
    assert node.status()["frames_dropped"] > 1000  # they were heard
    if SLOW == 1:  # sanitizers keep freed memory
        assert node.status()["memory_bytes"] < memory + (4 << 20)


def test_daemon_that_stands_idle_takes_no_time(ring):
    r = ring(2)
    r.start()
    for node in r.nodes:
        node.start_worker("--attach-only")
    r.nodes[0].wait_for_log("ring: all 2 members")

    def cpu_s():
        with open(f"/proc/{r.nodes[0].daemon.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before = cpu_s()
    time.sleep(2)
    assert cpu_s() - before <= 0.1 * SLOW

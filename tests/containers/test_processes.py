"""Workers, daemons and whole machines that die, stop and come back under systemd, and what holds whoever may be a member."""

import re
import time

from node import SLOW_MACHINE, wait_until

# A heartbeat that comes before its sender's hello.
EARLY = r"frames from strangers \d, malformed frames 0, malformed requests 0$"
HOUR_AHEAD = """[Service]
Environment=LD_PRELOAD=/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1 FAKETIME=+3600 FAKETIME_DONT_FAKE_MONOTONIC=1
"""


def test_worker_that_is_killed_comes_back(ring):
    with ring() as r:
        node = r.nodes[1]
        status, daemon = node.status(), node.daemon()
        node.signal("editd-worker", "KILL")
        wait_until(lambda: node.status()["worker_restarts"] == status["worker_restarts"] + 1, SLOW_MACHINE, node.status)
        r.wait_for_rounds(5)
        assert node.status()["worker_pid"] not in (0, status["worker_pid"])
        assert node.daemon() == daemon


def test_machine_that_freezes_for_a_moment_is_not_missed(ring):
    with ring() as r:
        r.nodes[2].freeze()
        time.sleep(1.5)
        r.nodes[2].thaw()
        r.wait_for_rounds(5)
        assert not any(node.has_line("n3: down") for node in r.nodes)


def test_all_are_stopped_and_started(ring):
    with ring() as r:
        for node in r.nodes:
            node.stop()
        assert not any(node.run("pgrep", "edit", status=None) for node in r.nodes)
        r.start()
        for node in r.nodes:
            numbers = [number for number, _ in node.round_lines()]
            assert numbers == sorted(set(numbers)), "a round was done twice"
            # A daemon may be stopped between the last layer of a round and the line that tells of it.
            assert numbers[-1] - numbers[0] + 1 - len(numbers) <= 1, numbers


def test_all_lose_power_and_go_on_from_the_newest_checkpoint(ring):
    with ring() as r:
        r.nodes[0].ctl("checkpoint", "--wait", "--timeout", SLOW_MACHINE)
        for node in r.nodes:
            node.power_off()
        for node in r.nodes:
            node.power_on()
        for node in r.nodes:
            node.wait_for_line(r"run restored after round \d+ from ")
        restored = {re.search(r"restored after round (\d+)", line)[1] for node in r.nodes for line in node.lines() if "run restored" in line}
        assert len(restored) == 1
        r.wait_for_round(int(restored.pop()) + 3)


def test_clock_an_hour_off_is_no_concern_of_anybody(fleet):
    with fleet() as ring:
        node = ring.nodes[1]
        for unit in ("editd", "editd-worker"):
            node.drop_in(unit, HOUR_AHEAD)
        ring.start()
        for unit in ("editd", "editd-worker"):
            assert "libfaketime" in node.file(f"/proc/{node.property(unit, 'MainPID')}/maps").read_text()
        ring.wait_for_rounds(10)
        for each in ring.nodes:
            unusual = [line for line in each.lines("editd", "--priority=warning") if not re.search(EARLY, line)]
            assert not unusual, unusual

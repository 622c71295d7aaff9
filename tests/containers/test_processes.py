"""Daemons, workers and whole machines that die, hang, stop and come back, under systemd."""

import time

from fleet import SLOW_MACHINE, wait_until

WATCHDOG_S = 4
HOUR_AHEAD = """[Service]
Environment=LD_PRELOAD=/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1 FAKETIME=+3600 FAKETIME_DONT_FAKE_MONOTONIC=1
"""


def take_back(ring, node, restarts):
    """What it takes to go on when systemd has started a node's daemon again in mid-run. The list of members is fixed: the others refuse
    it and say so, and all go on from the last round when all daemons are restarted."""
    wait_until(lambda: node.property("editd", "NRestarts") == str(restarts), SLOW_MACHINE, f"systemd restarts editd of {node.name}")
    left = ring.nodes[(node.number - 2) % len(ring.nodes)]
    left.wait_for_line(rf"{node.name}.*restarted in mid-run")
    before = ring.wait_until_all_wait()
    ring.restart_daemons()
    ring.wait_for_rounds(3)
    assert min(n.status()["round"] for n in ring.nodes) > before


def test_worker_that_is_killed_comes_back(fleet):
    with fleet() as ring:
        ring.start()
        node = ring.nodes[1]
        pid = node.status()["worker_pid"]
        node.signal("editd-worker", "KILL")
        wait_until(lambda: node.status()["worker_restarts"] == 1, SLOW_MACHINE, node.status)
        ring.wait_for_rounds(5)
        assert node.status()["worker_pid"] not in (0, pid)
        assert node.property("editd", "NRestarts") == "0"


def test_daemon_that_is_killed_comes_back(fleet):
    with fleet() as ring:
        ring.start()
        ring.nodes[1].signal("editd", "KILL")
        take_back(ring, ring.nodes[1], restarts=1)


def test_daemon_that_hangs_is_ended_by_the_watchdog(fleet):
    with fleet(errors=[r"n3: systemd: editd.service: Watchdog timeout"]) as ring:
        node = ring.nodes[2]
        node.drop_in("editd", f"[Service]\nWatchdogSec={WATCHDOG_S}\n")
        ring.start()
        node.signal("editd", "STOP")
        take_back(ring, node, restarts=1)


def test_machine_that_freezes_for_a_moment_is_not_missed(fleet):
    with fleet() as ring:
        ring.start()
        ring.nodes[2].freeze()
        time.sleep(1.5)
        ring.nodes[2].thaw()
        ring.wait_for_rounds(5)
        assert not any("n3: down" in line for node in ring.nodes for line in node.lines())


def test_machine_that_freezes_for_long_is_waited_for(fleet):
    with fleet() as ring:
        ring.start()
        frozen = ring.nodes[2]
        frozen.freeze()
        for node in ring.nodes:
            if node is not frozen:
                wait_until(lambda n=node: n.status()["waiting_for"] == "n3", SLOW_MACHINE, lambda n=node: n.status())
        frozen.thaw()
        for node in (ring.nodes[1], ring.nodes[3]):
            node.wait_for_line("peer n3: heard again after")
        assert frozen.property("editd", "NRestarts") == "0"


def test_all_are_stopped_and_started(fleet):
    with fleet() as ring:
        ring.start()
        for node in ring.nodes:
            node.stop()
        assert not any(node.run("pgrep", "edit", status=None) for node in ring.nodes)
        for node in ring.nodes:
            node.start()
        ring.wait_for_rounds(3)
        rounds = [int(line.split()[1].rstrip(":")) for line in ring.nodes[0].lines() if line.startswith("round ")]
        assert rounds == list(range(1, len(rounds) + 1))


def test_power_is_lost_and_the_run_goes_on_from_a_checkpoint(fleet):
    with fleet() as ring:
        ring.start()
        ring.nodes[0].ctl("checkpoint", "--wait", "--timeout", SLOW_MACHINE)
        lost = ring.nodes[3]
        lost.power_off()
        for node in ring.nodes[:3]:
            wait_until(lambda n=node: n.status()["waiting_for"] == "n4", SLOW_MACHINE, lambda n=node: n.status())
        lost.power_on()
        for node in ring.nodes:
            node.stop()
            node.forget_run()
        folders = {node.run("sh", "-c", "ls -d /var/lib/editd/checkpoints/round-*").split()[-1] for node in ring.nodes}
        assert len(folders) == 1
        for node in ring.nodes:
            node.train_with(f"--model {folders.copy().pop()}")
        ring.start()
        first = ring.nodes[0].losses()
        assert ring.nodes[3].losses()[-1] < first[0] - 0.5


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
            assert not each.journal("--priority=warning", "_SYSTEMD_UNIT=editd.service")

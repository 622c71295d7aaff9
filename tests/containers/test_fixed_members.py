"""What the list of members being fixed means: whoever is missing is waited for, and who has lost its memory in mid-run is not taken back
until all are restarted."""

import re
import time

import pytest

from node import SLOW_MACHINE, wait_until

WATCHDOG_S = 4
REFUSED = [r"peer n\d: restarted in mid-run; a static view cannot take it back", r"refused by peer n\d \(the ring has begun rounds"]
# While its neighbours do not know yet that the daemon before has died, or while not all have been restarted.
MAYBE = [r"\(a live daemon has this name already\)", r"a fact differs: completed rounds"]


def take_back(ring, node, daemon):
    """What it takes to go on when systemd has started a node's daemon again in mid-run: the others refuse it and say so, and all go on from
    the last round when all daemons are restarted."""
    wait_until(lambda: node.daemon() not in ("0", daemon), SLOW_MACHINE, f"systemd restarts editd of {node.name}")
    left = ring.nodes[(node.number - 2) % len(ring.nodes)]
    left.wait_for_line(rf"{node.name}.*restarted in mid-run")
    before = ring.wait_until_all_wait()
    ring.restart_daemons()
    ring.wait_for_round(before + 3)


def test_daemon_that_is_killed_comes_back(ring):
    with ring(errors=REFUSED, maybe=MAYBE) as r:
        node, daemon = r.nodes[1], r.nodes[1].daemon()
        node.signal("editd", "KILL")
        take_back(r, node, daemon)


def test_daemon_that_hangs_is_ended_by_the_watchdog(fleet):
    with fleet(errors=[*REFUSED, r"n3: systemd: editd.service: Watchdog timeout"], maybe=MAYBE) as ring:
        node = ring.nodes[2]
        node.drop_in("editd", f"[Service]\nWatchdogSec={WATCHDOG_S}\n")
        ring.start()
        daemon = node.daemon()
        node.signal("editd", "STOP")
        take_back(ring, node, daemon)


def test_machine_that_freezes_for_long_is_waited_for(ring):
    with ring() as r:
        frozen, daemon = r.nodes[2], r.nodes[2].daemon()
        frozen.freeze()
        for node in r.nodes:
            if node is not frozen:
                wait_until(lambda n=node: n.status()["waiting_for"] == "n3", SLOW_MACHINE, lambda n=node: n.status())
        frozen.thaw()
        for node in (r.nodes[1], r.nodes[3]):
            node.wait_for_line("peer n3: heard again after")
        assert frozen.daemon() == daemon


def test_cut_of_one_link_is_waited_for(ring):
    with ring() as r:
        r.cut(r.nodes[1], r.nodes[2])
        r.cut(r.nodes[2], r.nodes[1])
        stand_still_and_go_on(r)


def test_cut_of_one_direction_is_waited_for(ring):
    with ring() as r:
        r.cut(r.nodes[1], r.nodes[2])
        stand_still_and_go_on(r)


@pytest.mark.parametrize("size", [2, 3])
def test_partition_is_waited_for(ring, size):
    with ring() as r:
        r.part(r.nodes[:size], r.nodes[size:])
        stand_still_and_go_on(r)


def stand_still_and_go_on(r):
    """Nobody gets on alone, everybody says for whom it waits, and when the lines are back all go on where they were."""
    daemons = [node.daemon() for node in r.nodes]
    stood = r.wait_until_all_wait()
    time.sleep(3)
    assert all(node.status()["round"] - stood <= 1 for node in r.nodes)
    r.lab.heal()
    r.wait_for_rounds(5)
    assert [node.daemon() for node in r.nodes] == daemons
    assert any(node.has_line("heard again after") for node in r.nodes)


def test_machine_that_loses_power_in_mid_run_names_the_round_and_all_go_back_to_a_checkpoint(ring):
    with ring() as r:
        r.nodes[0].ctl("checkpoint", "--wait", "--timeout", SLOW_MACHINE)
        lost = r.nodes[3]
        lost.power_off()
        for node in r.nodes[:3]:
            wait_until(lambda n=node: n.status()["waiting_for"] == "n4", SLOW_MACHINE, lambda n=node: n.status())
        lost.power_on()
        lost.wait_for_line(r"round \d+")
        for node in r.nodes:
            node.stop()
            node.forget_run()
        r.start()
        assert all(node.has_line(r"run restored after round \d+ from ") for node in r.nodes)


def test_disk_that_is_new_is_named_and_gets_its_checkpoint_from_another(ring):
    with ring(errors=["no checkpoint that all members hold: n4 begins anew"], maybe=["restarts run test from its checkpoints"]) as r:
        r.nodes[0].ctl("checkpoint", "--wait", "--timeout", SLOW_MACHINE)
        for node in r.nodes:
            node.power_off()
        for node in r.nodes[:3]:
            node.power_on()
        lost = r.nodes[3]
        lost.replace_disk()
        lost.start()
        r.nodes[0].wait_for_line("no checkpoint that all members hold: n4")
        newest = max(re.findall(r"round-\d+", r.nodes[0].run("ls", "/var/lib/editd/checkpoints")))
        lost.copy_folder(r.nodes[0], f"/var/lib/editd/checkpoints/{newest}")
        lost.stop()
        lost.forget_run()
        r.start()
        assert all(node.has_line(r"run restored after round \d+ from ") for node in r.nodes)

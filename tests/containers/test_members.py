"""Members that die, hang, freeze, are cut off, leave and come: the others go on without whoever is not heard, and take back whoever is
heard again, without anybody's help. Only two machines of four that hear nobody else wait."""

import time

import pytest

from node import SLOW_MACHINE, wait_until

WATCHDOG_S = 4  # more than the silence after which a member is dropped
BACK_S = 3      # from the kill of a daemon to its first round
REDONE = 1      # rounds that others may do again because a daemon was killed

# A daemon that is back before its neighbours know that the one before has died.
MAYBE = [r"\(a live daemon has this name already\)"]


def wait_for_members(members, asked=None):
    """Until each of the nodes that are asked (first: the members) says that these are the members, and trains with them."""
    names, asked = {node.name for node in members}, asked or members
    for node in asked:
        wait_until(lambda n=node: set(n.members()) == names, SLOW_MACHINE,
                   lambda n=node: f"{n.name} has the members {names}: {n.members()}, {n.lines()[-10:]}")
    asked[0].fleet.wait_for_rounds(5, asked)


def others(r, node):
    return [other for other in r.nodes if other is not node]


def rounds_done_again(node):
    numbers = [number for number, _ in node.round_lines()]
    return len(numbers) - len(set(numbers))


def test_daemon_that_is_killed_is_back_at_once(ring):
    with ring(maybe=MAYBE) as r:
        node = r.nodes[1]
        node.signal("editd", "KILL")
        killed = time.time()
        started = wait_until(lambda: node.time_of("listening on", killed), SLOW_MACHINE, "systemd starts the daemon again")
        trained = wait_until(lambda: node.time_of(r"round \d+: loss", started), SLOW_MACHINE, r.describe)
        assert trained - killed < BACK_S
        wait_for_members(r.nodes)
        assert all(rounds_done_again(other) <= REDONE for other in r.nodes)


def test_daemon_that_hangs_is_dropped_and_ended_by_the_watchdog_and_taken_back(fleet):
    with fleet(errors=[r"n3: systemd: editd.service: Watchdog timeout"], maybe=MAYBE) as r:
        node = r.nodes[2]
        node.drop_in("editd", f"[Service]\nWatchdogSec={WATCHDOG_S}\n")
        r.start()
        daemon = node.daemon()
        node.signal("editd", "STOP")
        wait_for_members(others(r, node))
        wait_until(lambda: node.daemon() not in ("0", daemon), SLOW_MACHINE, "systemd restarts editd of n3")
        wait_for_members(r.nodes)


def test_machine_that_freezes_for_long_is_dropped_and_taken_back(ring):
    with ring(maybe=MAYBE) as r:
        frozen, daemon = r.nodes[2], r.nodes[2].daemon()
        frozen.freeze()
        wait_for_members(others(r, frozen))
        frozen.thaw()
        wait_for_members(r.nodes)
        assert frozen.daemon() == daemon


@pytest.mark.parametrize("disk", ["its_disk", "a_new_disk"])
def test_machine_that_loses_power_is_dropped_and_taken_back_with(ring, disk):
    with ring(maybe=MAYBE) as r:
        lost = r.nodes[3]
        lost.power_off()
        wait_for_members(others(r, lost))
        if disk == "its_disk":
            lost.power_on()
        else:
            lost.replace_disk()
            lost.start()
        wait_for_members(r.nodes)


def test_new_disk_among_those_that_lost_power_gets_what_the_others_have(ring):
    with ring(maybe=MAYBE) as r:
        r.nodes[0].ctl("checkpoint", "--wait", "--timeout", SLOW_MACHINE)
        for node in r.nodes:
            node.power_off()
        *kept, lost = r.nodes
        for node in kept:
            node.power_on()
        lost.replace_disk()
        lost.start()
        wait_for_members(r.nodes)
        assert all(node.has_line(r"run restored after round \d+ from ") for node in kept)


@pytest.mark.parametrize("directions", [1, 2])
def test_cut_of_one_link_costs_nobody_its_place(ring, directions):
    with ring() as r:
        pair = r.nodes[1:3]
        for sender, receiver in (pair, pair[::-1])[:directions]:
            r.cut(sender, receiver)

        def are_apart():
            order = r.nodes[0].members()
            places = sorted(order.index(node.name) for node in pair)
            return len(order) == len(r.nodes) and places[1] - places[0] == 2

        wait_until(are_apart, SLOW_MACHINE, r.describe)
        wait_for_members(r.nodes)
        r.lab.heal()
        wait_for_members(r.nodes)


def test_partition_in_halves_lets_the_one_with_the_tie_holder_go_on(ring):
    with ring() as r:
        holder = next(member["name"] for member in r.nodes[0].view()["members"] if member["holder"])
        halves = sorted((r.nodes[:2], r.nodes[2:]), key=lambda half: holder not in [node.name for node in half])
        part_and_heal(r, *halves)


def test_partition_lets_the_larger_part_go_on(ring):
    with ring() as r:
        part_and_heal(r, r.nodes[:3], r.nodes[3:])


def part_and_heal(r, going_on, waiting):
    """Only one part goes on; when the lines are back all are members of one ring again."""
    r.part(going_on, waiting)
    wait_for_members(going_on)
    stood = [node.status()["round"] for node in waiting]
    r.wait_for_rounds(5, going_on)
    assert [node.status()["round"] for node in waiting] == stood
    assert not any(node.status()["healthy"] for node in waiting)
    r.lab.heal()
    wait_for_members(r.nodes)


def test_fifth_machine_is_taken_in_and_leaves(ring):
    with ring() as r:
        four = list(r.nodes)
        fifth = r.add_node()
        fifth.start()
        wait_for_members([*four, fifth])
        fifth.ctl("leave")
        assert fifth.view()["place"] == "left"
        wait_for_members(four)
        stood = fifth.status().get("round")
        r.wait_for_rounds(5, four)
        assert fifth.status().get("round") == stood
        fifth.stop()
        assert fifth.property("editd", "Result") == "success"
        r.remove_node(fifth)


def test_member_that_leaves_comes_back_whenever_it_is_started_again(ring):
    with ring(maybe=MAYBE) as r:
        node = r.nodes[2]
        for _ in range(3):
            node.ctl("leave")
            wait_for_members(others(r, node))
            # The worker has ended well, as one does that has no more to do.
            assert node.property("editd-worker", "Result") == "success"
            node.run("systemctl", "restart", "editd", "editd-worker")
            wait_for_members(r.nodes)


def test_daemons_are_restarted_in_turn_as_for_a_new_version(ring):
    with ring(maybe=MAYBE) as r:
        for node in r.nodes:
            node.run("systemctl", "restart", "editd")
            wait_for_members(r.nodes)


def test_last_machine_goes_on_when_told_and_takes_the_others_back(ring):
    with ring(maybe=MAYBE) as r:
        last = r.nodes[0]
        for node in r.nodes[1:]:
            node.power_off()
        wait_until(lambda: last.status()["stalled_us"] > 0, SLOW_MACHINE, last.status)
        stood = last.status()["round"]
        time.sleep(3)
        assert last.status()["round"] == stood and len(last.members()) == len(r.nodes)
        last.ctl("force", last.name)
        wait_for_members([last])
        for node in r.nodes[1:]:
            node.power_on()
        wait_for_members(r.nodes)

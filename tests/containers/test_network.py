"""Lines that are cut, slow, long and lossy."""

import time

import pytest

MBIT = 1e6


def test_cut_of_one_link_is_waited_for(fleet):
    with fleet() as ring:
        ring.start()
        a, b = ring.nodes[1:3]
        ring.cut(a, b)
        ring.cut(b, a)
        stand_still_and_go_on(ring)


def test_cut_of_one_direction_is_waited_for(fleet):
    with fleet() as ring:
        ring.start()
        ring.cut(ring.nodes[1], ring.nodes[2])
        stand_still_and_go_on(ring)


@pytest.mark.parametrize("size", [2, 3])
def test_partition_is_waited_for(fleet, size):
    with fleet() as ring:
        ring.start()
        ring.part(ring.nodes[:size], ring.nodes[size:])
        stand_still_and_go_on(ring)


def stand_still_and_go_on(ring):
    """Nobody gets on alone, everybody says for whom it waits, and when the lines are back all go on where they were."""
    stood = ring.wait_until_all_wait()
    time.sleep(3)
    assert all(node.status()["round"] - stood <= 1 for node in ring.nodes)
    ring.lab.heal()
    ring.wait_for_rounds(5)
    assert all(node.property("editd", "NRestarts") == "0" for node in ring.nodes)
    assert any("heard again after" in line for node in ring.nodes for line in node.lines())


def test_long_and_lossy_lines(fleet):
    with fleet() as ring:
        ring.start()
        ring.lab.delay(30)
        ring.lab.lose(0.01)
        ring.wait_for_rounds(10)
        # Records go once round the ring, the mean nearly twice.
        for record in ring.nodes[0].rounds(5):
            assert record["sync_us"] > 30000 * (len(ring.nodes) - 1) * 3
        assert not any(": down" in line for node in ring.nodes for line in node.lines())


def test_line_of_20_mbit_holds_up_all_by_no_more_than_it_must(fleet):
    with fleet(interval=4) as ring:
        ring.start()
        slow = ring.nodes[1]
        slow.limit_rate("20mbit")
        ring.wait_for_rounds(15)
        needed_s = [record["bytes"] * 8 / (20 * MBIT) for record in slow.rounds(10)]
        took_s = [record["sync_us"] / 1e6 for record in slow.rounds(10)]
        assert sum(took_s) > 0.7 * sum(needed_s) > 0
        assert not any(": down" in line for node in ring.nodes for line in node.lines())

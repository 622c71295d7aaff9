"""Lines that are slow, long and lossy, and keys that are not known."""

MBIT = 1e6
INTERVAL = 4  # so short that the line is what rounds take their time for


def test_long_and_lossy_lines(ring):
    with ring() as r:
        r.lab.delay(30)
        r.lab.lose(0.01)
        r.wait_for_rounds(10)
        # Records go once round the ring, the mean nearly twice.
        for record in r.nodes[0].rounds(5):
            assert record["sync_us"] > 30000 * (len(r.nodes) - 1) * 3
        assert not any(node.has_line(": down") for node in r.nodes)
        r.lab.heal()


def test_line_of_20_mbit_holds_up_all_by_no_more_than_it_must(ring):
    with ring() as r:
        slow = r.nodes[1]
        interval = slow.ctl("get", "sync.interval")["settings"][0]["value"]
        slow.ctl("set", "sync.interval", INTERVAL, "--wait")
        with slow.limited_rate("20mbit"):
            r.wait_for_rounds(15)
            needed_s = [record["bytes"] * 8 / (20 * MBIT) for record in slow.rounds(10)]
            took_s = [record["sync_us"] / 1e6 for record in slow.rounds(10)]
        assert sum(took_s) > 0.7 * sum(needed_s) > 0
        assert not any(node.has_line(": down") for node in r.nodes)
        slow.ctl("set", "sync.interval", interval, "--wait")


def test_key_that_the_others_do_not_know_is_told_from_a_silent_machine(fleet):
    with fleet() as ring:
        stranger, neighbours = ring.nodes[2], (ring.nodes[1], ring.nodes[3])
        stranger.make_key()
        for node in ring.nodes:
            node.start()
        for node in neighbours:
            node.wait_for_line("n3.* key")
        assert all(node.status()["encrypted"] for node in ring.nodes)
        assert ring.round() == 0 and all(node.status()["phase"] == "gathering" for node in ring.nodes)
        for node in neighbours:
            node.know(stranger)
            node.run("systemctl", "reload", "editd")
        ring.start()

"""Members that die, come back, join and are cut off: the others decide to go on without them, and take them in again."""

import os
import struct
import shutil
import signal
import subprocess

import pytest

from conftest import BUILD, Node, SLOW, free_ports, wait_until

# Death is noticed after a second.
QUICK = "heartbeat_ms = 200\nsilence_ms = 1000"
STEPS = ("--steps", 100000, "--step-ms", 5)


def make(ring, count, node="", settings="", options=()):
    r = ring(count)
    for one in r.nodes:
        one.configure(node=QUICK + "\n" + node, ring=settings)
    r.start()
    r.start_workers(*STEPS, *options)
    for one in r.nodes:
        one.wait_for_round(2)
    return r


def members(node):
    return node.status()["member_count"]


def wait_for_members(nodes, count, seconds=20):
    for node in nodes:
        wait_until(lambda n=node: members(n) == count, seconds, lambda n=node: (n.status(), n.log()))


def wait_for_more_rounds(nodes, number=3, seconds=30):
    """All of them go on, from where the furthest one is."""
    first = max(node.status()["round"] for node in nodes)
    for node in nodes:
        node.wait_for_round(first + number, seconds)


def check_all(nodes, count):
    wait_for_members(nodes, count)
    wait_for_more_rounds(nodes)
    for node in nodes:
        wait_until(lambda n=node: n.ctl("hash", status=None)["equal"], 5, lambda n=node: n.ctl("hash", status=None))
        assert not node.status()["degraded"], node.status()


def lose_power(node):
    """Everything ends at once, and what is in memory is gone."""
    for process in (node.daemon, node.worker):
        process.kill()
        process.wait()
    node.daemon = node.worker = None
    shutil.rmtree(node.folder / "run")
    (node.folder / "run").mkdir()


def test_others_go_on_without_a_member_that_dies_and_take_it_in_again(ring):
    r = make(ring, 3)
    dead, *alive = r.nodes
    dead.kill()
    check_all(alive, 2)
    dead.start()
    check_all(r.nodes, 3)
    assert dead.worker.poll() is None  # it has outlived its daemon


def test_daemon_that_comes_back_at_once_is_a_member_again(ring):
    r = make(ring, 3)
    for node in r.nodes:
        node.kill()
        node.start()
        check_all(r.nodes, 3)
        assert "fetched with hash" not in node.log()


def test_member_that_dies_with_its_offer_made_offers_again(ring):
    r = ring(3)
    for node in r.nodes:
        node.configure(node=QUICK)
    r.start()
    a, b, c = r.nodes
    for node in (a, b):
        node.start_worker(*STEPS)
    c.start_worker("--steps", 100000, "--step-ms", 200)  # a round a second, for which the others wait
    for node in r.nodes:
        node.wait_for_round(1)
    for both in (True, False):
        a.wait_for("phase", "syncing")
        a.kill()
        if both:
            a.worker.kill()
            a.worker.wait()
        wait_for_members([b, c], 2)
        a.start()
        if both:
            a.start_worker(*STEPS)
        check_all(r.nodes, 3)


def stop_amid_round(victim, other):
    """The other's daemon stands still, and the victim has got some layers of a round back and others not."""
    def is_amid():
        other.daemon.send_signal(signal.SIGSTOP)
        states = {layer["state"] == "worker" for layer in victim.ctl("layers")["layers"]}
        if len(states) == 2:
            return True
        other.daemon.send_signal(signal.SIGCONT)
        return False
    wait_until(is_amid, 30, "a round of which some layers are done")


def test_member_that_is_killed_while_it_gives_layers_back_goes_on(ring):
    r = ring(3)
    for node in r.nodes:
        node.configure(node=QUICK, interval=1)
    r.start()
    # Rounds that can be met, and steps that are longer than a view takes to begin.
    options = ("--steps", 100000, "--step-ms", 400, "--layers", 16, "--size", 400000)
    r.start_workers(*options)
    for victim, other in (r.nodes[:2], r.nodes[1:], r.nodes[::-2]):
        wait_for_more_rounds(r.nodes, 2)
        stop_amid_round(victim, other)
        victim.kill()
        victim.worker.kill()
        victim.worker.wait()
        other.daemon.send_signal(signal.SIGCONT)
        victim.start()
        victim.start_worker(*options)
    check_all(r.nodes, 3)


def test_member_that_loses_its_power_and_its_disk_is_healed(ring):
    r = make(ring, 3, settings="[checkpoint]\nperiod = 0\nat_end = no")
    node = r.nodes[1]
    for is_disk_lost in (False, True):
        lose_power(node)
        if is_disk_lost:
            shutil.rmtree(node.folder / "state")
        node.start()
        node.start_worker(*STEPS)
        check_all(r.nodes, 3)


def test_member_that_loses_its_power_begins_with_its_checkpoint_and_is_healed(ring):
    r = make(ring, 3, settings="[checkpoint]\nrounds = 2")
    node = r.nodes[2]
    lose_power(node)
    wait_for_more_rounds(r.nodes[:2])
    node.start()
    node.start_worker(*STEPS)
    check_all(r.nodes, 3)
    assert "run restored after round" in node.log()


def test_all_that_are_killed_go_on(ring):
    r = make(ring, 4)
    for node in r.nodes:
        node.kill()
    for node in r.nodes:
        node.start()
    check_all(r.nodes, 4)


def test_all_that_are_killed_with_their_workers_go_on_but_for_one(ring):
    r = make(ring, 3)
    before = min(node.status()["round"] for node in r.nodes)
    for node in r.nodes:
        node.kill()
        node.worker.kill()
        node.worker.wait()
    for node in r.nodes[:2]:
        node.start()
        node.start_worker(*STEPS)
    check_all(r.nodes[:2], 2)
    assert r.nodes[0].status()["round"] > before


def test_new_member_joins_a_ring_that_has_begun(ring):
    r = make(ring, 3)
    new = Node(r, "new", free_ports(1)[0])
    listed = [f"{node.name} = tcp://127.0.0.1:{node.port}" for node in (*r.nodes, new)]
    new.configure(node=QUICK, members=listed)
    r.nodes.append(new)
    new.start()
    new.start_worker(*STEPS)
    check_all(r.nodes, 4)
    # A member like the others: it is there when others are not.
    r.nodes[0].kill()
    check_all(r.nodes[1:], 3)


def test_new_member_with_another_model_is_refused_and_the_ring_unaffected(ring):
    r = make(ring, 2, options=("--fact", "hidden_size=64"))
    new = Node(r, "new", free_ports(1)[0])
    new.configure(node=QUICK, members=[f"{node.name} = tcp://127.0.0.1:{node.port}" for node in (*r.nodes, new)])
    r.nodes.append(new)
    new.start()
    new.start_worker(*STEPS, "--fact", "hidden_size=128")
    new.wait_for_log("not taken in by the ring: it trains another model, on other data, or another run (node.run): "
                     "there hidden_size: 64, here 128")
    check_all(r.nodes[:2], 2)


def test_new_member_that_nobody_can_reach_asks_ever_less_often_and_says_why(ring):
    r = make(ring, 2)
    port, other = free_ports(2)
    new = Node(r, "new", port)
    new.configure(node=QUICK + f"\nlisten = tcp://127.0.0.1:{other}",
                  members=[f"{node.name} = tcp://127.0.0.1:{node.port}" for node in (*r.nodes, new)])
    r.nodes.append(new)
    new.start()
    new.start_worker(*STEPS)
    for seconds in (2, 4, 8):
        new.wait_for_log(f"they must reach it at tcp://127.0.0.1:{port} and it them; asks again in {seconds} s", 30)
    views = r.nodes[0].status()["view"]
    assert "peer new: down" in r.nodes[0].log() + r.nodes[1].log()
    check_all(r.nodes[:2], 2)
    assert r.nodes[0].status()["view"] == views


def test_all_machines_that_got_new_addresses_meet_again(ring):
    r = make(ring, 3)
    before = min(node.status()["round"] for node in r.nodes)
    for node, port in zip(r.nodes, free_ports(3)):
        node.kill()
        node.port = port
    for node in r.nodes:
        node.configure(node=QUICK)
        node.start()
    check_all(r.nodes, 3)
    assert r.nodes[0].status()["round"] > before
    # One alone, of which the others' files do not know.
    moved = r.nodes[1]
    moved.kill()
    moved.port = free_ports(1)[0]
    moved.configure(node=QUICK)
    moved.start()
    check_all(r.nodes, 3)


def test_new_member_on_a_copy_of_the_disk_of_another_is_refused_with_what_to_do(ring):
    r = make(ring, 2)
    r.nodes[1].kill()
    r.nodes[1].start()
    check_all(r.nodes, 2)
    new = Node(r, "new", free_ports(1)[0])
    r.nodes.append(new)
    for name, other in (("new", r.nodes[0]), ("b", r.nodes[0])):  # one that is not in the view, one that is
        new.name = name
        new.configure(node=QUICK, members=[f"{node.name} = tcp://127.0.0.1:{node.port}" for node in r.nodes[:2] if node.name != name] +
                      [f"{name} = tcp://127.0.0.1:{new.port}"])
        shutil.copy(other.folder / "state/vote-test", new.folder / "state/vote-test")
        done = subprocess.run([BUILD / "editd", "-c", new.config], capture_output=True, text=True, timeout=10)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), (done.returncode, done.stderr)
        assert f"state/vote-test: is the vote of another node than {name}: remove it" in done.stderr
    (new.folder / "state/vote-test").unlink()
    new.name = "new"
    new.configure(node=QUICK)
    new.start()
    new.start_worker(*STEPS)
    check_all(r.nodes, 3)


def test_layer_that_is_damaged_in_memory_is_told_and_healed(ring):
    r = make(ring, 3)
    node = r.nodes[1]
    with open(node.folder / "run/state", "r+b") as file:  # the daemon works on this file
        file.seek(-64 * 16, os.SEEK_END)
        file.write(struct.pack("<16f", *[0.25] * 16))
    wait_until(lambda: node.status()["layers_fetched"] > 0, 20, lambda: (node.status(), node.log()))
    check_all(r.nodes, 3)
    for other in r.nodes:
        assert other.status()["hash_differences"] > 0 and other.log().count("has hash ") >= 1
        assert other.status()["layers_fetched"] == (1 if other is node else 0)


def test_second_daemon_of_a_name_does_not_push_the_first_one_out(ring):
    r = make(ring, 2)
    twin = Node(r, "b2", free_ports(1)[0])
    listed = [f"a = tcp://127.0.0.1:{r.nodes[0].port}", f"b = tcp://127.0.0.1:{twin.port}"]
    twin.name = "b"
    twin.configure(node=QUICK, members=listed)
    r.nodes.append(twin)
    twin.start()
    twin.start_worker(*STEPS)
    wait_for_more_rounds(r.nodes[:2], 50)
    check_all(r.nodes[:2], 2)
    assert r.nodes[0].log().count("view ") == r.nodes[1].log().count("view ")
    assert "view 2" not in r.nodes[0].log()


def test_holder_of_a_pair_goes_on_alone_and_the_other_waits(ring):
    r = make(ring, 2)
    a, b = r.nodes
    b.kill()
    check_all([a], 1)
    b.start()
    check_all(r.nodes, 2)
    a.kill()
    before = b.status()["round"]
    wait_until(lambda: b.status()["stalled_us"] > 0, 15, b.status)
    assert members(b) == 2
    wait_until(lambda: "1 of 2 members of view" in b.status()["advice"] and "editctl force" in b.status()["advice"], 15, b.status)
    a.start()
    check_all(r.nodes, 2)
    assert b.status()["round"] > before


def test_daemon_that_comes_back_at_once_amid_gradients_leaves_all_with_the_same_bits(ring, tmp_path):
    data = tmp_path / "text"
    data.write_bytes(b"What goes round comes round, and what is lost is fetched. " * 400)
    r = ring(3)
    for node in r.nodes:
        node.configure(node=QUICK, method="ddp")
    r.start()
    r.start_training(data, "--steps", 100000, "--lr", "0.01")
    for node in r.nodes:
        node.wait_for_round(3)
    for victims in (r.nodes[:1], r.nodes[2:], r.nodes[1:2], r.nodes[:2], r.nodes[:1]):
        for node in victims:
            node.kill()
        for node in victims:
            node.start()
        check_all(r.nodes, 3)
    for node in r.nodes:
        assert "has hash" not in node.log(), node.log()


def test_member_that_stood_still_is_dropped_and_joins_again(ring):
    r = make(ring, 3)
    frozen = r.nodes[1]
    frozen.daemon.send_signal(signal.SIGSTOP)
    check_all([r.nodes[0], r.nodes[2]], 2)
    frozen.daemon.send_signal(signal.SIGCONT)
    check_all(r.nodes, 3)


@pytest.mark.parametrize("is_memory_lost", [False, True])
def test_member_that_was_away_at_the_end_of_the_run_ends_too(ring, is_memory_lost):
    r = ring(3)
    steps = ("--steps", 200, "--step-ms", 10)
    for node in r.nodes:
        node.configure(node=QUICK)
    r.start()
    r.start_workers(*steps)
    for node in r.nodes:
        node.wait_for_round(2)
    away = r.nodes[2]
    if is_memory_lost:
        lose_power(away)
    else:
        away.kill()
    for node in r.nodes[:2]:
        node.wait_for("phase", "finished")
    away.start()
    if is_memory_lost:
        away.start_worker(*steps)
    away.wait_for("phase", "finished")
    assert away.worker.wait(10 * SLOW) == 0, away.worker_text()
    away.kill()
    away.start()
    away.start_worker(*steps)
    assert away.worker.wait(10 * SLOW) == 0, away.worker_text()
    away.wait_for("phase", "finished")


@pytest.mark.parametrize("method", ["edit", "a-edit", "co2", "ddp", "diloco"])
def test_deaths_while_it_trains_leave_all_with_the_same_bits(ring, tmp_path, method):
    data = tmp_path / "text"
    data.write_bytes(b"What goes round comes round, and what is lost is fetched. " * 400)
    r = ring(3)
    more = "[sync]\nperiod = 0.05" if method == "a-edit" else ""
    for node in r.nodes:
        node.configure(node=QUICK, ring=more, interval=4, method=method)
    r.start()
    r.start_training(data, "--steps", 100000, "--lr", "0.01")
    for node in r.nodes:
        node.wait_for_round(3)
    for victim in (r.nodes[0], r.nodes[2], r.nodes[1], r.nodes[0]):
        victim.kill()
        wait_for_members([node for node in r.nodes if node is not victim], 2)
        victim.start()
        check_all(r.nodes, 3)

"""Members that die, come back, join and are cut off: the others decide to go on without them, and take them in again."""

import mmap
import shutil
import signal
import struct

import pytest

from conftest import Node, free_ports, wait_until

# Death is noticed after a second.
QUICK = "heartbeat_ms = 200\nsilence_ms = 1000"
STEPS = ("--steps", 100000, "--step-ms", 5)


def make(ring, count, node="", settings=""):
    r = ring(count)
    for one in r.nodes:
        one.configure(node=QUICK + "\n" + node, ring=settings)
    r.start()
    r.start_workers(*STEPS)
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


# Words of the segment (docs/protocol.md).
STEP, OFFERED_STEP, LAYERS, OWNER_WORKER, OWNER_DAEMON, INTERVAL = 192, 216, 4096, 1, 2, 5


def offered_step(node):
    return struct.unpack_from("<Q", (node.folder / "run/segment").read_bytes(), OFFERED_STEP)[0]


def test_offer_of_which_some_layers_were_back_is_made_again_at_the_next_step(ring):
    r = make(ring, 3)
    node = r.nodes[1]
    for process in (node.daemon, node.worker):
        process.kill()
        process.wait()
    # As if the daemon had died in the middle of a round: the worker has offered, and has its first layer back.
    with open(node.folder / "run/segment", "r+b") as file, mmap.mmap(file.fileno(), 8192) as words:
        step = struct.unpack_from("<Q", words, OFFERED_STEP)[0] + INTERVAL
        struct.pack_into("<Q", words, STEP, step)
        struct.pack_into("<Q", words, OFFERED_STEP, step)
        for layer in range(3):
            struct.pack_into("<I", words, LAYERS + 128 * layer, OWNER_DAEMON if layer else OWNER_WORKER)
    wait_for_members((r.nodes[0], r.nodes[2]), 2)
    node.daemon = node.worker = None
    node.start()
    node.start_worker("--steps", 100000, "--step-ms", 3000)  # so that all members are there before it has done one
    wait_until(lambda: offered_step(node) == step + 1, 20, lambda: (offered_step(node), step, node.log()))


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
    r = make(ring, 2)
    new = Node(r, "new", free_ports(1)[0])
    new.configure(node=QUICK, members=[f"{node.name} = tcp://127.0.0.1:{node.port}" for node in (*r.nodes, new)])
    r.nodes.append(new)
    new.start()
    new.start_worker(*STEPS, "--fact", "hidden_size=128")
    new.wait_for_log("not taken in by the ring: it trains another model")
    check_all(r.nodes[:2], 2)


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
    a.start()
    check_all(r.nodes, 2)
    assert b.status()["round"] > before


def test_member_that_stood_still_is_dropped_and_joins_again(ring):
    r = make(ring, 3)
    frozen = r.nodes[1]
    frozen.daemon.send_signal(signal.SIGSTOP)
    check_all([r.nodes[0], r.nodes[2]], 2)
    frozen.daemon.send_signal(signal.SIGCONT)
    check_all(r.nodes, 3)


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

"""Meshes of real daemons: replicas that are cut over several nodes, with real workers and with probes."""

import re
import signal
import subprocess

import pytest

from conftest import BUILD, free_ports, wait_until

CONTEXT, BATCH = 16, 2  # as in Node.start_training
TEXT = b"A mesh is a ring of rings: what one node cannot hold, several hold together, and no step is lost. "


@pytest.fixture
def data(tmp_path):
    """A text for every worker."""
    path = tmp_path / "text"
    path.write_bytes(TEXT * 400)
    return path


def check_logs(r):
    """Nothing was wrong: of warnings, only the end of workers that had finished, and frames that came before a hello."""
    usual = re.compile(r"is gone$|frames from strangers \d+, malformed frames 0, malformed requests 0$")
    for node in r.nodes:
        bad = [line for line in node.log().splitlines() if re.match("<[0-4]>", line) and not usual.search(line)]
        assert bad == [], (node.name, bad)
        assert "finite" not in node.worker_text(), node.worker_text()


BY_TIME = "period = 0.1\nmin_steps = 2"


@pytest.mark.parametrize("rows, columns, method, ring_lines, model, options", [
    (2, 2, "edit", "", {}, []),
    (2, 2, "edit", "warmup_steps = 8", {"tie_word_embeddings": True}, []),
    (2, 2, "a-edit", BY_TIME, {}, []),
    (2, 2, "ddp", "", {"tie_word_embeddings": True}, ["--accumulate", 2]),
    (2, 2, "co2", "", {}, ["--accumulate", 2]),
    (1, 3, "edit", "warmup_steps = 8", {}, ["--accumulate", 2]),
    (1, 3, "ddp", "", {"tie_word_embeddings": True}, []),
    (3, 1, "diloco", "", {"tie_word_embeddings": True}, ["--accumulate", 2]),
    (2, 3, "local-sgd", "", {}, []),
    (2, 3, "diloco", "warmup_steps = 8", {"tie_word_embeddings": True}, ["--accumulate", 2]),
    (2, 3, "a-edit", BY_TIME, {}, []),
])
def test_mesh_finishes_with_equal_hashes(ring, data, rows, columns, method, ring_lines, model, options):
    r = ring(rows * columns, shards=columns)
    for node in r.nodes:
        node.configure(method=method, ring=ring_lines)
    r.start()
    r.start_training(data, "--steps", 30, *options, model=model)
    r.wait_until_finished()
    hashes = r.check_hashes()
    assert columns == 1 or len({tuple(column) for column in hashes}) == columns  # pieces of one model, not copies
    steps, rounds = [node.status()["step"] for node in r.nodes], {node.status()["round"] for node in r.nodes}
    if method == "a-edit":  # each replica at its own pace; the first that is done ends the run
        assert max(steps) == 30 and all(len(set(steps[i:i + columns])) == 1 for i in range(0, len(steps), columns)), steps
        assert len(rounds) == 1
    else:
        assert steps == [30] * len(steps)
        assert rounds == {31 if method == "ddp" else 8 + 5 if ring_lines else 6}
    check_logs(r)


# ---- The loss curve ----

def mix(x):
    """SplitMix64's finaliser, as in worker/corpus.c."""
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 % 2**64
    x = (x ^ x >> 27) * 0x94d049bb133111eb % 2**64
    return x ^ x >> 31


def permute(key, size, index):
    """corpus_permute: which sample stands at a place of the epoch."""
    half = 1
    while size > 1 << 2 * half:
        half += 1
    while True:
        left, right = index >> half, index & ((1 << half) - 1)
        for number in range(1, 7):
            left, right = right, left ^ mix((key + number * 0x9e3779b97f4a7c15 + mix(right)) % 2**64) & ((1 << half) - 1)
        index = left << half | right
        if index < size:
            return index


def write_samples(path, samples, steps, of_place):
    """A text in which the worker (seed 1) finds samples[of_place(p)] at place p of the epoch. A sample's last byte is the first of
    its neighbour in the file: that is the same for all, so that their order changes none of them."""
    count = 4 * BATCH * steps
    blocks = [b""] * count
    for place in range(count):
        blocks[permute(mix(1), count, place)] = b"\n" + samples[of_place(place)]
    path.write_bytes(b"".join(blocks) + b"\n")


def losses(node):
    return [float(loss) for loss in re.findall(r"step \d+/\d+: loss ([0-9.]+)", node.worker_text())]


@pytest.mark.parametrize("method", ["edit", "ddp"])
def test_mesh_takes_the_steps_of_a_ring_with_the_same_data(ring, tmp_path, method):
    """Of a mesh of two replicas of two nodes, the node with rank g reads places g, g + 4, ... of the epoch, so the first replica takes
    of every four places 0 and 1. The two members of a ring, with twice the batch, read 0 and 2 of every four, and 1 and 3: their
    text has the samples of places 1 and 2 exchanged."""
    steps = 50
    samples = [bytes(97 + (i * i + 7 * i * k + k * k) % 23 for k in range(CONTEXT - 1)) for i in range(4 * BATCH * steps)]
    write_samples(tmp_path / "mesh", samples, steps, lambda place: place)
    write_samples(tmp_path / "ring", samples, steps, lambda place: place // 4 * 4 + (0, 2, 1, 3)[place % 4])
    mesh, plain = ring(4, shards=2), ring(2)
    for node in mesh.nodes + plain.nodes:
        node.configure(method=method)
    for r in (mesh, plain):
        r.start()
    mesh.start_training(tmp_path / "mesh", "--steps", steps)
    plain.start_training(tmp_path / "ring", "--steps", steps, "--accumulate", 2)
    for r in (mesh, plain):
        r.wait_until_finished()
        r.check_hashes()
    curves = [losses(node) for node in mesh.nodes]
    for row, node in enumerate(plain.nodes):
        whole = [(a + b) / 2 for a, b in zip(curves[2 * row], curves[2 * row + 1])]
        assert len(whole) == len(losses(node)) == steps
        assert max(abs(a - b) for a, b in zip(whole, losses(node))) < 1e-4, (whole, losses(node))
        assert whole[-1] < whole[0] - 0.3, whole  # and something was learned


# ---- Verdicts of a whole replica ----

def verdicts(node, name):
    """(round, verdict) of each layer. In the middle of a round the first layers are a round ahead."""
    layers = next(peer["layers"] for peer in node.ctl("penalties")["peers"] if peer["name"] == name)
    return {(layer["round"], layer["verdict"]) for layer in layers}


def test_replica_with_one_slow_node_is_late_as_a_whole(ring):
    r = ring(6, shards=2)
    for node in r.nodes:
        node.configure(ring="[straggler]\ngrace = 1.2\nmax_stale = 50")
    r.start()
    for node in r.nodes:
        node.start_worker("--steps", 100000, "--step-ms", 80 if node.name == "f" else 6)
    r.nodes[0].wait_for_round(15)
    seen = {"e": set(), "f": set()}
    for _ in range(300):
        for node, name in ((r.nodes[0], "e"), (r.nodes[3], "f")):
            told = verdicts(node, name)
            assert len(told) == len({number for number, _ in told}), told
            seen[name] |= {verdict for _, verdict in told}
        if all(told >= {"late", "accepted"} for told in seen.values()):
            break
    assert seen == {"e": {"late", "accepted"}, "f": {"late", "accepted"}}
    steps = [node.status()["step"] for node in r.nodes]
    assert min(steps[:4]) > 2 * max(steps[4:]) and abs(steps[4] - steps[5]) <= 1, steps
    r.nodes[3].ctl("set", "straggler.grace", "0", "--wait", "--timeout", "20")
    r.check_hashes()


def test_nan_in_one_node_leaves_its_whole_replica_out_of_that_layer(ring, data):
    r = ring(4, shards=2)
    r.start()
    for node in r.nodes:
        node.start_training(data, "--steps", 40, *(["--drill", "nan@12"] if node.name == "d" else []))
    r.wait_until_finished()
    r.check_hashes()
    for node in r.nodes:
        mate = "c" if node.name in "ac" else "d"
        lines = [line for line in node.log().splitlines() if "left out (" in line]
        assert len(lines) == 1 and f"{mate} left out (nonfinite" in lines[0], (node.name, lines)


# ---- Steering ----

def test_settings_pause_and_resume_on_any_node_hold_for_all(ring):
    r = ring(6, shards=2)
    r.start()
    r.start_workers("--steps", 100000, "--step-ms", 2)
    r.nodes[0].wait_for_round(2)
    for i, node in enumerate(r.nodes):
        node.ctl("set", "sync.interval", i + 3, "--wait", "--timeout", "20")
        other = r.nodes[(i + 3) % 6]
        other.ctl("wait", "round", node.status()["round"] + 1, "--timeout", "20")
        told = {(s["value"], s["since_round"]) for s in (n.ctl("get", "sync.interval")["settings"][0] for n in r.nodes)}
        assert len(told) == 1 and told.pop()[0] == str(i + 3)
    for pauser, resumer in ((1, 4), (0, 3), (5, 0)):
        r.nodes[pauser].ctl("pause", "--wait", "--timeout", "20")
        for node in r.nodes:
            node.wait_for("phase", "paused")
        assert len({node.status()["round"] for node in r.nodes}) == 1
        r.check_hashes()
        r.nodes[resumer].ctl("resume")
        for node in r.nodes:
            node.wait_for("phase", "training")
    r.nodes[2].wait_for_round(r.nodes[2].status()["round"] + 2)


def test_methods_follow_each_other_on_a_running_mesh(ring):
    r = ring(4, shards=2)
    r.start()
    r.start_workers("--steps", 100000, "--step-ms", 1)
    r.nodes[0].wait_for_round(2)
    by_time = {"method": "a-edit", "sync.period": "0.05"}
    others = [{"method": method} for method in ("edit", "co2", "ddp", "edit")]
    for i, wanted in enumerate([{"method": "ddp"}, by_time, *others]):
        node = r.nodes[i % 4]
        node.ctl("set", *(f"{name}={value}" for name, value in wanted.items()), "--wait", "--timeout", "20")
        node = r.nodes[(i + 1) % 4]
        node.ctl("wait", "round", node.status()["round"] + 5, "--timeout", "20")
        for n in r.nodes:
            assert {name: n.ctl("get", name)["settings"][0]["value"] for name in wanted} == wanted
        r.check_hashes()


# ---- A lost node ----

QUICK = "heartbeat_ms = 200\nsilence_ms = 600"


def wait_for_missing(node, *names):
    """The node stands still and says for whom: one of these."""
    wait_until(lambda: node.status()["waiting_for"] in names, 10, lambda: (node.name, names, node.status(), node.log()))


def test_frozen_daemon_stalls_the_mesh_until_it_goes_on(ring):
    r = ring(4, shards=2)
    for node in r.nodes:
        node.configure(node=QUICK)
    r.start()
    r.start_workers("--steps", 100000, "--step-ms", 1)
    r.nodes[0].wait_for_round(3)
    a, b, c, d = r.nodes
    d.daemon.send_signal(signal.SIGSTOP)
    # a has no ring with d, and waits for what c cannot send without d.
    for node, names in ((b, "d"), (c, "d"), (a, "bcd")):
        wait_for_missing(node, *names)
    for node in (b, c):
        node.wait_for_log("peer d: down, not heard for ")
        assert node.status()["healthy"] is False
    before = a.status()["round"]
    d.daemon.send_signal(signal.SIGCONT)
    for node in r.nodes:
        node.wait_for_round(before + 3)
    r.check_hashes()
    assert all(node.status()["healthy"] for node in r.nodes)


def check_that_all_go_on(r, data):
    """All daemons and workers are gone and started again: they go on from one round, to the end."""
    r.start()
    r.start_training(data, "--steps", 400)
    for node in r.nodes:
        wait_until(lambda n=node: "goes on at step" in n.worker_text(), 10, lambda n=node: (n.worker_text(), n.log()))
    steps = {int(re.search(r"goes on at step (\d+)", node.worker_text())[1]) for node in r.nodes}
    assert len(steps) == 1 and min(steps) >= 4 * 5 and min(steps) % 5 == 0, steps
    r.wait_until_finished()
    r.check_hashes()
    assert {(node.status()["step"], node.status()["round"]) for node in r.nodes} == {(400, 80)}


@pytest.mark.parametrize("part", ["daemon", "worker"])
def test_mesh_that_lost_a_part_goes_on_from_the_last_round_when_all_are_started_again(ring, data, part):
    r = ring(4, shards=2)
    for node in r.nodes:
        node.configure(node=QUICK)
    r.start()
    r.start_training(data, "--steps", 400)
    r.nodes[0].wait_for_round(4)
    a, b, c, d = r.nodes
    getattr(c, part).kill()
    # b has no ring with c, and waits for what a or d cannot send without c.
    for node, names in ((a, "c"), (d, "c"), (b, "acd")):
        wait_for_missing(node, *names)
    if part == "worker":
        c.wait_for_log("the worker is gone, and a mesh cannot go on without it: restart all members")
    for node in r.nodes:
        for process in (node.worker, node.daemon):
            process.kill()
            process.wait()
    check_that_all_go_on(r, data)


def test_workers_of_a_mesh_end_with_their_daemons_and_new_ones_go_on(ring, data):
    r = ring(4, shards=2)
    for node in r.nodes:
        node.configure(node=QUICK)
    r.start()
    r.start_training(data, "--steps", 400)
    r.nodes[0].wait_for_round(4)
    for node in r.nodes:
        node.daemon.kill()
        node.daemon.wait()
    for node in r.nodes:
        assert node.worker.wait(timeout=10) == 1
        assert "the daemon of a mesh has ended; start the worker anew" in node.worker_text()
    check_that_all_go_on(r, data)


# ---- Bad input ----

def check_config(node):
    done = subprocess.run([BUILD / "editd", "-c", node.config, "--check-config"], capture_output=True, text=True)
    return done.returncode, (done.stdout + done.stderr).strip().split(": ", 1)[-1]


def test_places_that_cannot_be_are_refused_with_the_line(ring):
    r = ring(4, shards=2)
    node = r.nodes[0]
    for shards, places, expected in (
            (3, "", "mesh.shards: 3 does not divide 4 members"),
            (0, "", "mesh.shards: "),
            (2, "[places]\na = 0.0\nb = 0.1\nc = 1.0\nd = 0.1", "places.d: 0.1 is the place of b, expected one of its own"),
            (2, "[places]\na = 0.0\nb = 0.1\nc = 1.0", "[places]: no place for d, expected ROW.COLUMN for every member"),
            (2, "[places]\na = 0.0\nb = 0.1\nc = 1.0\nd = 2.0", "places.d: 2.0 is outside"),
            (2, "[places]\na = 0", 'places.a: "0" is not a place'),
            (2, "[shard_addresses]\na = tcp://127.0.0.1:1\nx = tcp://127.0.0.1:2", "shard_addresses.x: not in [members]"),
            (1, "[shard_addresses]\na = tcp://127.0.0.1:1", "[shard_addresses] has no meaning where mesh.shards = 1")):
        node.configure(shards=shards, mesh=places)
        status, line = check_config(node)
        assert status == 2 and expected in line and "\n" not in line, (status, line, expected)


def wait_for_refusal(r, node, text, missing):
    """The node's log has the text; it waits for the missing one, and not one round begins anywhere."""
    node.wait_for_log(text)
    node.wait_for("waiting_for", missing)
    assert node.status()["healthy"] is False
    assert all(n.status()["round"] == 0 for n in r.nodes)


STRANGER = "not a neighbour"


def test_node_with_another_number_of_shards_is_refused_by_name(ring):
    r = ring(4, shards=2)
    r.nodes[3].configure(shards=4)
    r.start()
    r.start_workers()
    wait_for_refusal(r, r.nodes[2], "peer d: hello refused (a fact differs: mesh.shards, there 4, here 2)", "d")
    wait_for_refusal(r, r.nodes[3], "peer c: hello refused (a fact differs: mesh.shards, there 2, here 4)", "c")
    wait_for_refusal(r, r.nodes[1], f"refused by peer d ({STRANGER}", "d")
    told = {p["name"]: p for p in r.nodes[1].ctl("peers")["peers"]}["d"]
    assert told["state"] == "refused" and STRANGER in told["refusal"]


def test_node_with_other_places_is_refused_by_name(ring):
    r = ring(4, shards=2)
    r.nodes[3].configure(mesh="[places]\na = 0.0\nb = 0.1\nc = 1.1\nd = 1.0")
    r.start()
    r.start_workers()
    wait_for_refusal(r, r.nodes[1], f"refused by peer d ({STRANGER}", "d")
    wait_for_refusal(r, r.nodes[2], f"refused by peer d ({STRANGER}", "d")
    wait_for_refusal(r, r.nodes[3], f"refused by peer a ({STRANGER}", "a")


def test_shard_address_that_leads_to_another_node_is_refused_by_name(ring):
    r = ring(4, shards=2)
    ports = free_ports(4)
    for node in r.nodes:
        used = [ports[0], ports[3], ports[2], ports[1]] if node.name == "a" else ports
        node.configure(mesh="[shard_addresses]\n" + "\n".join(f"{n.name} = tcp://127.0.0.1:{p}" for n, p in zip(r.nodes, used)))
    r.start()
    r.start_workers()
    wait_for_refusal(r, r.nodes[0], f"refused by peer b ({STRANGER}", "b")

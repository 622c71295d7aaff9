"""editctl against real daemons of a mesh: who is where, whom it waits for, where the memory goes, and what to do when a part is lost."""

import json
import os
import subprocess

import pytest

from conftest import BUILD, SLOW, wait_until

QUICK = "heartbeat_ms = 200\nsilence_ms = 600"
RESTART = "restart all members (editd and worker)"


def run(node, *words, status=0):
    """Text of editctl, as people see it; (output, errors) if status is not 0."""
    done = subprocess.run([BUILD / "editctl", "-s", node.folder / "run/control.sock", "-t", str(3 * SLOW), *map(str, words)],
                          capture_output=True, text=True)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done.stdout if status == 0 else (done.stdout, done.stderr)


def training(ring, rows=2, columns=2):
    """A mesh whose workers train on for as long as the test takes."""
    r = ring(rows * columns, shards=columns)
    for node in r.nodes:
        node.configure(node=QUICK)
    r.start()
    r.start_workers("--steps", 1000000, "--step-ms", 2)
    for node in r.nodes:
        node.wait_for_round(2)
    return r


def states(node):
    return {member["name"]: member["state"] for member in node.ctl("mesh")["members"]}


def test_every_node_draws_the_members_in_their_places_and_marks_its_own(ring):
    r = training(ring)
    unknown = {"a": "d", "b": "c", "c": "b", "d": "a"}  # neither of its row nor of its column
    for rank, node in enumerate(r.nodes):
        answer = node.ctl("mesh")
        assert (answer["version"], answer["command"]) == (1, "mesh")
        assert [answer[key] for key in ("rows", "columns", "row", "column")] == [2, 2, rank // 2, rank % 2]
        assert [member["name"] for member in answer["members"]] == ["a", "b", "c", "d"]
        for member in answer["members"]:
            expected = "self" if member["name"] == node.name else "unknown" if member["name"] == unknown[node.name] else "live"
            assert member["state"] == expected, answer
            assert member["neighbour"] == (expected == "live") and (member["round"] > 0) == (expected != "unknown")
        lines = run(node, "mesh").splitlines()
        assert lines[0].startswith("2 replicas (rows) in 2 pieces (columns), after round ")
        assert lines[1].split() == ["COLUMN", "1", "COLUMN", "2"]
        drawn = [[word for word in line.split()[2:] if word.strip("[]") in "abcd"] for line in lines[2:4]]
        assert [[word.strip("[]") for word in row] for row in drawn] == [["a", "b"], ["c", "d"]], lines
        assert drawn[rank // 2][rank % 2] == f"[{node.name}]" and f"{unknown[node.name]} ?" in lines[2] + lines[3]
        assert f"place       row {rank // 2 + 1} of 2, column {rank % 2 + 1} of 2\n" in run(node, "status")


def test_peers_are_those_of_the_column_and_mates_those_of_the_row(ring):
    r = training(ring, 2, 3)
    answer = r.nodes[4].ctl("peers")  # e, in the middle of the second row
    assert [peer["name"] for peer in answer["peers"]] == ["b", "e"]
    assert [(mate["name"], mate["state"], mate["neighbour"]) for mate in answer["mates"]] == [("d", "live", True), ("f", "live", True)]
    assert all(mate["silent_us"] < 3e6 * SLOW and mate["address"].startswith("tcp://") for mate in answer["mates"])
    above, below = run(r.nodes[4], "peers").split("\nthe other nodes of this replica\n")
    assert {line.split()[0] for line in above.splitlines()[2:]} == {"b", "e"}
    assert [line.split()[:2] for line in below.splitlines()] == [["MATE", "STATE"], ["d", "live"], ["f", "live"]]


def test_memory_is_told_by_kind_and_adds_up(ring):
    r = training(ring)
    node = r.nodes[1]
    size = sum(layer["size"] for layer in node.ctl("layers")["layers"])
    answer = node.ctl("mesh")
    kinds = {entry["kind"]: entry["bytes"] for entry in answer["memory"]}
    assert list(kinds) == ["theta", "optimiser", "gradients", "gathered layers", "anchor", "momentum", "base and snapshot",
                           "rounds on the ring"]
    # A node holds half of each layer, the probe one number of inner state per parameter.
    for kind, times in (("theta", 1), ("optimiser", 1), ("gradients", 1), ("anchor", 1), ("momentum", 1), ("base and snapshot", 2)):
        assert abs(kinds[kind] - times * 4 * size / 2) <= 4 * 64 * times, (kind, kinds, size)
    assert kinds["gathered layers"] > 0 and kinds["rounds on the ring"] > 0
    assert answer["worker_pid"] == node.worker.pid
    assert min(answer[key] for key in ("daemon_bytes", "worker_bytes", "worker_own_bytes")) > 0
    rows = dict(line.rsplit("  ", 2)[:2] for line in run(node, "mesh").split("BYTES\n")[1].splitlines())
    numbers = {name.strip(): int(value) for name, value in rows.items()}
    total = numbers.pop("sum")
    assert total == sum(value for name, value in numbers.items() if not name.startswith("resident: "))


def test_plain_ring_is_one_column_and_says_so(ring):
    r = training(ring, 2, 1)
    lines = run(r.nodes[0], "mesh").splitlines()
    assert lines[0].startswith("no mesh (mesh.shards = 1): a ring of 2 whole replicas, after round ")
    assert lines[1].split() == ["COLUMN", "1"]
    assert [line.split()[:3] for line in lines[2:4]] == [["row", "1", "[a]"], ["row", "2", "b"]]
    answer = r.nodes[0].ctl("mesh")
    assert answer["columns"] == 1 and {entry["kind"]: entry["bytes"] for entry in answer["memory"]}["gathered layers"] == 0
    assert "place" not in run(r.nodes[0], "status") and r.nodes[0].ctl("peers")["mates"] == []


def test_before_there_is_a_worker_the_places_are_drawn_and_nobody_is_known(ring):
    r = ring(4, shards=2)
    r.nodes[0].start()
    assert states(r.nodes[0]) == {"a": "self", "b": "unknown", "c": "unknown", "d": "unknown"}
    text = run(r.nodes[0], "mesh")
    assert "[a] no worker" in text and all(f"{name} ?" in text for name in "bcd") and "MEMORY" not in text
    r.nodes[0].start_worker()
    r.nodes[0].wait_for("phase", "gathering")
    wait_until(lambda: r.nodes[0].status()["advice"].startswith("no hello of "), 10, r.nodes[0].status)


def test_dead_worker_is_told_where_it_died_and_the_others_say_where_to_look(ring):
    r = training(ring)
    a, b, c, d = r.nodes
    c.worker.kill()
    c.worker.wait()
    c.wait_for_log(f"the worker is gone, and a mesh cannot go on without it: {RESTART}, they go on from round ")
    status = c.status()
    assert (status["phase"], status["waiting_for"], status["healthy"]) == ("no-worker", "c", False)
    assert RESTART in status["advice"] and status["text"].startswith("stands still after round ")
    text = run(c, "mesh")
    assert "[c] no worker" in text and "waits for c\n" in text and "sum, without the worker's own" in text
    # b has no ring with c: it names one that waits itself.
    for node, names in ((a, "c"), (d, "c"), (b, "ad")):
        wait_until(lambda n=node: n.status()["advice"], 10, lambda n=node: (n.status(), n.log()))
        wait_until(lambda n=node, m=names: n.status()["waiting_for"] in m, 10, lambda n=node: (n.status(), n.log()))
    for node in (a, d):
        node.wait_for_log(f"the worker of c makes no progress: `editctl status` there says why; if it has died, {RESTART}")
        assert "waits for c, for " in run(node, "mesh") and node.status()["healthy"] is False
    c.start_worker("--steps", 1000000)
    c.wait_for_log(f"a worker of a mesh cannot be replaced in mid-run: {RESTART}")


def test_daemon_that_died_or_came_back_alone_is_named_with_what_to_do(ring):
    r = training(ring)
    a, b, c, d = r.nodes
    # Paused, so that no member is in the middle of a round: what a killed daemon leaves would not be taken up.
    a.ctl("pause", "--wait", "--timeout", 10 * SLOW)
    for node in r.nodes:
        node.wait_for("phase", "paused")
    c.kill()
    c.worker.kill()
    c.worker.wait()
    for node in (a, d):
        node.wait_for_log(f"c is not heard: the mesh goes on when it is back; if its editd has died, {RESTART}")
        assert states(node)["c"] == "down" and "c down" in run(node, "mesh")
    assert {mate["name"]: mate["state"] for mate in d.ctl("peers")["mates"]} == {"c": "down"}
    assert d.status()["healthy"] is False and RESTART in d.status()["advice"]
    c.start()
    c.start_worker("--steps", 1000000)
    for node in (a, d):
        node.wait_for_log(f"c was restarted in mid-run and cannot come back alone: {RESTART}")
        assert states(node)["c"] == "restarted" and RESTART in run(node, "status")
    wait_until(lambda: RESTART in c.status()["advice"], 10, lambda: (c.status(), c.log()))


def test_advice_goes_when_the_frozen_daemon_goes_on(ring):
    r = training(ring)
    a, b, c, d = r.nodes
    os.kill(d.daemon.pid, 19)  # SIGSTOP
    for node in (b, c):
        wait_until(lambda n=node: n.status()["advice"].startswith("d is not heard: "), 10, node.log)
    os.kill(d.daemon.pid, 18)  # SIGCONT
    for node in r.nodes:
        wait_until(lambda n=node: n.status()["healthy"] and not n.status()["advice"], 10, lambda n=node: (n.status(), n.log()))
    assert "advice" not in run(b, "status")


def test_mate_that_is_not_heard_is_unhealthy_even_where_nothing_waits_for_it(ring):
    r = training(ring)
    a, b, c, d = r.nodes
    a.ctl("pause", "--wait", "--timeout", 10 * SLOW)
    for node in r.nodes:
        node.wait_for("phase", "paused")
        assert node.status()["healthy"]
    os.kill(d.daemon.pid, 19)  # SIGSTOP
    for node in (b, c):
        wait_until(lambda n=node: not n.status()["healthy"], 10, node.status)
    assert {mate["name"]: mate["state"] for mate in c.ctl("peers")["mates"]} == {"d": "down"}
    assert a.status()["healthy"]  # shares no ring with d
    os.kill(d.daemon.pid, 18)  # SIGCONT
    for node in r.nodes:
        node.wait_for("healthy", True)


def test_mesh_is_watched_and_refused_like_the_other_verbs(ring):
    r = training(ring)
    node = r.nodes[0]
    shown = subprocess.Popen(["timeout", str(30 * SLOW), BUILD / "editctl", "-s", node.folder / "run/control.sock", "--json",
                              "--watch=0.1", "mesh"], stdout=subprocess.PIPE, text=True)
    rounds = [json.loads(shown.stdout.readline())["round"] for _ in range(10)]
    shown.terminate()
    shown.wait()
    assert rounds == sorted(rounds) and rounds[-1] > rounds[0]
    assert "editctl: " in run(node, "mesh", "bogus", status=2)[1].splitlines()[0]
    assert "editctl: " in run(node, "mesh", "--at-round", "3", status=2)[1].splitlines()[0]
    node.kill()
    assert "nobody listens" in run(node, "mesh", status=3)[1]
    assert node.ctl("mesh", status=3)["exit_status"] == 3

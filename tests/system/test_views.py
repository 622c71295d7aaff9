"""Who is a member, as people see and change it: editctl view, leave and force against real daemons."""

import subprocess

from conftest import BUILD, SLOW, wait_until

QUICK = "heartbeat_ms = 200\nsilence_ms = 600"


def run(node, *words, status=0):
    """Text of editctl, as people see it; (output, errors) if status is not 0."""
    done = subprocess.run([BUILD / "editctl", "-s", node.folder / "run/control.sock", "-t", str(3 * SLOW), *map(str, words)],
                          capture_output=True, text=True)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr, node.log())
    return done.stdout if status == 0 else (done.stdout, done.stderr)


def training(ring, count, shards=1):
    """A ring, or a mesh, whose workers train on for as long as the test takes."""
    r = ring(count, shards=shards)
    for node in r.nodes:
        node.configure(node=QUICK)
    r.start()
    r.start_workers("--steps", 1000000, "--step-ms", 2)
    for node in r.nodes:
        node.wait_for_round(2)
    return r


def names(answer):
    return [member["name"] for member in answer["members"]]


def wait_for_view(nodes, number, members):
    for node in nodes:
        wait_until(lambda n=node: (lambda a: (a["number"], names(a)) == (number, members))(n.ctl("view")), 20,
                   lambda n=node: (n.ctl("view"), [one.log() for one in nodes]))


def check_progress(nodes, rounds=3):
    """They go on, with the same bits."""
    round_now = max(node.status()["round"] for node in nodes)
    for node in nodes:
        node.wait_for_round(round_now + rounds)


def test_view_of_a_ring_at_its_begin_names_all_in_order_and_the_holder(ring):
    r = training(ring, 3)
    for node in r.nodes:
        wait_until(lambda n=node: n.ctl("view")["place"] == "in", 10, node.log)
        answer = node.ctl("view")
        assert (answer["version"], answer["command"], answer["number"], answer["name"]) == (1, "view", 1, node.name)
        assert names(answer) == ["a", "b", "c"] and (answer["heard"], answer["majority"]) == (3, True)
        assert [member["holder"] for member in answer["members"]] == [True, False, False]
        assert [member["state"] for member in answer["members"]] == ["self" if other is node else "live" for other in r.nodes]
        assert [member["address"] for member in answer["members"]] == [f"tcp://127.0.0.1:{other.port}" for other in r.nodes]
        assert (answer["joiners"], answer["council"], answer["trouble"], answer["entered"]) == ([], "idle", "", 1)
        lines = run(node, "view").splitlines()
        assert lines[:2] == ["view 1, 3 of 3 members heard", f"{node.name}: in it"]
        assert any(line.startswith(node.name) and line.split("  ")[-1].startswith("this node") for line in lines[3:6])
        status = node.status()
        assert (status["view"], status["view_members"], status["members_heard"]) == (1, 3, 3)
        assert "view 1, 3 of 3 members heard\n" in run(node, "status")


def test_view_is_being_gathered_until_all_are_there(ring):
    r = ring(2)
    r.nodes[0].start()
    answer = r.nodes[0].ctl("view")
    assert (answer["place"], answer["heard"], answer["majority"]) == ("first", 1, True)  # a is the tie-holder of a pair
    assert "a: view 1 is being gathered" in run(r.nodes[0], "view")
    for words in (["leave"], ["force", "a"]):
        assert len(run(r.nodes[0], *words, status=4)[1].splitlines()) == 1
    assert r.nodes[0].ctl("view")["place"] == "first"


def test_one_of_three_leaves_and_two_go_on(ring):
    r = training(ring, 3)
    a, b, c = r.nodes
    assert run(b, "leave", "--timeout", 20 * SLOW) == "b has left the ring: view 2 goes on with 2 members\n"
    wait_for_view([a, c], 2, ["a", "c"])
    assert b.worker.wait(10 * SLOW) == 0, b.worker_text()
    assert b.status()["text"].startswith("has left the ring") and b.ctl("view")["place"] == "left"
    assert "b: has left the ring" in run(b, "view") and "state       has left the ring" in run(b, "status")
    assert "not a member of the ring any more" in run(b, "leave", status=4)[1]
    check_progress([a, c])
    # Another worker of the leaver has nothing to do.
    b.start_worker("--steps", 1000000)
    assert b.worker.wait(10 * SLOW) == 0, b.worker_text()
    assert b.ctl("view")["place"] == "left" and a.ctl("view")["number"] == 2


def test_leaver_that_is_started_again_is_taken_in(ring):
    r = training(ring, 3)
    a, b, c = r.nodes
    b.ctl("leave", "--timeout", 20 * SLOW)
    b.worker.wait(10 * SLOW)
    wait_for_view([a, c], 2, ["a", "c"])
    b.stop()
    b.start()
    b.start_worker("--steps", 1000000, "--step-ms", 2)
    wait_for_view(r.nodes, 3, ["a", "c", "b"])
    check_progress(r.nodes)


def test_leave_that_nobody_can_decide_times_out_with_6_and_stays_asked_for(ring):
    r = training(ring, 2)
    a, b = r.nodes  # a holds the tie: without it b has no majority
    a.kill()
    wait_until(lambda: b.ctl("view")["heard"] == 1, 10, b.log)
    _, error = run(b, "leave", "--timeout", 1, status=6)
    assert "editctl: not within 1 s: b is in view 1, of which 1 of 2 members are heard, no majority" in error
    text = run(b, "view")
    assert "no majority, nothing can be decided" in text and "b: in it; has asked to leave\n" in text


def test_leave_ends_when_the_daemon_is_started_anew_meanwhile(ring):
    r = training(ring, 2)
    a, b = r.nodes
    a.kill()
    wait_until(lambda: b.ctl("view")["heard"] == 1, 10, b.log)
    leaving = subprocess.Popen([BUILD / "editctl", "-s", b.folder / "run/control.sock", "-t", "20", "leave"], stderr=subprocess.PIPE,
                               text=True)
    wait_until(lambda: any(member["leaving"] for member in b.ctl("view")["members"]), 10, b.log)
    b.kill()
    b.start()
    _, error = leaving.communicate(timeout=30 * SLOW)
    assert leaving.returncode in (1, 3) and len(error.splitlines()) == 1, error
    assert not any(member["leaving"] for member in b.ctl("view")["members"])


def test_other_of_a_pair_whose_holder_died_goes_on_by_force(ring):
    r = training(ring, 2)
    a, b = r.nodes
    a.kill()
    wait_until(lambda: b.ctl("view")["failed"] > 0, 10, b.log)
    assert b.ctl("view")["majority"] is False and "no majority" in run(b, "view") and "failed so far" in run(b, "view")
    assert "view 1, 1 of 2 members heard\n" in run(b, "status")
    assert "'x' is not in view 1" in run(b, "force", "b", "x", status=2)[1]
    assert "this node (b) is not among them" in run(b, "force", "a", status=2)[1]
    assert run(b, "force", "b") == "view 2 is forced: b goes on\n"
    wait_for_view([b], 2, ["b"])
    check_progress([b])


def test_member_behind_a_gap_is_not_counted_as_heard(ring):
    r = training(ring, 7)
    a, b, c, d, e, f, g = r.nodes
    for node in (b, d, e, g):
        node.daemon.kill()
    # Both neighbours of a are gone, so nobody tells it that d and e are too.
    wait_until(lambda: a.ctl("view")["heard"] == 1, 10, lambda: (a.ctl("view"), a.log()))
    assert a.ctl("view")["majority"] is False
    wait_until(lambda: a.ctl("view")["failed"] > 0, 20, lambda: (a.ctl("view"), a.log()))
    assert a.ctl("view")["number"] == 1 and run(a, "force", "a", "c", "f") == "view 2 is forced: a, c, f go on\n"
    wait_for_view([a, c, f], 2, ["a", "c", "f"])
    check_progress([a, c, f])


def test_force_is_refused_where_a_majority_is_heard_unless_it_is_insisted_on(ring):
    r = training(ring, 3)
    a = r.nodes[0]
    wait_until(lambda: a.ctl("view")["heard"] == 3, 10, a.log)
    _, error = run(a, "force", "a", "b", status=4)
    assert "3 of 3 members of view 1 are heard" in error and "two rings that go on apart" in error and "--force" in error
    assert len(error.splitlines()) == 1 and a.ctl("view")["number"] == 1
    assert run(a, "force", "a", "b", "--force") == "view 2 is forced: a, b go on\n"
    # It was not cut off, so it hears that it is out, and asks to be taken in again.
    wait_for_view(r.nodes, 3, ["a", "b", "c"])
    check_progress(r.nodes)


def test_members_of_a_mesh_do_not_change(ring):
    r = training(ring, 4, shards=2)
    for words in (["leave"], ["force", "a"], ["force", "a", "--force"]):
        assert "the members of a mesh do not change" in run(r.nodes[0], *words, status=4)[1]
    answer = r.nodes[0].ctl("view")
    assert (answer["place"], answer["council"], names(answer)) == ("fixed", "", ["a", "b", "c", "d"])
    assert [member["state"] for member in answer["members"]] == ["self", "live", "live", "unknown"]
    assert run(r.nodes[0], "view").splitlines()[:2] == ["view 1, 4 members", "a: a mesh: its members do not change"]
    assert "members heard" not in run(r.nodes[0], "status")
    check_progress(r.nodes)

"""editctl against real daemons: what people and programs see, exit codes, watching, and one flipped bit."""

import json
import os
import pty
import select
import subprocess
import time

import pytest

from conftest import BUILD, SLOW, wait_until

READ = ["status", "peers", "layers", "penalties", "get", "hash", "view"]


def command_line(node, *words):
    return [BUILD / "editctl", "-s", node.folder / "run/control.sock", "-t", str(3 * SLOW), *map(str, words)]


def run(node, *words, status=0):
    """Text of editctl, as people see it; (output, errors) if status is not 0."""
    done = subprocess.run(command_line(node, *words), capture_output=True, text=True)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done.stdout if status == 0 else (done.stdout, done.stderr)


def watch(node, *words, **more):
    """editctl that goes on; ended by the test, or after half a minute so that no test waits for ever."""
    return subprocess.Popen(["timeout", str(30 * SLOW), *command_line(node, *words)], **more)


def training(ring, count=2, *options, **settings):
    """A ring whose workers train on for as long as the test takes."""
    r = ring(count)
    for node in r.nodes:
        node.configure(**settings)
    r.start()
    r.start_workers("--steps", 1000000, "--step-ms", 2, *options)
    r.nodes[0].wait_for_round(2)
    return r


def test_tables_name_all_members_layers_and_settings(ring):
    r = training(ring, 3)
    a = r.nodes[0]
    layers = [layer["name"] for layer in a.ctl("layers")["layers"]]
    status = run(a, "status")
    assert "a, rank 0 of 3, run test" in status and "healthy" in status and "\033" not in status
    for command in ("peers", "penalties"):
        names = [word for line in run(a, command).splitlines() for word in line.split()[:2]]
        assert {"a", "b", "c"} <= set(names)
    for command in ("layers", "penalties", "hash"):
        text = run(a, command)
        assert all(layer in text for layer in layers)
    assert "all members hold the same bits" in run(a, "hash")
    settings = run(a, "get").splitlines()
    assert settings[0].split() == ["SETTING", "VALUE", "UNIT", "DEFAULT", "SCOPE", "SINCE", "WHAT"]
    assert any(line.split()[:3] == ["sync.interval", "5", "steps"] for line in settings)
    assert len(run(a, "get", "sync.interval").splitlines()) == 2


def test_before_the_first_round_nothing_is_shown_that_was_not_measured(ring):
    r = ring(2)
    r.nodes[0].start()
    assert "waiting for a worker at" in run(r.nodes[0], "status")
    r.nodes[1].start()
    r.start_workers("--steps", 1000000, "--step-ms", 30000)
    r.nodes[0].wait_for("healthy", True)
    for command in ("status", "peers", "layers", "penalties", "hash"):
        text = run(r.nodes[0], command)
        assert not any(word in text for word in ("nan", "absent", "equal", "same bits")), text
    assert r.nodes[0].status()["text"] == "training, no round done"
    assert "nobody has been judged" in run(r.nodes[0], "penalties")
    assert "no hashes to compare" in run(r.nodes[0], "hash")


def test_json_is_one_object_with_version_and_command(ring):
    r = training(ring)
    for command in READ:
        done = subprocess.run(command_line(r.nodes[0], "--json", command), capture_output=True, text=True, check=True)
        answer = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{command}: {name} is not JSON"))
        assert answer["version"] == 1 and answer["command"] == command
        assert done.stdout.count("\n") == 1 and done.stderr == ""


def test_loss_that_is_not_a_number_is_a_string_in_json(ring):
    r = ring(1)
    r.start()
    r.start_workers("--steps", 5, "--nan-loss", 2)
    r.wait_until_finished()
    losses = {r.nodes[0].ctl("peers")["peers"][0]["loss"], r.nodes[0].ctl("penalties")["peers"][0]["loss"]}
    assert losses == {"nan"}


def test_set_on_any_one_node_tells_one_round_that_holds_on_all(ring):
    r = training(ring, 4)
    for number, node in enumerate(r.nodes):
        text = run(node, "set", "sync.interval", 6 + number, "--wait", "--timeout", 10 * SLOW)
        words = text.split()
        assert words[:4] == ["sync.interval", str(5 + number), "->", f"{6 + number}:"]
        assert words[4:8] == ["in", "force", "after", "round"] and words[9:] == ["on", "all", "4", "members"]
        for other in r.nodes:
            other.wait_for_round(int(words[8]))
            seen = other.ctl("get", "sync.interval")["settings"][0]
            assert (seen["value"], seen["since_round"]) == (str(6 + number), int(words[8]))


def test_value_and_since_round_move_together(ring):
    r = training(ring, 2)
    shown = watch(r.nodes[1], "--json", "--watch=0.1", "get", "sync.interval", stdout=subprocess.PIPE, text=True)
    after = r.nodes[0].ctl("set", "sync.interval", 9, "--wait", "--timeout", 10 * SLOW)["changes"][0]["round"]
    seen = set()
    while ("9", after) not in seen:
        setting = json.loads(shown.stdout.readline())["settings"][0]
        seen.add((setting["value"], setting["since_round"]))
    shown.terminate()
    shown.wait()
    assert seen <= {("5", 0), ("9", after)}


def test_set_without_wait_ends_when_all_members_hold_it(ring):
    r = training(ring, 2)
    text = run(r.nodes[0], "set", "outer.lr", 0.5)
    assert text.startswith("outer.lr 0.8 -> 0.5: ")
    assert "held by all 2 members" in text or "in force after round" in text
    change = r.nodes[0].ctl("set", "outer.lr", 0.6)["changes"][0]
    wait_until(lambda: r.nodes[0].ctl("change", change["id"])["state"] == "in-force", 10, r.nodes[0].log)
    assert " -> 0.6: in-force after round " in run(r.nodes[0], "change", change["id"])


def test_several_settings_are_all_checked_before_one_is_proposed(ring):
    r = training(ring, 1)
    _, error = run(r.nodes[0], "set", "sync.interval=8", "outer.lr=11", status=2)
    assert error.startswith("editctl: outer.lr: 11 is out of range") and len(error.splitlines()) == 1
    r.nodes[0].wait_for_round(r.nodes[0].status()["round"] + 3)
    assert r.nodes[0].ctl("get", "sync.interval")["settings"][0]["value"] == "5"
    text = run(r.nodes[0], "set", "sync.interval=8", "outer.lr=0.7", "--wait", "--timeout", 10 * SLOW)
    assert [line.split(":")[0] for line in text.splitlines()] == ["sync.interval 5 -> 8", "outer.lr 0.8 -> 0.7"]


def test_change_that_no_round_takes_up_times_out_with_6(ring):
    r = ring(2)
    r.start()
    r.start_workers("--steps", 1000000, "--step-ms", 2)
    r.nodes[0].wait_for_round(1)
    r.nodes[1].kill()
    done = subprocess.run(command_line(r.nodes[0], "set", "sync.interval", 9, "--wait", "--timeout", 1),
                          capture_output=True, text=True)
    assert done.returncode == 6 and "not held by all members yet" in done.stdout


def test_wait_ends_at_the_round_and_with_6_in_time(ring):
    r = training(ring, 2)
    at = r.nodes[0].status()["round"] + 5
    assert r.nodes[0].ctl("wait", "round", at, "--timeout", 20 * SLOW)["round"] >= at
    assert run(r.nodes[0], "wait", "healthy", "--timeout", 5 * SLOW).startswith("a: round ")
    begin = time.monotonic()
    _, error = run(r.nodes[0], "wait", "finished", "--timeout", 1, status=6)
    assert error.startswith("editctl: not within 1 s: a is in round ") and 1 <= time.monotonic() - begin < 3 * SLOW


def test_wait_for_a_round_that_never_comes_is_refused_at_the_end(ring):
    r = ring(1)
    r.start()
    r.start_workers("--steps", 20)
    assert r.nodes[0].ctl("wait", "finished", "--timeout", 20 * SLOW)["phase"] == "finished"
    assert "the run is finished" in run(r.nodes[0], "wait", "round", 5, status=4)[1]


@pytest.mark.parametrize("words", [
    ["bogus"], ["status", "--bogus"], ["set", "sync.interval"], ["set", "sync.intervall", "5"], ["get", "sync.bogus"],
    ["set", "sync.interval", "-1"], ["set", "sync.interval", "nan"], ["wait", "bogus"], ["wait", "round", "0"],
    ["change", "xyz"], ["status", "-t", "0"],
])
def test_words_that_mean_nothing_exit_2_and_say_why(ring, words):
    r = training(ring, 1)
    _, error = run(r.nodes[0], *words, status=2)
    assert "editctl: " in error.splitlines()[0]


@pytest.mark.parametrize("words, command, text", [
    (["bogus", "--json"], None, "unknown command 'bogus'"),
    (["--json"], None, "no command given"),
    (["-jt", "0", "status"], "status", "--time 0: a time in seconds from 0.001 to 86400 was expected"),
    (["--js", "status", "--bogus"], "status", "unrecognized option '--bogus'"),
    (["peers", "--json", "-t"], "peers", "option requires an argument -- 't'"),
    (["--json", "get", "a", "b"], "get", "get is followed by: [SETTING]"),
    (["--json", "change", "xyz"], "change", "change is followed by an identity"),
])
def test_words_that_mean_nothing_are_told_in_json_too(words, command, text):
    done = subprocess.run([BUILD / "editctl", *words], capture_output=True, text=True)
    assert done.returncode == 2
    answer = json.loads(done.stdout)
    assert answer["text"].startswith(text) and answer["text"] in done.stderr.splitlines()[0]
    assert {**answer, "text": ""} == {"version": 1, "command": command, "error": "invalid input", "text": "", "exit_status": 2}


def test_help_with_json_is_text():
    done = subprocess.run([BUILD / "editctl", "--json", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("Usage: ") and done.stderr == ""


def test_output_that_cannot_be_written_exits_1(ring):
    r = training(ring, 1)
    for words in (["status"], ["--json", "penalties"], ["set", "outer.lr", "0.5"], ["wait", "round", "1"], ["status", "--watch"],
                  ["--json", "layers", "--watch"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(command_line(r.nodes[0], *words), stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1
        assert done.stderr == "editctl: standard output cannot be written (No space left on device)\n"


def test_ring_that_is_not_there_yet_exits_5_and_says_what_is_missing(ring):
    r = ring(2)
    a = r.nodes[0]
    r.start()
    for words in (["layers"], ["penalties"], ["hash"], ["pause"], ["resume"], ["checkpoint"], ["set", "sync.interval", "9"]):
        _, error = run(a, *words, status=5)
        assert error == f"editctl: no run yet: waiting for a worker at {a.folder}/run/worker.sock\n"
        assert a.ctl(*words, status=5)["exit_status"] == 5
    for words in (["status"], ["peers"], ["get"]):
        run(a, *words)
    a.start_worker()
    a.wait_for("phase", "gathering")
    for words in (["pause"], ["checkpoint"], ["set", "sync.interval", "9"]):
        assert run(a, *words, status=5)[1] == "editctl: the ring is not complete, waiting for b: nothing can be agreed upon yet\n"


def test_no_daemon_exits_3_and_says_what_to_start(ring):
    r = ring(1)
    for words in (["status"], ["set", "sync.interval", "5"], ["wait", "finished"], ["--watch", "hash"]):
        _, error = run(r.nodes[0], *words, status=3)
        assert str(r.nodes[0].folder / "run/control.sock") in error and "systemctl start editd" in error
        assert len(error.splitlines()) == 1
    assert r.nodes[0].ctl("status", status=3)["exit_status"] == 3


def test_daemon_that_died_exits_3_and_a_stopped_one_within_the_time_given(ring):
    r = training(ring, 1)
    node = r.nodes[0]
    os.kill(node.daemon.pid, 19)  # SIGSTOP
    begin = time.monotonic()
    done = subprocess.run([*command_line(node, "status"), "-t", "0.5"], capture_output=True, text=True)
    os.kill(node.daemon.pid, 18)  # SIGCONT
    assert done.returncode == 3 and "no answer within 0.5 s" in done.stderr and time.monotonic() - begin < 3 * SLOW
    assert node.status()["phase"] in ("training", "syncing")
    node.kill()
    assert "nobody listens" in run(node, "status", status=3)[1]


def flip_bit_of_anchor(node):
    """In the middle of the anchor of the last layer, which the state file ends with, before its momentum."""
    layer = node.ctl("layers")["layers"][-1]
    block = (4 * layer["size"] + 63) // 64 * 64
    with open(node.folder / "run/state", "r+b") as file:
        file.seek(-2 * block + layer["size"] // 2 * 4 + 2, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 0x20]))
    return layer["name"]


def flip_while_paused(r):
    r.nodes[0].ctl("pause", "--wait", "--timeout", 10 * SLOW)
    for node in r.nodes:
        node.wait_for("phase", "paused")
    name = flip_bit_of_anchor(r.nodes[1])
    r.nodes[0].ctl("resume")
    return name


def test_flipped_bit_of_an_anchor_is_healed_and_one_that_follows_soon_makes_hash_exit_5_on_every_member(ring):
    r = training(ring, 3)
    r.check_hashes()
    flip_while_paused(r)
    wait_until(lambda: r.nodes[1].status()["layers_fetched"] == 1, 15, r.nodes[1].log)
    for node in r.nodes:
        wait_until(lambda n=node: n.ctl("hash", status=None)["equal"], 10, node.log)
        assert node.status()["degraded"] == ""
    name = flip_while_paused(r)  # within half a minute: healing it would not cure what does that
    for node in r.nodes:
        wait_until(lambda n=node: not n.ctl("hash", status=None)["equal"], 10, node.log)
        answer = node.ctl("hash", status=5)
        differing = [layer for layer in answer["layers"] if not layer["equal"]]
        assert [layer["layer"] for layer in differing] == [name]
        hashes = {member["name"]: member["hash"] for member in differing[0]["members"]}
        assert hashes["a"] == hashes["c"] != hashes["b"]
        text = run(node, "hash", status=5)[0]
        assert "DIFFERS" in text and "1 of 3 layers differ" in text
        status = node.status()
        assert "has hash" in status["degraded"] and status["healthy"] is False


def test_watch_shows_a_spoiled_worker_as_it_happens(ring):
    r = ring(2)
    for node in r.nodes:
        node.configure(ring="[penalty]\nwarmup = 5", interval=30)
    r.start()
    shown = watch(r.nodes[0], "--json", "--watch", "0.1", "penalties", stdout=subprocess.PIPE, text=True)
    assert "no run yet" in json.loads(shown.stdout.readline())["text"]
    r.nodes[0].start_worker("--steps", 400, "--step-ms", 20)
    r.nodes[1].start_worker("--steps", 400, "--step-ms", 20, "--spike", 179)
    seen = {}
    while not seen.get("b"):
        answer = json.loads(shown.stdout.readline())
        if "error" in answer:  # no worker has come yet: the watch goes on
            continue
        for peer in answer["peers"]:
            left_out = [layer for layer in peer["layers"] if layer["verdict"] == "outlier"]
            assert all(layer["weight"] == 0 and layer["z"] > 3 for layer in left_out)
            seen[peer["name"]] = seen.get(peer["name"], 0) + len(left_out)
    shown.terminate()
    shown.wait()
    assert seen["a"] == 0 and seen["b"] > 0


def test_watch_appends_in_a_pipe_and_draws_over_on_a_terminal(ring):
    r = training(ring, 1)
    shown = watch(r.nodes[0], "--watch=0.1", "layers", stdout=subprocess.PIPE, text=True)
    lines = [shown.stdout.readline() for _ in range(12)]
    shown.terminate()
    shown.wait()
    assert sum(line.startswith("LAYER ") for line in lines) >= 2 and not any("\033" in line for line in lines)
    assert "\n" in lines  # an empty line between two pictures

    outer, inner = pty.openpty()
    shown = watch(r.nodes[0], "--watch=0.1", "layers", stdout=inner,
                  env={key: value for key, value in os.environ.items() if key != "NO_COLOR"})
    os.close(inner)
    seen = b""
    while seen.count(b"\033[H") < 3:
        assert select.select([outer], [], [], 10 * SLOW)[0], seen
        seen += os.read(outer, 4096)
    shown.terminate()
    shown.wait()
    os.close(outer)
    assert seen.startswith(b"\033[2J") and b"\033[1mLAYER\033[0m" in seen and b"\033[K" in seen

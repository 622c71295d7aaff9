"""editctl trace on real rings: what a slow member costs is in it, rounds are all there and once, and it goes on with --follow."""

import json
import signal
import subprocess

from conftest import BUILD, SLOW


def command_line(node, *words):
    return [BUILD / "editctl", "-s", node.folder / "run/control.sock", "-t", str(3 * SLOW), "trace", *map(str, words)]


def trace(node, *words, status=0):
    """The first line and those of the rounds; every line is one JSON object."""
    done = subprocess.run(command_line(node, *words), capture_output=True, text=True)
    assert done.returncode == status and done.stderr == "", (done.returncode, done.stdout, done.stderr)
    head, *rounds = [json.loads(line) for line in done.stdout.splitlines()]
    assert head["version"] == 1 and head["command"] == "trace"
    return head, rounds


def test_slow_worker_is_late_and_all_that_is_measured_is_there(ring):
    r = ring(3)
    for node in r.nodes:
        node.configure(node="heartbeat_ms = 500", interval=4)
    r.start()
    for node, step_ms in zip(r.nodes, (2, 2, 40)):
        node.start_worker("--steps", 48, "--step-ms", step_ms, "--layers", 5)
    r.wait_until_finished()
    head, rounds = trace(r.nodes[0])
    layers = r.nodes[0].ctl("layers")["layers"]
    assert (head["name"], head["run"], head["members"]) == ("a", "test", ["a", "b", "c"])
    assert head["layers"] == [{"name": layer["name"], "size": layer["size"]} for layer in layers] and len(layers) == 5
    assert head["heartbeat_us"] == 500000 and head["silence_us"] == 3000000 and head["finished"] is True
    assert (head["first_round"], head["round"]) == (1, 12)
    settings = {s["name"]: s["value"] for s in r.nodes[0].ctl("get")["settings"] if s["scope"] == "ring"}
    assert {name: str(value) if isinstance(value, str) else f"{value:.15g}" for name, value in head["settings"].items()} == settings
    assert head["settings"]["method"] == "edit" and head["settings"]["wire.chunk"] == 262144

    assert [line["round"] for line in rounds] == list(range(1, 13))
    ends = [line["end_us"] for line in rounds]
    assert ends == sorted(ends) and 0 < ends[0] and ends[-1] <= r.nodes[0].status()["uptime_us"]
    assert all(line["settings"] == head["settings"] for line in rounds)
    assert sum(line["sync_us"] for line in rounds) == r.nodes[0].status()["cumulative_sync_us"]
    for line in rounds:
        assert [member["name"] for member in line["members"]] == ["a", "b", "c"]
        assert [member["steps"] for member in line["members"]] == [4, 4, 4]
        assert all(member["verdicts"]["accepted"] == 5 and sum(member["verdicts"].values()) == 5 for member in line["members"])
        assert line["bytes"] > 0 and len(line["layers"]) == 5
        assert all(sum(times.values()) <= line["sync_us"] for times in line["layers"])
    # The slow one's four steps of 40 ms, the others' of 2 ms: who is first waits for the rest of it.
    for line in rounds[1:]:
        a, b, c = line["members"]
        assert c["interval_us"] > 100000 and c["lateness_us"] > 50000, line
        assert a["lateness_us"] < c["lateness_us"] / 2 > b["lateness_us"], line
        assert line["sync_us"] > 50000
    assert all(line["members"][2]["exposed_us"] < line["members"][0]["exposed_us"] for line in rounds[1:])
    # The same records on every member; times and bytes are each one's own.
    for node in r.nodes[1:]:
        other_head, others = trace(node)
        assert other_head["name"] == node.name and other_head["members"] == head["members"]
        for line, other in zip(rounds, others, strict=True):
            for mine, theirs in zip(line["members"], other["members"]):
                assert {**mine, "lateness_us": 0} == {**theirs, "lateness_us": 0}


def test_since_and_last_choose_rounds(ring):
    r = ring(1)
    r.start()
    r.start_workers("--steps", 50)
    r.wait_until_finished()
    numbers = {words: [line["round"] for line in trace(r.nodes[0], *words)[1]] for words in [
        (), ("--since", 1), ("--since", 7), ("--since", 11), ("--since", 10**15), ("--last", 3), ("--last", 99),
        ("--since", 9, "--last", 3), ("--since", 4, "--last", 3), ("--json", "--last", 1), ("--follow", "--last", 2)]}
    assert [list(n) for n in numbers.values()] == [
        list(range(1, 11)), list(range(1, 11)), [7, 8, 9, 10], [], [], [8, 9, 10], list(range(1, 11)),
        [9, 10], [8, 9, 10], [10], [9, 10]]


def test_rounds_of_many_pages_are_all_there_once(ring):
    r = ring(1)
    r.nodes[0].configure(interval=1)
    r.start()
    r.start_workers("--steps", 1200, "--layers", 60, "--size", 8)
    r.wait_until_finished(60)
    head, rounds = trace(r.nodes[0])
    assert (head["first_round"], head["round"]) == (177, 1200)  # the latest 1024
    assert [line["round"] for line in rounds] == list(range(177, 1201))
    assert len(trace(r.nodes[0], "--since", 5)[1]) == 1024


def test_settings_of_a_round_are_those_it_was_trained_with(ring):
    r = ring(2)
    r.start()
    r.start_workers("--steps", 1000000, "--step-ms", 2)
    r.nodes[0].wait_for_round(2)
    words = ["set", "sync.interval=9", "method=diloco", "--wait", "--timeout", 10 * SLOW]
    after = {change["text"].split()[0]: change["round"] for change in r.nodes[1].ctl(*words)["changes"]}
    r.nodes[0].wait_for_round(max(after.values()) + 3)
    for line in trace(r.nodes[0])[1]:
        interval = 9 if line["round"] > after["sync.interval"] else 5
        assert line["settings"]["sync.interval"] == interval == line["members"][0]["steps"], line
        assert line["settings"]["method"] == ("diloco" if line["round"] > after["method"] else "edit")
        assert line["settings"]["sync.overlap"] == ("none" if line["round"] > after["method"] else "forward")


def test_before_a_worker_there_is_no_trace_and_before_a_round_one_line(ring):
    r = ring(2)
    a = r.nodes[0]
    r.start()
    for words in ([], ["--follow"]):
        done = subprocess.run(command_line(a, *words), capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (5, "")
        assert done.stderr == f"editctl: no run yet: waiting for a worker at {a.folder}/run/worker.sock\n"
    r.start_workers("--steps", 1000000, "--step-ms", 30000)
    a.wait_for("healthy", True)
    head, rounds = trace(a)
    assert (head["first_round"], head["round"], head["finished"], rounds) == (0, 0, False, [])
    assert trace(a, "--since", 1)[1] == trace(a, "--last", 5)[1] == []


def test_follow_tells_each_round_as_it_ends_and_ends_with_the_run(ring):
    r = ring(2)
    r.start()
    r.start_workers("--steps", 60, "--step-ms", 40)
    r.nodes[0].wait_for("healthy", True)
    shown = subprocess.Popen(["timeout", str(60 * SLOW), *command_line(r.nodes[0], "--follow")], stdout=subprocess.PIPE, text=True)
    head = json.loads(shown.stdout.readline())
    seen = []
    while len(seen) < 3:
        seen.append(json.loads(shown.stdout.readline())["round"])
    assert r.nodes[0].status()["phase"] != "finished"
    rest = [json.loads(line)["round"] for line in shown.stdout]
    assert head["finished"] is False and seen + rest == list(range(1, 13)) and shown.wait() == 0


def test_follow_ends_with_its_daemon_and_the_next_one_keeps_only_its_own_rounds(ring):
    r = ring(1)
    node = r.nodes[0]
    r.start()
    r.start_workers("--steps", 1000000, "--step-ms", 2)
    node.wait_for_round(3)
    shown = subprocess.Popen(["timeout", str(60 * SLOW), *command_line(node, "--follow")], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
    first = json.loads(shown.stdout.readline())
    assert json.loads(shown.stdout.readline())["round"] == 1
    node.kill()
    text, errors = shown.stdout.read(), shown.stderr.read()
    assert shown.wait() == 3 and errors.startswith("editctl: ") and len(errors.splitlines()) == 1, (text, errors)
    last = json.loads(text.splitlines()[-1])["round"] if text else 1
    node.start()
    node.wait_for_round(last + 2)
    head, rounds = trace(node)
    assert head["incarnation"] != first["incarnation"] and head["first_round"] > 1
    assert rounds[0]["round"] == head["first_round"] and rounds[-1]["end_us"] < node.status()["uptime_us"]


def follow_over_a_restart(node):
    """What --follow writes when it sleeps while the daemon is started anew; None if it was asking just then, and ended."""
    shown = subprocess.Popen(command_line(node, "--follow", "--last", 1), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        lines = [json.loads(shown.stdout.readline()) for _ in range(3)]
        shown.send_signal(signal.SIGSTOP)
        node.kill()
        node.start()
        node.wait_for("healthy", True)
        shown.send_signal(signal.SIGCONT)
        while "command" not in lines[-1]:
            line = shown.stdout.readline()
            if not line:
                return None
            lines.append(json.loads(line))
        lines.append(json.loads(shown.stdout.readline()))
        return lines
    finally:
        shown.kill()
        shown.wait()


def test_follow_writes_a_first_line_for_another_daemon(ring):
    r = ring(1)
    r.start()
    r.start_workers("--steps", 1000000, "--step-ms", 20)
    r.nodes[0].wait_for_round(1)
    lines = next(filter(None, (follow_over_a_restart(r.nodes[0]) for _ in range(5))))
    heads = [line for line in lines if "command" in line]
    numbers = [line["round"] for line in lines if "command" not in line]
    assert len(heads) == 2 and heads[0]["incarnation"] != heads[1]["incarnation"] and lines[0] == heads[0]
    assert numbers == sorted(set(numbers)) and lines[-1]["round"] >= heads[1]["first_round"]
    assert lines[-1]["end_us"] < lines[-3]["end_us"]


def record(ring, interval, steps):
    """A file with the trace of a ring of three, of which the last one is slow."""
    r = ring(3)
    for node in r.nodes:
        node.configure(interval=interval)
    r.start()
    for node, step_ms in zip(r.nodes, (10, 10, 30)):
        node.start_worker("--steps", steps, "--step-ms", step_ms)
    r.wait_until_finished(60)
    path = r.nodes[0].folder / "trace.jsonl"
    with open(path, "wb") as file:
        subprocess.run(command_line(r.nodes[0]), stdout=file, check=True)
    return path


def rehearse(path, *words):
    done = subprocess.run([BUILD / "edit-sim", "rehearse", "--json", path, *words], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", (done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout)


def test_trace_of_a_real_ring_foretells_rounds_of_another_interval(ring):
    told = rehearse(record(ring, 4, 80), "--set", "sync.interval=16")
    assert abs(told["error_percent"]) < 25
    assert told["recorded"]["members"][0]["waiting_percent"] > 30 > told["recorded"]["members"][2]["waiting_percent"]
    measured = rehearse(record(ring, 16, 160))["recorded"]
    for key in ("round_s", "tokens_per_second"):
        assert 0.75 < told["rehearsed"][key] / measured[key] < 1.33, (key, told["rehearsed"], measured)
    assert abs(told["rehearsed"]["waiting_percent"] - measured["waiting_percent"]) < 15


def test_words_that_mean_nothing_exit_2(ring):
    r = ring(1)
    for words in (["--since", "0"], ["--last", "0"], ["--since", "x"], ["--last", "-1"], ["--watch"], ["x"],
                  ["--since", 2**53], ["--at-round", 3]):
        done = subprocess.run(command_line(r.nodes[0], *words), capture_output=True, text=True)
        assert done.returncode == 2 and done.stdout == "" and done.stderr.startswith("editctl: "), (words, done)

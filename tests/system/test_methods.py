"""Methods on real daemons: presets that change on a running ring, and rounds by time."""

import re
import subprocess

from conftest import BUILD, wait_until


def test_rounds_without_overlap_give_the_same_bits_and_hide_nothing(ring):
    hashes = []
    for overlap in ("none", "forward"):
        r = ring(2)
        for node in r.nodes:
            node.configure(ring=f"overlap = {overlap}")
        r.start()
        r.start_workers("--steps", 30, "--layers", 8)
        r.wait_until_finished()
        hashes.append(r.check_hashes())
    assert hashes[0] == hashes[1]


def test_method_changes_on_a_running_ring_without_losing_a_step(ring):
    r = ring(3)
    r.start()
    r.start_workers("--steps", 300, "--step-ms", 2)
    r.nodes[0].wait_for_round(2)
    r.nodes[1].ctl("set", "method", "local-sgd", "--wait", "--timeout", "20")
    told = [{s["name"]: (s["value"], s["since_round"]) for s in node.ctl("get")["settings"] if s["scope"] == "ring"}
            for node in r.nodes]
    assert told[0] == told[1] == told[2]
    since = told[0]["method"][1]
    assert since > 0
    for name, value in (("method", "local-sgd"), ("sync.overlap", "none"), ("outer.lr", "1"), ("outer.momentum", "0"),
                        ("penalty.threshold", "1e+30"), ("penalty.temperature", "1e+30"), ("penalty.clip", "1e+30")):
        assert told[0][name] == (value, since), name
    assert told[0]["sync.interval"] == ("5", 0)
    r.nodes[0].wait_for_round(since + 2)
    weights = [layer["weight"] for peer in r.nodes[0].ctl("penalties")["peers"] for layer in peer["layers"]]
    assert all(abs(weight - 1 / 3) < 1e-12 for weight in weights)
    r.wait_until_finished()
    r.check_hashes()
    assert [node.status()["step"] for node in r.nodes] == [300, 300, 300]
    assert [node.status()["round"] for node in r.nodes] == [60, 60, 60]


def test_rounds_by_time_let_each_member_take_steps_at_its_own_pace(ring):
    r = ring(2)
    for node in r.nodes:
        node.configure(ring="period = 0.5\nmin_steps = 2\n[penalty]\nby_steps = yes\ntemperature = 1e30")
    r.start()
    r.nodes[0].start_worker("--steps", 100000, "--step-ms", 2)
    r.nodes[1].start_worker("--steps", 100000, "--step-ms", 30)
    r.nodes[0].wait_for_round(4)
    for node in r.nodes:
        penalties = node.ctl("penalties")
        steps = {peer["name"]: peer["steps"] for peer in penalties["peers"]}
        weights = {peer["name"]: peer["layers"][0]["weight"] for peer in penalties["peers"]}
        assert steps["a"] > 4 * steps["b"] >= 8, steps
        assert abs(weights["a"] - steps["a"] / (steps["a"] + steps["b"])) < 1e-9
    before = r.nodes[0].status()
    r.nodes[1].ctl("set", "sync.period", "0", "--wait", "--timeout", "20")
    r.nodes[1].ctl("wait", "round", before["round"] + 4, "--timeout", "20")
    assert [peer["steps"] for peer in r.nodes[0].ctl("penalties")["peers"]] == [5, 5]
    r.check_hashes()


def test_gradients_of_every_step_keep_all_members_equal(ring):
    r = ring(3)
    for node in r.nodes:
        node.configure(method="ddp")
    r.start()
    r.start_workers("--steps", 40, "--step-ms", 1, "--layers", 6)
    r.wait_until_finished()
    r.check_hashes()
    # One round a step, and one of parameters after the last.
    assert [node.status()["round"] for node in r.nodes] == [41, 41, 41]
    assert [node.status()["step"] for node in r.nodes] == [40, 40, 40]
    assert not any("left out (" in node.log() or "differs" in node.log() for node in r.nodes)


def test_gradients_are_averaged_from_the_first_step_of_a_quick_worker(ring):
    """A worker that takes a step in no time must not take any before it knows that gradients are averaged."""
    for _ in range(4):
        r = ring(2)
        for node in r.nodes:
            node.configure(method="ddp")
        r.start()
        r.start_workers("--steps", 20, "--step-ms", 0, "--layers", 1, "--size", 1)
        r.wait_until_finished()
        r.check_hashes()
        assert [node.status()["round"] for node in r.nodes] == [21, 21]


def test_warmup_averages_gradients_first_and_parameters_afterwards(ring):
    r = ring(2)
    for node in r.nodes:
        node.configure(ring="warmup_steps = 12", interval=4)
    r.start()
    r.start_workers("--steps", 32)
    r.wait_until_finished()
    r.check_hashes()
    assert [node.status()["round"] for node in r.nodes] == [12 + 5] * 2


def test_round_behind_the_steps_does_not_hold_the_worker(ring):
    r = ring(2)
    for node in r.nodes:
        node.configure(method="co2")
    r.start()
    r.start_workers("--steps", 60, "--step-ms", 3)
    r.wait_until_finished()
    r.check_hashes()
    assert [node.status()["step"] for node in r.nodes] == [60, 60]


def tell_penalties(node):
    return subprocess.run([BUILD / "editctl", "-s", node.folder / "run/control.sock", "penalties"], capture_output=True, text=True,
                          check=True).stdout


def test_late_member_does_not_hold_the_ring_and_counts_later(ring):
    r = ring(3)
    for node in r.nodes:
        node.configure(ring="[straggler]\ngrace = 1.2\nmax_stale = 50")
    r.start()
    for node, ms in zip(r.nodes, (4, 4, 60)):
        node.start_worker("--steps", 100000, "--step-ms", ms)
    r.nodes[0].wait_for_round(30)
    seen = set()
    for _ in range(200):
        peers = {peer["name"]: peer for peer in r.nodes[1].ctl("penalties")["peers"]}
        seen.add(peers["c"]["layers"][0]["verdict"])
        if seen >= {"late", "accepted"}:
            break
    assert seen >= {"late", "accepted"}, seen
    wait_until(lambda: re.search(r"^> +c .* late ", tell_penalties(r.nodes[1]), re.M), 10, "late in the table of penalties")
    assert r.nodes[0].status()["step"] > 5 * r.nodes[2].status()["step"]
    r.nodes[0].ctl("set", "straggler.grace", "0", "--wait", "--timeout", "20")
    r.check_hashes()


def test_methods_follow_each_other_on_a_running_ring(ring):
    r = ring(4)
    r.start()
    r.start_workers("--steps", 100000, "--step-ms", 1)
    r.nodes[0].wait_for_round(2)
    # By time with a period of its own: that of the preset lasts longer than this test.
    by_time = {"sync.exchange": "parameters", "sync.period": "0.05"}
    for i, method in enumerate(("ddp", "co2", "by time", "ddp", "edit", "diloco", "co2", "local-sgd", "ddp", "by time", "edit")):
        wanted = by_time if method == "by time" else {"method": method}
        node = r.nodes[i % 3]
        node.ctl("set", *(f"{name}={value}" for name, value in wanted.items()), "--wait", "--timeout", "20")
        node = r.nodes[(i + 1) % 3]
        node.ctl("wait", "round", node.status()["round"] + 6, "--timeout", "20")
        for n in r.nodes:
            assert {name: n.ctl("get", name)["settings"][0]["value"] for name in wanted} == wanted
            assert n.status()["exchange"] == ("gradients" if method == "ddp" else "parameters")
        r.check_hashes()


def test_settings_without_a_meaning_together_are_refused_with_the_reason(ring):
    r = ring(2)
    r.start()
    r.start_workers("--steps", 100000, "--step-ms", 1)
    node = r.nodes[1]
    node.wait_for_round(2)
    node.ctl("set", "straggler.grace", "0.5", status=2)
    node.ctl("set", "straggler.grace", "2", "--wait", "--timeout", "20")
    node.ctl("set", "method", "ddp", "--wait", "--timeout", "20")  # a grace that is there rests
    for name, value in (("sync.period", "5"), ("sync.overlap", "steps"), ("straggler.grace", "1.5")):
        for more in ((), ("--dry-run",)):
            node.ctl("set", name, value, *more, status=4)
        told = subprocess.run([BUILD / "editctl", "-s", node.folder / "run/control.sock", "set", name, value],
                              capture_output=True, text=True)
        assert f"{name} " in told.stderr and "has no meaning where sync.exchange = gradients" in told.stderr
    node.ctl("set", "straggler.grace", "0", "--wait", "--timeout", "20")
    node.ctl("set", "method", "a-edit", "--dry-run")
    # What is agreed upon and not in force yet counts if it will be in force by then, and not before.
    far = node.status()["round"] + 1000000
    node.ctl("set", "method", "local-sgd", "--at-round", far)
    node.ctl("set", "sync.period", "5", status=4)
    node.ctl("set", "sync.period", "5", "--at-round", far - 1, status=4)
    node.ctl("set", "sync.period", "5", "--at-round", far)
    # One of several that mean nothing together: none is proposed.
    node.ctl("set", "sync.min_steps=3", "method=ddp", "sync.overlap=steps", status=4)
    assert node.ctl("get", "sync.min_steps")["settings"][0]["value"] == "1"
    r.check_hashes()


def test_worker_killed_among_its_gradients_comes_back_in_step(ring):
    r = ring(3)
    for node in r.nodes:
        node.configure(method="ddp")
    r.start()
    for node in r.nodes[:2]:
        node.start_worker("--steps", 80, "--step-ms", 2, "--layers", 6)
    for deed in ("--die-handing", "--tear"):
        r.nodes[2].start_worker("--steps", 80, "--step-ms", 2, "--layers", 6, deed, 20 if deed == "--tear" else 10)
        r.nodes[2].worker.wait(20)
    r.nodes[2].start_worker("--steps", 80, "--step-ms", 2, "--layers", 6)
    r.wait_until_finished()
    r.check_hashes()
    assert [node.status()["step"] for node in r.nodes] == [80, 80, 80]
    assert not any("differs" in node.log() for node in r.nodes)


def test_worker_killed_before_its_first_gradient_comes_back_in_step(ring):
    r = ring(3)
    for node in r.nodes:
        node.configure(method="ddp")
    r.start()
    for node in r.nodes[:2]:
        node.start_worker("--steps", 60, "--step-ms", 2, "--layers", 6)
    r.nodes[2].start_worker("--steps", 60, "--step-ms", 2, "--layers", 6, "--die-announcing", 20)
    r.nodes[2].worker.wait(20)
    r.nodes[2].start_worker("--steps", 60, "--step-ms", 2, "--layers", 6)
    r.wait_until_finished()
    r.check_hashes()
    assert [node.status()["step"] for node in r.nodes] == [60, 60, 60]
    # Every step is a round, the death brings one of alignment, and the last one is of parameters.
    assert [node.status()["round"] for node in r.nodes] == [62, 62, 62]

"""Steering a ring of real daemons: changes reach all members at one round, or none."""

import shutil
import subprocess

import pytest

from conftest import BUILD, wait_until


def running(ring, count=2, **options):
    r = ring(count)
    for node in r.nodes:
        node.configure(**options)
    r.start()
    r.start_workers("--steps", 1000000, "--step-ms", 2)
    r.nodes[0].wait_for_round(1)
    return r


def setting(node, name):
    return node.ctl("get", name)["settings"][0]


def test_set_on_any_member_is_in_force_on_all_at_one_round(ring):
    r = running(ring, 4)
    answer = r.nodes[2].ctl("set", "sync.interval", 7, "--wait", "--timeout", 10)
    change = answer["changes"][0]
    assert change["state"] == "in-force" and change["text"] == "sync.interval 5 -> 7"
    for node in r.nodes:
        wait_until(lambda n=node: float(setting(n, "sync.interval")["value"]) == 7, 5, lambda n=node: n.log())
        assert setting(node, "sync.interval")["since_round"] == change["round"]
    r.nodes[0].wait_for_round(change["round"] + 2)
    assert {p["steps"] for p in r.nodes[0].ctl("peers")["peers"]} == {7}
    r.check_hashes()


def test_set_at_a_round_waits_for_it_and_a_passed_one_is_refused(ring):
    r = running(ring)
    at = r.nodes[0].status()["round"] + 20
    r.nodes[0].ctl("set", "outer.lr", 0.5, "--at-round", at, "--wait", "--timeout", 30)
    assert setting(r.nodes[1], "outer.lr")["since_round"] == at
    refused = r.nodes[0].ctl("set", "outer.lr", 0.6, "--at-round", 1, status=4)
    assert "round 1 has passed" in refused["text"]


@pytest.mark.parametrize("name, value, text", [
    ("sync.intervall", "5", "sync.interval"),
    ("sync.interval", "0", "from 1 to"),
    ("sync.interval", "many", "whole number"),
    ("node.name", "b", "belongs to this node alone"),
])
def test_bad_set_is_refused_with_one_line(ring, name, value, text):
    r = running(ring, 1)
    answer = r.nodes[0].ctl("set", name, value, status=None)
    assert answer["exit_status"] in (2, 4) and text in answer["text"] and "\n" not in answer["text"]


def test_dry_run_changes_nothing(ring):
    r = running(ring, 1)
    r.nodes[0].ctl("set", "sync.interval", 9, "--dry-run")
    r.nodes[0].wait_for_round(r.nodes[0].status()["round"] + 3)
    assert float(setting(r.nodes[0], "sync.interval")["value"]) == 5


def test_pause_stops_all_workers_and_resume_on_another_lets_them_go_on(ring):
    r = running(ring)
    r.nodes[0].ctl("pause", "--wait", "--timeout", 10)
    for node in r.nodes:
        node.wait_for("phase", "paused")
    steps = [n.status()["step"] for n in r.nodes]
    subprocess.run(["sleep", "0.3"], check=True)
    assert [n.status()["step"] for n in r.nodes] == steps
    assert "paused already" in r.nodes[1].ctl("pause", status=4)["text"]
    rounds = r.nodes[0].status()["round"]
    r.nodes[1].ctl("resume")
    for node in r.nodes:
        node.wait_for_round(rounds + 2)
    assert "not paused" in r.nodes[0].ctl("resume", status=4)["text"]


def test_pause_between_any_two_steps_leaves_no_round_begun(ring):
    # A round after every step, and a layer starts only when its worker wants it: workers are nowhere else than at a boundary.
    r = running(ring, 3, interval=1, node="[sync]\nprefetch = 0")
    for i in range(6):
        r.nodes[i % 3].ctl("pause", "--wait", "--timeout", 10)
        for node in r.nodes:
            node.wait_for("phase", "paused", 5)
        assert all(node.status()["stalled_us"] == 0 for node in r.nodes)
        r.nodes[0].ctl("resume")
        r.nodes[0].wait_for_round(r.nodes[0].status()["round"] + 2)


def test_checkpoint_that_cannot_be_written_ends_the_wait_with_its_reason(ring):
    r = running(ring, 2)
    node = r.nodes[0]
    shutil.rmtree(node.folder / "state")
    (node.folder / "state").write_text("a file, where a folder should be")
    answer = node.ctl("checkpoint", "--wait", "--timeout", 20, status=1)
    change = answer["changes"][0]
    assert change["state"] == "in-force" and change["folder"] == ""
    assert "not written: " in change["failure"] and "Not a directory" in change["failure"]
    # The other member has written its own.
    assert r.nodes[1].ctl("change", change["id"])["failure"] == ""
    done = subprocess.run([BUILD / "editctl", "-s", node.folder / "run/control.sock", "checkpoint", "--wait", "--timeout", "20"],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "not written: " in done.stdout


def test_pause_while_paused_is_refused_and_does_not_outlive_the_resume(ring):
    r = running(ring)
    r.nodes[0].ctl("pause", "--wait", "--timeout", 10)
    for node in r.nodes:
        node.wait_for("phase", "paused")
        assert node.ctl("pause", status=4)["text"] == "training is paused already"
    rounds = r.nodes[0].status()["round"]
    r.nodes[0].ctl("resume")
    for node in r.nodes:
        node.wait_for_round(rounds + 2)


def test_log_of_every_member_names_what_was_changed(ring):
    r = running(ring)
    r.nodes[0].ctl("set", "sync.interval", 9, "--wait", "--timeout", 10)
    for node in r.nodes:
        node.wait_for_log("(sync.interval 5 -> 9)")


def test_checkpoint_is_written_by_all_members_of_one_round_and_old_ones_go(ring):
    r = running(ring, 2, node="[checkpoint]\nkeep = 2")
    written = []
    for _ in range(3):
        change = r.nodes[0].ctl("checkpoint", "--wait", "--timeout", 20)["changes"][0]
        written.append(f"round-{change['round']:06d}")
        assert change["folder"].endswith(written[-1])
    for node in r.nodes:
        folder = node.folder / "state/checkpoints"
        wait_until(lambda f=folder: sorted(p.name for p in f.iterdir()) == written[1:], 5,
                   lambda f=folder: list(f.iterdir()))
    models = [n.folder / "state/checkpoints" / written[2] / "model.safetensors" for n in r.nodes]
    assert models[0].read_bytes() == models[1].read_bytes()


def test_full_disk_degrades_and_recovers_while_training_goes_on(ring):
    r = running(ring, 1)
    node = r.nodes[0]
    # No file of the daemon may grow beyond this: the model does not fit.
    subprocess.run(["prlimit", f"--pid={node.daemon.pid}", "--fsize=1000:unlimited"], check=True)
    node.ctl("checkpoint")
    wait_until(lambda: "not written" in node.status()["degraded"], 10, node.log)
    node.wait_for_round(node.status()["round"] + 3)
    assert not any(p.name.startswith("round") for p in (node.folder / "state/checkpoints").iterdir())
    subprocess.run(["prlimit", f"--pid={node.daemon.pid}", "--fsize=unlimited:unlimited"], check=True)
    node.ctl("checkpoint", "--wait", "--timeout", 20)
    assert node.status()["degraded"] == ""


@pytest.mark.parametrize("command", ["status", "peers", "layers", "penalties", "get", "hash", "view"])
def test_read_commands_answer_with_and_without_a_run(ring, command):
    r = ring(1)
    r.start()
    answer = r.nodes[0].ctl(command, status=None)
    assert answer["version"] == 1
    r.start_workers("--steps", 20)
    r.wait_until_finished()
    assert r.nodes[0].ctl(command)["version"] == 1


def test_bad_config_is_one_line_with_file_line_and_key(ring):
    r = ring(1)
    node = r.nodes[0]
    node.config.write_text(node.config.read_text() + "[outer]\nlr = 11\n")
    done = subprocess.run([BUILD / "editd", "-c", node.config, "--check-config"], capture_output=True, text=True)
    line = len(node.config.read_text().splitlines())
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"{node.config}:{line}: outer.lr: 11 is out of range, expected ")
    assert len(done.stderr.splitlines()) == 1
    node.configure()
    done = subprocess.run([BUILD / "editd", "-c", node.config, "--check-config"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "config ok\n", "")

"""Rounds on real daemons: equal bits everywhere, and what a bad worker cannot spoil."""

import hashlib
import json

import pytest


@pytest.mark.parametrize("count", [1, 2, 4])
def test_twenty_rounds_leave_equal_bits_on_all_members(ring, count):
    r = ring(count)
    r.start()
    r.start_workers("--steps", 100, "--step-ms", 1)
    r.wait_until_finished()
    hashes = r.check_hashes()
    assert len(set(hashes)) == 3
    for node in r.nodes:
        status = node.status()
        assert status["round"] == 20 and status["step"] == 100 and status["tokens"] == 10000
        assert status["frames_sent_again"] == 0
        assert "done 100 20" in node.worker_text()
        node.wait_for_log("round 20: loss")
        assert node.log().count("<6>round ") == 20
    models = {hashlib.sha256((n.folder / "state/checkpoints/round-000020/model.safetensors").read_bytes()).hexdigest()
              for n in r.nodes}
    assert len(models) == 1


@pytest.mark.parametrize("prefetch", [0, 1, 64])
def test_any_prefetch_gives_the_same_bits(ring, prefetch):
    hashes = []
    for ahead in (prefetch, 2):
        r = ring(3)
        for node in r.nodes:
            node.configure(ring=f"prefetch = {ahead}")
        r.start()
        r.start_workers("--steps", 30, "--layers", 8)
        r.wait_until_finished()
        hashes.append(r.check_hashes())
    assert hashes[0] == hashes[1]


def test_layers_larger_than_window_pass_without_resending(ring):
    r = ring(2)
    for node in r.nodes:
        node.configure(ring="[wire]\nchunk = 4096\nwindow = 65536\n[outer]\nlr = 0.5")
    r.start()
    r.start_workers("--steps", 20, "--size", 300000, "--layers", 4)
    r.wait_until_finished(60)
    r.check_hashes()
    assert [n.status()["frames_sent_again"] for n in r.nodes] == [0, 0]


def test_theta_that_is_not_a_number_is_left_out_and_named(ring):
    r = ring(2)
    r.start()
    r.nodes[0].start_worker("--steps", 50)
    r.nodes[1].start_worker("--steps", 50, "--nan-theta", 24)
    r.wait_until_finished()
    r.check_hashes()
    for node in r.nodes:
        node.wait_for_log("layer 0: peer b left out (nonfinite")
        assert node.status()["round"] == 10


def test_loss_that_is_not_a_number_does_not_stop_the_run(ring):
    r = ring(2)
    r.start()
    r.nodes[0].start_worker("--steps", 50)
    r.nodes[1].start_worker("--steps", 50, "--nan-loss", 24)
    r.wait_until_finished()
    r.check_hashes()
    for node in r.nodes:
        node.wait_for_log("round 5: peer b: loss is not a number")
        assert node.status()["round"] == 10
        assert node.log().count("loss is not a number") == 1


def test_spike_is_an_outlier_and_shown_by_penalties(ring):
    r = ring(2)
    for node in r.nodes:
        node.configure(ring="[penalty]\nwarmup = 5")
    r.start()
    r.nodes[0].start_worker("--steps", 50)
    r.nodes[1].start_worker("--steps", 50, "--spike", 49)
    r.wait_until_finished()
    r.check_hashes()
    penalties = r.nodes[0].ctl("penalties")
    verdicts = {peer["name"]: [layer["verdict"] for layer in peer["layers"]] for peer in penalties["peers"]}
    weights = {peer["name"]: [layer["weight"] for layer in peer["layers"]] for peer in penalties["peers"]}
    assert verdicts == {"a": ["accepted"] * 3, "b": ["outlier"] * 3}
    assert weights == {"a": [1, 1, 1], "b": [0, 0, 0]}


def test_slow_worker_is_waited_for_and_shown_as_late(ring):
    r = ring(2)
    r.start()
    r.nodes[0].start_worker("--steps", 20)
    r.nodes[1].start_worker("--steps", 20, "--step-ms", 40)
    r.wait_until_finished()
    r.check_hashes()
    peers = {p["name"]: p for p in r.nodes[0].ctl("peers")["peers"]}
    assert peers["b"]["lateness_us"] > 50000 > peers["a"]["lateness_us"]


def test_checkpoint_at_the_end_is_whole(ring):
    r = ring(1)
    r.start()
    r.start_workers("--steps", 20)
    r.wait_until_finished()
    node = r.nodes[0]
    node.wait_for_log("checkpoint of round 4")
    folder = node.folder / "state/checkpoints/round-000004"
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "manifest.json", "model.safetensors", "state.safetensors"]
    assert json.loads((folder / "config.json").read_text()) == {"probe": True}
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["round"] == 4 and manifest["run"] == "test"
    for name in ("model.safetensors", "state.safetensors"):
        assert manifest["files"][name]["bytes"] == (folder / name).stat().st_size
    assert [layer["xxh3"] for layer in manifest["layers"]] == r.check_hashes()
    assert node.status()["checkpoint"] == str(folder)

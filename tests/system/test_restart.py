"""After a loss of power: the runtime directory is gone, the disk is not. A run goes on from the newest checkpoint that all members hold
intact, to the bit where there is one member; and what cannot be gone on from is told by name, never begun anew unasked."""

import json
import pathlib
import re
import shutil
import struct
import subprocess
import time

import pytest

from conftest import BUILD, SLOW, wait_until

QUICK = "heartbeat_ms = 100\nsilence_ms = 400\nretry_ms = 100"  # of [node]
TEXT = b"The lights go out in the middle of a sentence, and when they come back on it goes on with the very next word. "


def lose_power(nodes):
    for node in nodes:
        for process in (node.worker, node.daemon):
            process.kill()
            process.wait()
        for file in (node.folder / "run").iterdir():
            file.unlink()


def checkpoints(node):
    return sorted(path.name for path in (node.folder / "state/checkpoints").glob("round-*"))


def wait_for_checkpoint(node, number):
    """Of that round, or of a later one, when it may be pruned already."""
    wait_until(lambda: any(name >= f"round-{number:06}" for name in checkpoints(node)), 20, node.log)


def tensors(path):
    """Bytes of each tensor of a safetensors file."""
    data = path.read_bytes()
    size, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    return {name: data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]]
            for name, entry in header.items() if name != "__metadata__"}


def numbers(node, name):
    """All that a checkpoint holds of the model, and its state without what depends on time and starts."""
    folder = node.folder / "state/checkpoints" / name
    found = tensors(folder / "model.safetensors") | tensors(folder / "state.safetensors")
    state = json.loads(found.pop("state"))
    for key in ("wait_us", "sync_us", "worker_restarts", "since"):
        del state[key]
    return found, state


def losses(node):
    """What the worker said of each step: loss, rate, gradient."""
    return re.findall(r"step (\d+)/\d+: (loss \S+ rate \S+ gradient \S+)", node.worker_text())


def expect_equal_runs(straight, restarted, first_after):
    # One that is due while another is being written is left out.
    common = [name for name in checkpoints(straight) if name in checkpoints(restarted)]
    assert len(common) >= 3 and common[-1] == "round-000032"
    for name in common:
        assert numbers(straight, name) == numbers(restarted, name), name
    expected, found = dict(losses(straight)), losses(restarted)
    assert found and all(expected[step] == said for step, said in found)
    assert [step for step, _ in found].count(str(first_after)) == 2  # done, lost, and done again


# ---- One member: the same bits ----

def train(r, data, ring_settings, node=QUICK, method=None):
    r.nodes[0].configure(node=node, ring=ring_settings, interval=20, method=method)
    r.start()
    r.start_training(data, *STEPS)


STEPS = ("--steps", 640, "--lr", "0.01")
EVERY = "[checkpoint]\nrounds = 4\nkeep = 1000\n[penalty]\nwarmup = 3"


@pytest.mark.parametrize("more", ["", "[sync]\noverlap = none"])
def test_run_of_one_member_goes_on_to_the_bit_after_power_was_lost(ring, tmp_path, more):
    data = tmp_path / "text"
    data.write_bytes(TEXT * 300)
    straight, restarted = ring(1), ring(1)
    train(straight, data, EVERY + "\n" + more)
    straight.wait_until_finished()
    wait_for_checkpoint(straight.nodes[0], 32)

    node = restarted.nodes[0]
    train(restarted, data, EVERY + "\n" + more)
    wait_until(lambda: len(checkpoints(node)) >= 3, 20, node.log)
    lose_power([node])
    newest = checkpoints(node)[-1]
    # Not the newest: some steps are lost and must come out the same.
    shutil.rmtree(node.folder / "state/checkpoints" / newest)
    left = int(checkpoints(node)[-1][6:])
    step = numbers(node, checkpoints(node)[-1])[1]["step"]
    assert step == 20 * left
    restarted.start()
    restarted.start_training(data, *STEPS)
    restarted.wait_until_finished()
    wait_for_checkpoint(node, 32)
    node.wait_for_log(f"run restored after round {left} from ")
    expect_equal_runs(straight.nodes[0], node, step + 1)


def test_run_of_one_member_goes_on_to_the_bit_after_a_stop(ring, tmp_path):
    data = tmp_path / "text"
    data.write_bytes(TEXT * 300)
    straight, stopped = ring(1), ring(1)
    train(straight, data, EVERY)
    straight.wait_until_finished()
    wait_for_checkpoint(straight.nodes[0], 32)
    node = stopped.nodes[0]
    train(stopped, data, EVERY)
    wait_for_checkpoint(node, 8)
    node.worker.terminate()
    assert node.worker.wait(10) == 0
    wait_until(lambda: node.status()["phase"] == "training", 5, node.status)
    node.stop()
    node.start()
    stopped.start_training(data, *STEPS)
    stopped.wait_until_finished()
    wait_for_checkpoint(node, 32)
    names = checkpoints(straight.nodes[0])
    assert numbers(node, names[-1]) == numbers(straight.nodes[0], names[-1])
    found = losses(node)
    assert set(found) <= set(losses(straight.nodes[0]))
    # Each step once; the one at whose end the signal came is not said.
    assert len(found) == len(set(found)) >= 639


def test_saving_after_every_round_changes_no_bit_of_the_run(ring, tmp_path):
    data = tmp_path / "text"
    data.write_bytes(TEXT * 300)
    hashes = []
    for settings in (EVERY, "[penalty]\nwarmup = 3"):
        r = ring(2)
        for node in r.nodes:
            node.configure(node=QUICK, ring=settings, interval=4)
        r.start()
        r.start_training(data, "--steps", 40, "--lr", "0.01")
        r.wait_until_finished()
        hashes.append((r.check_hashes(), losses(r.nodes[0]), losses(r.nodes[1])))
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize("method", ["co2", "ddp", "a-edit"])
def test_run_of_any_method_goes_on_after_power_was_lost(ring, tmp_path, method):
    data = tmp_path / "text"
    data.write_bytes(TEXT * 300)
    r = ring(2)
    more = "[sync]\nperiod = 0.05" if method == "a-edit" else ""
    for node in r.nodes:
        node.configure(node=QUICK, ring="[checkpoint]\nrounds = 3\n" + more, interval=4, method=method)
    r.start()
    steps = ("--steps", 3000 if method == "a-edit" else 400, "--lr", "0.01")
    r.start_training(data, *steps)
    for node in r.nodes:
        wait_for_checkpoint(node, 3)
    lose_power(r.nodes)
    r.start()
    r.start_training(data, *steps)
    r.wait_until_finished(60)
    r.check_hashes()
    for node in r.nodes:
        assert node.log().count("run restored after round ") == 1
        assert node.status()["healthy"] is True


def test_run_that_had_ended_is_still_ended_after_power_was_lost(ring):
    r = ring(1)
    node = r.nodes[0]
    r.start()
    node.start_worker("--steps", 20)
    r.wait_until_finished()
    wait_for_checkpoint(node, 4)
    node.worker.wait(10)
    lose_power(r.nodes)
    node.start()
    node.start_worker("--steps", 20)
    assert node.worker.wait(10) == 0
    assert node.ctl("wait", "finished", "--timeout", 5 * SLOW)["round"] == 4


# ---- Several members: one checkpoint for all ----

def begin(ring, count, shards=1, settings="[checkpoint]\nrounds = 2\nkeep = 10", rounds=8, during=lambda: None):
    """A ring with probe workers that has lost power after its checkpoint of round `rounds`."""
    r = ring(count, shards)
    for node in r.nodes:
        node.configure(node=QUICK, ring=settings)
    r.start()
    r.start_workers("--steps", 300, "--step-ms", 5)
    for node in r.nodes:
        wait_for_checkpoint(node, rounds)
    lose_power(r.nodes)
    for node in r.nodes:  # all have the same
        for name in checkpoints(node):
            if int(name[6:]) > rounds:
                shutil.rmtree(node.folder / "state/checkpoints" / name)
    return r


def go_on(r, nodes=None):
    for node in nodes or r.nodes:
        node.start()
        node.start_worker("--steps", 300, "--step-ms", 5)


def damage(node, number, name):
    path = node.folder / "state/checkpoints" / f"round-{number:06}" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("count", [2, 3, 5])
def test_all_go_on_from_the_newest_checkpoint_that_anybody_holds_intact(ring, count):
    r = begin(ring, count)
    first, last = r.nodes[0], r.nodes[-1]
    bad = damage(first, 8, "state.safetensors")
    shutil.rmtree(last.folder / "state/checkpoints/round-000006")
    go_on(r)
    for node in r.nodes:
        node.wait_for_log(f"run restored after round {6 if node is first else 8} from ")
    assert first.log().count(f"checkpoint passed over: {bad}: damaged") == 1
    r.wait_until_finished()
    r.check_hashes()
    assert "fetched, as of round 8" in first.log()
    for node in r.nodes:
        assert node.status()["round"] == 60 and node.status()["healthy"] is True


@pytest.mark.parametrize("count, shards", [(4, 2), (2, 2)])
def test_members_of_a_mesh_go_on_from_the_newest_checkpoint_that_all_hold_intact(ring, count, shards):
    r = begin(ring, count, shards)
    first, last = r.nodes[0], r.nodes[-1]
    bad = damage(first, 8, "state.safetensors")
    cut = last.folder / "state/checkpoints/round-000006/piece-2-of-2.safetensors"
    cut.write_bytes(cut.read_bytes()[:-1])
    go_on(r)
    for node in r.nodes:
        node.wait_for_log("run restored after round 4 from ")
    assert first.log().count(f"checkpoint passed over: {bad}: damaged") == 1
    assert last.log().count(f"checkpoint passed over: {cut}: ") == 1
    r.wait_until_finished()
    r.check_hashes()
    for node in r.nodes:
        assert node.status()["round"] == 60 and node.status()["healthy"] is True


def test_manifest_that_is_damaged_anywhere_is_never_believed(ring):
    r = begin(ring, 1)
    node = r.nodes[0]
    path = node.folder / "state/checkpoints/round-000008/manifest.json"
    good = path.read_bytes()
    for at in range(0, len(good), max(1, len(good) // 12)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
        before = node.log().count("run restored") if node.starts else 0
        node.start()
        node.start_worker("--steps", 300, "--attach-only")
        wait_until(lambda: node.log().count("run restored") > before, 10, node.log)
        restored = int(re.findall(r"run restored after round (\d+)", node.log())[-1])
        # What is no part of any check (spaces, the member's name, the folder's view) may differ; then it is the same checkpoint.
        assert restored in (6, 8)
        lose_power([node])


def test_member_of_a_mesh_that_lost_its_disk_is_named_and_goes_on_with_a_copy(ring):
    r = begin(ring, 4, 2)
    a, _, c, _ = r.nodes
    shutil.rmtree(c.folder / "state")
    (c.folder / "state").mkdir()
    go_on(r)
    for node in (a, r.nodes[3]):  # its neighbours
        node.wait_for_log("no checkpoint that all members hold: c begins anew, without a checkpoint")
        assert "c begins anew" in node.status()["degraded"]
        assert "agrees on a checkpoint" in node.status()["text"]
    c.wait_for_log("copy a checkpoint to ")
    time.sleep(1)
    assert a.log().count("no checkpoint that all members hold") == 1
    lose_power([c])
    shutil.copytree(a.folder / "state/checkpoints/round-000006", c.folder / "state/checkpoints/round-000006")
    go_on(r, [c])
    for node in r.nodes:
        node.wait_for_log("run restored after round 6 from ")
    assert "was written by a: its inner state and detectors count here too" in c.log()
    r.wait_until_finished()
    r.check_hashes()
    assert a.status()["degraded"] == ""


def test_members_of_a_mesh_that_have_their_memory_name_the_one_that_lost_it(ring):
    r = ring(2, 2)
    for node in r.nodes:
        node.configure(node=QUICK, ring="[checkpoint]\nrounds = 4")
    r.start()
    r.start_workers("--steps", 10000, "--step-ms", 5)
    a, b = r.nodes
    wait_for_checkpoint(b, 4)
    a.wait_for_round(5)
    a.ctl("pause", "--wait", "--timeout", 10)
    lose_power([b])
    for name in checkpoints(b)[1:]:
        shutil.rmtree(b.folder / "state/checkpoints" / name)
    b.start()
    b.start_worker("--steps", 10000, "--step-ms", 5)
    a.wait_for_log("b has lost its memory and holds no checkpoint of round ")
    b.wait_for_log("no checkpoint that all members hold: a holds round ")
    assert a.log().count("b has lost its memory") == 1


def test_run_without_any_checkpoint_is_not_begun_anew_unasked(ring):
    r = ring(1)
    node = r.nodes[0]
    r.start()
    node.start_worker("--steps", 100000, "--step-ms", 5)
    node.wait_for_round(3)
    lose_power(r.nodes)
    node.start()
    node.start_worker("--steps", 20)
    wait_until(lambda: "is lost or damaged on all members that are here" in node.status()["degraded"], 10, node.status)
    # Without its vote it does not know of other members either, and refuses.
    lose_power(r.nodes)
    (node.folder / "state/vote-test").unlink()
    node.start()
    node.start_worker("--steps", 20)
    assert node.worker.wait(20) == 1
    mark = node.folder / "state/begun-test"
    assert f'run "test" was begun here, but no intact checkpoint is left: remove {mark} to begin anew' in node.worker_text()
    assert "was begun here, but no intact" in node.status()["degraded"]
    mark.unlink()
    node.start_worker("--steps", 20)
    r.wait_until_finished()
    assert node.status()["round"] == 4


# ---- When they are written ----

def test_checkpoints_by_time_are_of_the_same_rounds_on_all_members(ring):
    r = ring(3)
    for node in r.nodes:
        node.configure(node=QUICK, ring="[checkpoint]\nperiod = 1\nkeep = 100\nat_end = no")
    r.start()
    r.start_workers("--steps", 100000, "--step-ms", 5)
    for node in r.nodes:
        wait_until(lambda n=node: len(checkpoints(n)) >= 3, 20, node.log)
    r.nodes[0].ctl("pause", "--wait", "--timeout", 10)
    time.sleep(2.5)
    found = [checkpoints(node) for node in r.nodes]
    assert found[0] == found[1] == found[2] and len(found[0]) < 20
    assert checkpoints(r.nodes[0]) == found[0]  # none while it is paused


def test_full_disk_degrades_and_recovers_and_training_goes_on(ring):
    r = ring(1)
    node = r.nodes[0]
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", node.folder / "state"], capture_output=True).returncode:
        pytest.skip("no right to mount a small file system")
    try:
        node.configure(node=QUICK, ring="[checkpoint]\nrounds = 5\nkeep = 2\nat_end = no")
        r.start()
        node.start_worker("--steps", 100000, "--step-ms", 4)
        wait_for_checkpoint(node, 5)
        ballast = node.folder / "state/ballast"
        try:
            while True:
                with open(ballast, "ab", buffering=0) as file:
                    assert file.write(bytes(4096)) == 4096
        except (OSError, AssertionError):
            pass
        wait_until(lambda: "No space left on device" in node.status()["degraded"], 10, node.log)
        left = checkpoints(node)
        assert left
        node.wait_for_round(node.status()["round"] + 6)
        assert checkpoints(node) == left
        ballast.unlink()
        wait_until(lambda: node.status()["degraded"] == "", 10, node.status)
        wait_until(lambda: checkpoints(node)[-1] > left[-1], 10, node.log)
        lose_power([node])
        go_on(r)
        node.wait_for_log("run restored after round ")
        lose_power([node])
    finally:
        subprocess.run(["umount", "-l", node.folder / "state"], check=True)

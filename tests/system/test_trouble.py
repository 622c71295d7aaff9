"""What systems of this kind have tripped over: members that stand still, restart again and again, die at the worst moment;
clocks that jump; clients that do not read. Each is shown on real daemons, and where a run goes on it ends with the same bits."""

import mmap
import os
import re
import signal
import socket
import struct
import subprocess
import time

import pytest

from conftest import BUILD, SLOW, wait_until

QUICK = "heartbeat_ms = 100\nsilence_ms = 400\nretry_ms = 100"  # of [node]: deaths are noticed soon


def finished(ring, *options, count=2, node="", settings="", interval=5, during=lambda r: None):
    """Runs a ring to its end, with whatever `during` does to it meanwhile; returns it and the hashes that its members hold."""
    r = ring(count)
    for each in r.nodes:
        each.configure(node=node, ring=settings, interval=interval)
    r.start()
    r.start_workers(*options)
    during(r)
    r.wait_until_finished(60)
    return r, r.check_hashes()


# ---- Members ----

def test_daemon_that_starts_five_times_before_the_ring_is_complete_is_one_member(ring):
    r = ring(3)
    a, b, c = r.nodes
    for node in r.nodes:
        node.configure(node=QUICK)
    a.start()
    a.start_worker("--steps", 40)
    for number in range(1, 6):
        b.start()
        b.start_worker("--attach-only")
        wait_until(lambda n=number: a.log().count("peer b: hello accepted") == n, 10, a.log)
        b.worker.kill()
        b.worker.wait()
        b.kill()
    for node in (b, c):
        node.start()
        node.start_worker("--steps", 40)
    r.wait_until_finished()
    r.check_hashes()
    assert [(peer["name"], peer["state"]) for peer in a.ctl("peers")["peers"]] == [("a", "self"), ("b", "live"), ("c", "live")]


def test_member_that_stands_still_for_less_than_its_silence_changes_no_bit_of_the_run(ring):
    def stop_b(r):
        a, b, _ = r.nodes
        a.wait_for_round(2)
        b.daemon.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        # Its queue is full by now; nothing of that holds up this daemon.
        while time.monotonic() - stopped < 3:
            begin = time.monotonic()
            assert {p["name"]: p["state"] for p in a.ctl("peers")["peers"]}["b"] == "live"
            assert time.monotonic() - begin < 2 * SLOW
        b.daemon.send_signal(signal.SIGCONT)

    options = ("--steps", 60, "--step-ms", 20, "--size", 300000)
    wire = "[wire]\nchunk = 65536\nwindow = 131072"
    r, hashes = finished(ring, *options, count=3, node="silence_ms = 60000", settings=wire, during=stop_b)
    assert [node.status()["round"] for node in r.nodes] == [12, 12, 12]
    assert hashes == finished(ring, *options, count=3, settings=wire)[1]


def test_second_death_after_the_first_does_not_keep_the_others_from_stopping(ring):
    r = ring(3)
    r.start()
    r.start_workers("--steps", 100000, "--step-ms", 5)
    r.nodes[0].wait_for_round(2)
    r.nodes[2].kill()
    r.nodes[0].wait_for_log("peer c: down")
    # Only of a member that was heard in a view is it told that it is down.
    r.nodes[0].wait_for_log("all 2 members have said hello, view 2 begins")
    r.nodes[1].worker.kill()
    r.nodes[1].wait_for_log("is gone")
    r.nodes[1].daemon.send_signal(signal.SIGSTOP)
    r.nodes[0].wait_for_log("peer b: down")
    r.nodes[0].stop()
    r.nodes[1].daemon.send_signal(signal.SIGCONT)
    r.nodes[1].stop()


@pytest.mark.parametrize("here, there, fact", [
    (["--size", 1000], ["--size", 1001], "layer 0, there block 0 1001, here block 0 1000"),
    (["--layers", 3], ["--layers", 4], "layer count, there 4, here 3"),
])
def test_peers_with_other_layers_refuse_each_other_by_name(ring, here, there, fact):
    r = ring(2)
    r.start()
    r.nodes[0].start_worker(*here)
    r.nodes[1].start_worker(*there)
    r.nodes[0].wait_for_log(f"a fact differs: {fact}")
    assert r.nodes[0].status()["round"] == 0


def test_both_hashes_are_told_when_weights_differ(ring):
    r = ring(2)
    r.start()
    r.nodes[0].start_worker("--begin", 0.5)
    r.nodes[1].start_worker("--begin", 0.25)
    told = []
    for node in r.nodes:
        node.wait_for_log("a fact differs: anchor, there ")
        told.append(re.search(r"anchor, there ([0-9a-f]{16}), here ([0-9a-f]{16})", node.log()).groups())
        assert node.status()["round"] == 0 and node.status()["phase"] == "gathering"
    assert told[0] == told[1][::-1] and told[0][0] != told[0][1]


# ---- The same bits, whatever happened ----

def test_checkpoints_and_looking_change_nothing_of_the_run(ring):
    def look(r):
        r.nodes[0].wait_for_round(1)
        for command in ("checkpoint", "checkpoint"):
            r.nodes[0].ctl(command, "--wait", "--timeout", 20)
            for node in r.nodes:
                for word in ("status", "peers", "layers", "penalties", "get", "hash"):
                    node.ctl(word)

    options = ("--steps", 200, "--step-ms", 10 * SLOW)
    settings = "[penalty]\nwarmup = 3"
    assert finished(ring, *options, settings=settings, during=look)[1] == finished(ring, *options, settings=settings)[1]


def detectors(node):
    """Mean and deviation of every layer and member, as a node tells them."""
    return [[(layer["mean"], layer["sd"], layer["verdict"]) for layer in peer["layers"]]
            for peer in node.ctl("penalties")["peers"]]


def test_restart_in_the_middle_of_an_interval_changes_no_bit(ring):
    def restart(r):
        for node in r.nodes:
            node.wait_for_round(5)
            node.wait_for("phase", "training")
        for node in r.nodes:
            node.kill()
        for node in r.nodes:
            node.start()
        r.nodes[0].wait_for_log("ring: all 2 members")

    options = ("--steps", 80, "--step-ms", 50 * SLOW, "--spike", 75)
    more = {"interval": 10, "node": QUICK, "settings": "[penalty]\nwarmup = 3"}
    restarted, hashes = finished(ring, *options, **more, during=restart)
    straight, expected = finished(ring, *options, **more)
    assert restarted.nodes[0].starts == 2
    assert hashes == expected
    assert detectors(restarted.nodes[0]) == detectors(straight.nodes[0])
    assert "outlier" in {layer["verdict"] for layer in straight.nodes[0].ctl("penalties")["peers"][0]["layers"]}


def test_worker_that_dies_with_its_offer_made_delays_nobody(ring):
    def die(r):
        b = r.nodes[1]
        b.worker.wait(20 * SLOW)
        b.wait_for_log("is gone")
        b.wait_for_round(5)  # its offer stands: the round needs no worker
        b.start_worker("--steps", 60)

    def start(steps, *deadly):
        r = ring(2)
        r.start()
        r.nodes[0].start_worker("--steps", steps, "--step-ms", 20)
        r.nodes[1].start_worker("--steps", steps, *deadly)
        if deadly:
            die(r)
        r.wait_until_finished()
        return r, r.check_hashes()

    r, hashes = start(60, "--die-offered", 24)
    assert r.nodes[1].status()["worker_restarts"] == 1 and r.nodes[1].status()["step"] == 60
    assert "ready 25" in r.nodes[1].worker_text()
    assert hashes == start(60)[1]


def test_offer_that_a_worker_did_not_live_to_finish_is_void(ring):
    r = ring(2)
    r.start()
    r.nodes[0].start_worker("--steps", 60)
    b = r.nodes[1]
    b.start_worker("--steps", 60, "--die", 22)
    b.worker.wait(20 * SLOW)
    b.wait_for_log("is gone")
    # As if it had died while it handed its layers over: it has said for which step, and given the first of three.
    with open(b.folder / "run/segment", "r+b") as file, mmap.mmap(file.fileno(), 8192) as words:
        assert struct.unpack_from("<Q", words, 192)[0] == 22
        struct.pack_into("<Q", words, 216, 22)
        struct.pack_into("<I", words, 4096, 2)
    b.start_worker("--steps", 60)
    r.wait_until_finished()
    r.check_hashes()
    # It offered at its next step, two before the others and ever since; the run ends for all with the first that is done.
    assert b.status()["round"] == 12 and b.status()["step"] in (58, 59, 60) and b.status()["healthy"] is True


# ---- Files of an earlier run ----

def spoil_segment(node):
    (node.folder / "run/segment").unlink()


def spoil_state(node):
    (node.folder / "run/state").unlink()


def damage_state(node):
    with open(node.folder / "run/state", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([byte ^ 1]))


def end_and_spoil(ring, spoil):
    """A run of one that has ended, started again after `spoil`."""
    r = ring(1)
    node = r.nodes[0]
    r.start()
    node.start_worker("--steps", 20, "--size", 1021, "--layers", 4)  # the last layer fills its block of 64 bytes
    r.wait_until_finished()
    node.worker.wait(10)
    node.stop()
    spoil(node)
    node.start()
    node.start_worker("--steps", 40, "--size", 1021, "--layers", 4)
    return node


@pytest.mark.parametrize("spoil, text", [
    (spoil_segment, "/run/state is there without "),
    (spoil_state, "/run/segment is there without "),
])
def test_what_an_earlier_run_left_is_never_begun_anew_unasked(ring, spoil, text):
    node = end_and_spoil(ring, spoil)
    assert node.worker.wait(20 * SLOW) == 1
    assert text in node.worker_text().splitlines()[-1]
    assert text in node.status()["degraded"]


def test_layer_that_is_damaged_and_held_by_nobody_is_named_and_what_to_do(ring):
    node = end_and_spoil(ring, damage_state)
    wait_until(lambda: 'layer "block 3" is lost or damaged on all members that are here' in node.status()["degraded"], 10, node.status)
    assert "to go back to a checkpoint" in node.status()["degraded"]


def test_members_that_were_decided_on_hold_and_not_those_of_a_config_that_was_changed(ring):
    node = end_and_spoil(ring, lambda n: n.configure(members=["z = tcp://127.0.0.1:1", f"a = tcp://127.0.0.1:{n.port}"]))
    node.wait_for("phase", "finished")
    assert "the members are those of view 1 (a), not those of the config's [members]" in node.log()
    assert node.status()["member_count"] == 1


@pytest.mark.parametrize("again", [[0, 1], [1]])
def test_run_that_has_ended_is_so_after_a_restart_too(ring, again):
    r, hashes = finished(ring, "--steps", 20)
    for number in again:
        node = r.nodes[number]
        node.worker.wait(10)
        node.stop()
    for number in again:
        node = r.nodes[number]
        node.start()
        node.start_worker("--steps", 20)
        assert node.worker.wait(10) == 0
    for number in again:
        node = r.nodes[number]
        assert node.ctl("wait", "finished", "--timeout", 5 * SLOW)["round"] == 4
        assert "the run is finished" in node.ctl("set", "outer.lr", 0.5, status=4)["text"]
        assert node.ctl("wait", "round", 5, "--timeout", 5 * SLOW, status=4)["exit_status"] == 4
    if len(again) == 2:
        assert r.nodes[0].ctl("wait", "healthy", "--timeout", 5 * SLOW)["phase"] == "finished"
        assert len(hashes) == 3


def test_run_of_another_name_begins_anew_beside_checkpoints_and_says_so(ring):
    r = ring(1)
    node = r.nodes[0]
    for name in ("test", "test", "other"):
        if name == "other":
            for file in (node.folder / "run").iterdir():
                file.unlink()
            node.config.write_text(node.config.read_text().replace("run = test", "run = other"))
        node.start()
        node.start_worker("--steps", 20)
        r.wait_until_finished()
        node.wait_for_log("checkpoint of round 4")
        node.worker.wait(10)
        node.stop()
        assert node.log().count("begins anew") == (name == "other")
    assert f"{node.folder}/state/checkpoints/round-000004 is of run test, not other" in node.log()
    assert f"not from the checkpoint {node.folder}/state/checkpoints/round-000004; to go on from it" in node.log()


# ---- Clocks ----

CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

static int calls;

/* An hour ahead, and from the thousandth call on an hour behind. */
static long shift(void)
{
	return __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) < 1000 ? 3600 : -3600;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	static int (*real)(clockid_t, struct timespec *);
	if (!real)
		real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	int result = real(clock, now);
	if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
		now->tv_sec += shift();
	return result;
}

int gettimeofday(struct timeval *now, void *zone)
{
	struct timespec time;
	int result = clock_gettime(CLOCK_REALTIME, &time);
	(void)zone;
	now->tv_sec = time.tv_sec;
	now->tv_usec = time.tv_nsec / 1000;
	return result;
}

time_t time(time_t *ret_now)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (ret_now)
		*ret_now = now.tv_sec;
	return now.tv_sec;
}
"""


@pytest.mark.skipif("san-" in str(BUILD), reason="a sanitizer must be loaded first")
def test_wall_clock_an_hour_off_that_steps_in_mid_run_is_no_concern_of_anybody(ring, monkeypatch):
    options = ("--steps", 100, "--step-ms", 5)
    r = ring(3)
    source = r.folder / "clock.c"
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", r.folder / "clock.so", source, "-ldl"], check=True)
    for number, node in enumerate(r.nodes):
        node.configure(node=QUICK)
        with monkeypatch.context() as patch:
            if number == 1:
                patch.setenv("LD_PRELOAD", str(r.folder / "clock.so"))
            node.start()
    r.start_workers(*options)
    r.wait_until_finished()
    assert r.check_hashes() == finished(ring, *options, count=3)[1]
    for node in r.nodes:
        assert not re.search("<[0-4]>.*(peer|ring|clock)", node.log()), node.log()  # nothing worth a warning


# ---- Names and addresses ----

def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("host, listen", [
    ("localhost", "127.0.0.1"),
    pytest.param("[::1]", "[::1]", marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this host")),
])
def test_members_are_reached_by_name_and_by_ipv6(ring, host, listen):
    r = ring(2)
    for node in r.nodes:
        node.configure(node=f"listen = tcp://{listen}:{node.port}",
                       members=[f"{n.name} = tcp://{host}:{n.port}" for n in r.nodes])
    r.start()
    for node in r.nodes:
        node.start_worker("--attach-only")
    begin = time.monotonic()
    r.nodes[0].wait_for_log("ring: all 2 members")
    assert time.monotonic() - begin < 2 * SLOW


def test_control_socket_is_where_the_config_says(ring):
    r = ring(1)
    node = r.nodes[0]
    other = node.folder / "elsewhere.sock"
    node.configure(node=f"control = ipc://{other}")
    node.start()
    done = subprocess.run([BUILD / "editctl", "-s", other, "status"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not (node.folder / "run/control.sock").exists()
    assert other.stat().st_mode & 0o777 == 0o660


# ---- Clients and costs ----

def test_client_that_takes_no_replies_costs_the_others_nothing(ring):
    r = ring(1)
    node = r.nodes[0]
    r.start()
    node.start_worker("--steps", 1000000, "--step-ms", 5, "--layers", 64, "--size", 10)
    node.wait_for_round(2)
    before = node.status()["memory_bytes"]
    command = [BUILD / "tests/probe_frames", f"ipc://{node.folder}/run/control.sock", "deaf", "3000"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as deaf:
        assert deaf.stdout.readline() == "sent\n"
        for _ in range(5):
            begin = time.monotonic()
            after = node.status()
            assert time.monotonic() - begin < 2 * SLOW
            node.wait_for_round(after["round"] + 1)
        deaf.stdin.close()
    if SLOW == 1:  # sanitizers keep freed memory
        assert after["memory_bytes"] < before + (16 << 20)


def test_round_is_measured_and_told(ring):
    r = ring(2)
    r.start()
    r.nodes[0].start_worker("--steps", 30)
    r.nodes[1].start_worker("--steps", 30, "--step-ms", 40)
    r.wait_until_finished()
    r.nodes[0].wait_for_log("<6>round 6: loss")
    quick, slow = (node.status() for node in r.nodes)
    # Both members send all numbers once: one shard's sum, the other shard's mean.
    assert quick["round_bytes"] == slow["round_bytes"] == 4 * (1000 + 1001 + 1002)
    assert quick["sync_us"] > 150000 > slow["sync_us"] > 0
    assert 150000 < quick["exposed_us"] <= quick["sync_us"] + 50000 * SLOW
    assert slow["exposed_us"] < 100000 * SLOW
    # The first round is another matter: it may have waited for the ring.
    assert quick["cumulative_sync_us"] > 5 * 150000 and quick["cumulative_exposed_us"] > 5 * 150000
    lines = re.findall(r"round (\d+): .* (\d+) steps, .* sync ([\d.]+) ms, exposed ([\d.]+) ms, 12012 bytes sent, 0 left out, "
                       r"last b by ([\d.]+) ms", r.nodes[0].log())
    assert [(int(number), int(steps)) for number, steps, *_ in lines if number != "1"] == [(n, 10) for n in (2, 3, 4, 5, 6)]
    assert all(float(time_ms) > 150 for number, _, *times in lines if number != "1" for time_ms in times)
    for answer in (r.nodes[0].ctl("peers"), r.nodes[0].ctl("penalties")):
        late = {peer["name"]: (peer["lateness_us"], peer["lateness_mean_us"]) for peer in answer["peers"]}
        assert late["b"][0] > 150000 and late["b"][1] > 40000 and max(late["a"]) < 50000 * SLOW

"""Deaths and restarts: of workers, of daemons, of neighbours."""

import os
import signal
import subprocess
import time

import pytest

from conftest import BUILD, SLOW, wait_until


def start_again(node, *options):
    """Waits until the worker is dead, then starts another."""
    node.worker.wait(20)
    node.wait_for_log("is gone")
    node.start_worker(*options)


def test_killed_worker_is_told_and_its_successor_goes_on(ring):
    r = ring(2)
    r.start()
    r.nodes[0].start_worker("--steps", 60)
    r.nodes[1].start_worker("--steps", 60, "--die", 22)
    dead = r.nodes[1].worker.pid
    r.nodes[1].worker.wait(20)
    r.nodes[1].wait_for_log(f"worker (pid {dead}) is gone")
    assert r.nodes[1].status()["worker_pid"] == 0
    assert r.nodes[1].status()["healthy"] is False
    start_again(r.nodes[1], "--steps", 60)
    r.wait_until_finished()
    r.check_hashes()
    status = r.nodes[1].status()
    assert status["step"] == 60 and status["round"] == 12 and status["worker_restarts"] == 1
    assert "ready 22" in r.nodes[1].worker_text()


def test_torn_layer_begins_again_from_the_anchor(ring):
    r = ring(2)
    r.start()
    r.nodes[0].start_worker("--steps", 60)
    r.nodes[1].start_worker("--steps", 60, "--tear", 22)
    start_again(r.nodes[1], "--steps", 60)
    r.wait_until_finished()
    r.check_hashes()
    assert "layer 0: torn when its worker died" in r.nodes[1].log()


def test_second_worker_is_refused_and_the_first_unaffected(ring):
    r = ring(1)
    node = r.nodes[0]
    r.start()
    node.start_worker("--steps", 200, "--step-ms", 5)
    node.wait_for_round(1)
    first = node.worker
    node.start_worker("--steps", 200)
    second, node.worker = node.worker, first
    assert second.wait(20) == 1
    assert f"another worker (pid {first.pid}) is attached" in node.worker_text()
    node.wait_for("phase", "finished")


def test_worker_of_another_model_is_refused_with_the_difference(ring):
    r = ring(1)
    node = r.nodes[0]
    r.start()
    node.start_worker("--steps", 20, "--fact", "hidden_size=128")
    node.wait_for("phase", "finished")
    node.worker.wait(20)
    node.start_worker("--steps", 20, "--fact", "hidden_size=64")
    assert node.worker.wait(20) == 1
    assert "hidden_size: 64, expected 128" in node.worker_text()
    assert "hidden_size: 64, expected 128" in node.status()["degraded"]
    # Also by a daemon that finds the run of an earlier one.
    node.stop()
    node.start()
    node.start_worker("--steps", 20, "--fact", "hidden_size=64")
    assert node.worker.wait(20) == 1
    assert node.worker_text().count("hidden_size: 64, expected 128") == 2


def test_peers_with_different_facts_refuse_each_other_by_name(ring):
    r = ring(2)
    r.start()
    r.nodes[0].start_worker("--fact", "hidden_size=128", "--fact", "vocab_size=256")
    r.nodes[1].start_worker("--fact", "hidden_size=64", "--fact", "vocab_size=300")
    for node, here, there in ((r.nodes[0], 128, 64), (r.nodes[1], 64, 128)):
        node.wait_for_log(f"hidden_size, there {there}, here {here}")
        assert "vocab_size" not in node.log()
        assert node.status()["phase"] == "gathering" and node.status()["healthy"] is False
    peers = {p["name"]: p for p in r.nodes[0].ctl("peers")["peers"]}
    assert peers["b"]["state"] == "refused" and "hidden_size" in peers["b"]["refusal"]


def test_peers_with_different_weights_refuse_each_other(ring):
    r = ring(2)
    r.start()
    r.nodes[0].start_worker("--begin", 0.5)
    r.nodes[1].start_worker("--begin", 0.25)
    for node in r.nodes:
        node.wait_for_log("a fact differs: anchor, there ")


def test_peers_with_different_settings_refuse_each_other(ring):
    r = ring(2)
    r.nodes[1].configure(interval=6)
    r.start()
    r.start_workers()
    r.nodes[0].wait_for_log("a fact differs: sync.interval, there 6, here 5")


def test_initial_theta_that_is_not_a_number_is_refused(ring):
    r = ring(1)
    r.start()
    r.nodes[0].start_worker("--begin", "nan")
    assert r.nodes[0].worker.wait(20) == 1
    assert 'initial theta of layer "block 0" is not finite' in r.nodes[0].worker_text()


def test_dead_daemon_without_which_there_is_no_majority_is_named_by_the_others_which_exit_cleanly(ring):
    r = ring(4)
    r.start()
    r.start_workers("--steps", 100000, "--step-ms", 1)
    r.nodes[0].wait_for_round(3)
    dead, left = (r.nodes[0], r.nodes[2]), (r.nodes[1], r.nodes[3])  # of two halves the one with a goes on
    for node in dead:
        node.kill()
    begin = time.monotonic()
    for node in left:
        wait_until(lambda n=node: {p["name"]: p for p in n.ctl("peers")["peers"]}["c"]["state"] == "down", 5,
                   lambda n=node: (n.ctl("peers"), n.log()))
        wait_until(lambda n=node: n.status()["waiting_for"] in ("a", "c") and n.status()["stalled_us"] > 0, 5,
                   lambda n=node: (n.status(), n.log()))
        assert node.status()["healthy"] is False
    assert time.monotonic() - begin < 6 * SLOW
    for node in left:
        node.stop()


def test_sigterm_with_a_dead_peer_and_a_full_queue_exits_at_once(ring):
    r = ring(2)
    for node in r.nodes:
        node.configure(ring="[wire]\nchunk = 4194304\nwindow = 1073741824")
    r.start()
    r.start_workers("--steps", 100000, "--size", 4000000, "--layers", 2)
    r.nodes[0].wait_for_round(1, 60)
    r.nodes[1].daemon.send_signal(signal.SIGSTOP)
    time.sleep(1)
    r.nodes[0].stop()
    r.nodes[1].daemon.send_signal(signal.SIGCONT)


def test_sigint_stops_and_sighup_does_not(ring):
    r = ring(1)
    node = r.nodes[0]
    r.start()
    node.daemon.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    assert node.status()["phase"] == "no-worker"
    node.daemon.send_signal(signal.SIGINT)
    assert node.daemon.wait(2 * SLOW) == 0


def test_restarted_daemon_finds_its_state_and_the_worker_goes_on(ring):
    r = ring(1)
    node = r.nodes[0]
    r.start()
    node.start_worker("--steps", 400, "--step-ms", 10)
    node.wait_for_round(3)
    node.stop()
    node.start()
    wait_until(lambda: node.status()["worker_pid"] == node.worker.pid, 10, node.log)
    assert node.status()["round"] >= 3
    node.wait_for("phase", "finished", 30)
    assert node.status()["step"] == 400 and node.status()["round"] == 80
    assert node.worker.wait(10) == 0
    assert node.worker_text().count("ready") == 1


def test_ring_that_was_stopped_between_rounds_goes_on_where_it_was(ring):
    r = ring(2)
    r.start()
    r.start_workers("--steps", 200, "--step-ms", 3)
    r.nodes[0].wait_for_round(2)
    # Paused, so that no member is in the middle of a round.
    r.nodes[0].ctl("pause")
    for node in r.nodes:
        node.wait_for("phase", "paused")
    before = r.check_hashes()
    for node in r.nodes:
        node.kill()
    for node in r.nodes:
        node.start()
    r.wait_until_finished()
    r.check_hashes()
    assert [n.status()["round"] for n in r.nodes] == [40, 40]
    assert before != r.check_hashes()


def test_stale_sockets_of_a_killed_daemon_do_not_block_the_next(ring):
    r = ring(1)
    node = r.nodes[0]
    r.start()
    node.kill()
    assert (node.folder / "run/worker.sock").is_socket() and (node.folder / "run/control.sock").is_socket()
    node.start()
    wait_until(lambda: node.ctl("status", status=None).get("phase") == "no-worker", 5, node.log)
    assert (node.folder / "run/control.sock").stat().st_mode & 0o777 == 0o660


@pytest.mark.parametrize("closed", ["<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_lines_of_programs_started_without_standard_streams_go_into_no_file_of_theirs(ring, closed):
    r = ring(1)
    node = r.nodes[0]
    node.daemon = subprocess.Popen(["sh", "-c", f"exec {BUILD}/editd -c {node.config} {closed}"])
    wait_until((node.folder / "run/control.sock").is_socket, 5, "a control socket")
    node.worker = subprocess.Popen(["sh", "-c", f"exec {BUILD}/tests/probe_worker --steps 40 {node.folder}/run/worker.sock"])
    node.wait_for("phase", "finished")
    assert node.worker.wait(10) == 0
    assert (node.folder / "run/lock").read_text() == f"{node.daemon.pid}\n"
    status = subprocess.run(["sh", "-c", f"{BUILD}/editctl -s {node.folder}/run/control.sock status {closed}"], check=False)
    assert status.returncode == (1 if ">&- 2" in closed else 0)  # an answer that cannot be written is a failure


def test_second_daemon_of_a_runtime_directory_names_the_first(ring):
    r = ring(1)
    node = r.nodes[0]
    r.start()
    second = subprocess.run([BUILD / "editd", "-c", node.config], capture_output=True, text=True, timeout=10)
    assert second.returncode == 1
    assert f"in use by another editd (pid {node.daemon.pid})" in second.stderr
    assert len(second.stderr.splitlines()) == 1
    assert node.status()["phase"] == "no-worker"


def test_second_daemon_of_a_state_directory_names_the_first(ring):
    r = ring(2)
    first, other = r.nodes
    other.config.write_text(other.config.read_text().replace(f"{other.folder}/state", f"{first.folder}/state"))
    first.start()
    second = subprocess.run([BUILD / "editd", "-c", other.config], capture_output=True, text=True, timeout=10)
    assert second.returncode == 1
    assert f"node.state_dir: {first.folder}/state is in use by another editd (pid {first.daemon.pid})" in second.stderr
    assert len(second.stderr.splitlines()) == 1


def test_port_in_use_is_one_line_with_the_address(ring):
    r = ring(2)
    r.nodes[1].configure(members=[f"b = tcp://127.0.0.1:{r.nodes[0].port}"])
    r.nodes[0].start()
    second = subprocess.run([BUILD / "editd", "-c", r.nodes[1].config], capture_output=True, text=True, timeout=10)
    assert second.returncode == 1
    assert second.stderr == f"<3>cannot listen on tcp://127.0.0.1:{r.nodes[0].port}: Address already in use\n"


def test_address_of_another_host_is_one_line_that_doubts_the_name(ring):
    node = ring(2).nodes[0]
    node.configure(node="plain = anywhere", members=["a = tcp://192.0.2.1:7700", "b = tcp://192.0.2.2:7700"])
    done = subprocess.run([BUILD / "editd", "-c", node.config], capture_output=True, text=True, timeout=10)
    assert done.returncode == 1
    assert done.stderr == ("<3>cannot listen on tcp://192.0.2.1:7700: not an address of this host; check node.name, or set "
                           "node.listen to one in numbers\n")


def test_lines_on_a_terminal_have_no_priority(ring):
    terminal, other_end = os.openpty()
    done = subprocess.run([BUILD / "editd", "-c", "/nowhere/editd.conf"], stderr=other_end, timeout=10)
    assert done.returncode == 2
    assert os.read(terminal, 1000).startswith(b"/nowhere/editd.conf")
    os.close(terminal)
    os.close(other_end)

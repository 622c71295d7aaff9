"""Who may look and who may change: editctl from another host, by key, and on this one, by group."""

import os
import shutil
import signal
import subprocess

import pytest

from conftest import BUILD, SLOW, free_ports
from keys import Remote, refused


@pytest.mark.parametrize("ring_keys", [True, False], ids=["encrypted-ring", "plain-ring"])
def test_looking_and_changing_from_another_host_are_rights_apart(ring, ring_keys):
    r = ring(1)
    remote = Remote(r, ring_keys)
    reader, silent, boss = remote.client("reader", "read"), remote.client("silent", ""), remote.client("boss", "change")
    r.start()
    r.start_workers("--steps", 1000000, "--step-ms", 2)
    remote.node.wait_for_round(2)
    for folder in (reader, silent):
        status, answer, _ = remote.ctl(folder, "status")
        assert status == 0 and answer["name"] == "a" and answer["encrypted"] == ring_keys
        assert remote.ctl(folder, "get", "sync.interval")[0] == 0
        assert remote.ctl(folder, "view")[1]["name"] == "a"
        for words in (("set", "sync.interval", 7), ("set", "sync.interval", 7, "--dry-run"), ("pause",), ("checkpoint",), ("leave",),
                      ("force", "a", "--force")):
            status, _, line = remote.ctl(folder, *words)
            assert status == 4 and len(line.splitlines()) == 1 and "no right to change" in line
            assert f"keys/clients/{folder.name}.pub does not say rights = change" in line
    assert remote.node.status()["requests_denied"] == 12
    assert float(remote.ctl(boss, "get", "sync.interval")[1]["settings"][0]["value"]) == 5
    assert remote.ctl(boss, "set", "sync.interval", 7, "--wait", "--timeout", 20)[0] == 0
    assert float(remote.node.ctl("get", "sync.interval")["settings"][0]["value"]) == 7
    remote.node.ctl("set", "sync.interval", 5, "--wait", "--timeout", 20)  # as ever, for those with the unix socket


def test_keys_from_another_host_that_are_wrong_are_refused_with_exit_4(ring):
    r = ring(2)
    remote = Remote(r)
    stranger, known = remote.client("stranger"), remote.client("known", "read")
    r.start()
    status, answer, line = remote.ctl(stranger, "status")
    assert status == answer["exit_status"] == 4 and "does not know the key of" in line and len(line.splitlines()) == 1
    assert remote.ctl(r.nodes[1].folder / "keys", "status")[0] == 4  # a member is no tool
    status, _, line = remote.ctl(known, "status", server=r.nodes[1].folder / "keys/b.pub")
    assert status == 4 and "its key is not the one in" in line
    status, _, line = remote.ctl(known, "status", port=r.nodes[0].port)
    assert status == 4  # and a tool no member
    assert r.nodes[0].status()["keys_refused"] == 3
    status, _, line = remote.ctl(known, "status", port=free_ports(1)[0])
    assert status == 3 and "nobody listens there" in line
    (known / "secret").chmod(0o644)
    status, _, line = remote.ctl(known, "status")
    assert status == 4 and "lets others at the secret key" in line


def test_client_is_let_in_and_kept_out_without_a_restart(ring):
    r = ring(1)
    remote = Remote(r)
    later = remote.client("later")
    r.start()
    r.start_workers("--steps", 1000000, "--step-ms", 2)
    node = remote.node
    node.wait_for_round(1)
    assert remote.ctl(later, "status")[0] == 4
    path = node.folder / "keys/clients/later.pub"
    shutil.copy(later / "later.pub", path)
    node.daemon.send_signal(signal.SIGHUP)
    node.wait_for_log("keys read again (SIGHUP): 1 of members, 1 of clients")
    assert remote.ctl(later, "status")[0] == 0
    watcher = subprocess.Popen([BUILD / "editctl", "--host", f"tcp://127.0.0.1:{remote.port}", "--key", later / "secret", "--server",
                                node.folder / "keys/a.pub", "status", "--watch=0.1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert watcher.stdout.readline()
        path.unlink()
        node.daemon.send_signal(signal.SIGHUP)
        _, text = watcher.communicate(timeout=20 * SLOW)  # over the connection that it has
    finally:
        watcher.kill()
        watcher.wait()
    assert watcher.returncode == 4 and b"this key is no longer known here" in text
    assert remote.ctl(later, "status")[0] == 4
    node.wait_for_round(node.status()["round"] + 3)


def test_group_that_may_look_cannot_change(ring):
    r = ring(1)
    node = r.nodes[0]
    node.configure(node="[control]\nread_group = nogroup")
    if os.geteuid() != 0:
        pytest.skip("only root can give a socket to a group that it is not in")
    r.start()
    r.start_workers("--steps", 1000000, "--step-ms", 2)
    node.wait_for_round(1)
    path = node.folder / "run/control-read.sock"
    assert (path.stat().st_mode & 0o777, path.stat().st_gid) == (0o660, 65534)
    assert (node.folder / "run/control.sock").stat().st_gid == os.getegid()

    def ctl(*words):
        return subprocess.run([BUILD / "editctl", "-s", path, *words], capture_output=True, text=True)

    assert ctl("status").returncode == ctl("get").returncode == ctl("hash").returncode == 0
    done = ctl("pause")
    assert done.returncode == 4 and len(done.stderr.splitlines()) == 1
    assert f"{path} is for looking, {node.folder}/run/control.sock is open to those who may" in done.stderr
    assert node.status()["phase"] in ("training", "syncing")
    node.stop()
    assert not path.exists()


def test_group_that_is_none_is_refused_by_check_config(ring):
    node = ring(1).nodes[0]
    node.configure(node="[control]\nread_group = no-such-group")
    refused(node, "control.read_group: \"no-such-group\" is no group of this host")

"""Who may come in: rings of real daemons with keys, wrong keys beside silent peers, and floods of handshakes."""

import json
import os
import shutil
import signal
import socket
import struct
import subprocess

import pytest

from conftest import BUILD, SLOW, wait_until
from keys import Remote, check_config, exchange, give_keys, keygen, peer, refused
from test_floods import Flood, bound, descriptors


def test_ring_trains_with_keys_and_says_so(ring):
    r = ring(3)
    give_keys(r)
    r.start()
    r.start_workers("--steps", 100, "--step-ms", 1)
    r.wait_until_finished()
    r.check_hashes()
    for node in r.nodes:
        status = node.status()
        assert status["encrypted"] and status["round"] == 20
        assert status["keys_refused"] == status["handshakes_failed"] == 0
        assert "listening on" in node.log() and ", encrypted" in node.log()


def test_mesh_trains_with_keys(ring):
    r = ring(4, shards=2)
    give_keys(r)
    r.start()
    r.start_workers("--steps", 40)
    r.wait_until_finished()
    r.check_hashes()


def test_ring_without_keys_says_that_it_is_not_encrypted(ring):
    r = ring(1)
    r.start()
    assert not r.nodes[0].status()["encrypted"]


def test_bytes_between_members_can_be_read_only_without_keys(ring):
    """Between a and b stands one who passes on what they say, and listens."""
    found = {}
    for has_keys in (False, True):
        r = ring(2)
        if has_keys:
            give_keys(r)
        tap = Tap(r.nodes[1].port)
        members = [f"a = tcp://127.0.0.1:{r.nodes[0].port}", f"b = tcp://127.0.0.1:{tap.port}"]
        r.nodes[0].configure(members=members)
        r.nodes[1].configure(members=members, node=f"listen = tcp://127.0.0.1:{r.nodes[1].port}")
        r.start()
        with tap:
            r.start_workers("--steps", 50)
            r.wait_until_finished()
        r.check_hashes()
        found[has_keys] = b"sync.interval" in tap.heard or b"wire.chunk" in tap.heard
        assert len(tap.heard) > 10000
    assert found == {False: True, True: False}


class Tap(Flood):
    """Passes one connection on to a port and keeps what the one who connects says."""

    def __init__(self, port):
        super().__init__(socket.AF_INET, ("127.0.0.1", port))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.heard = b""

    def run(self):
        self.listener.settimeout(0.05)
        pairs, order = {}, []
        while not self.is_over:
            try:
                one, _ = self.listener.accept()
                other = socket.create_connection(self.address)
                for s in (one, other):
                    s.settimeout(0.001)
                pairs[one], pairs[other] = other, one
                order += [(one, True), (other, False)]
                self.listener.settimeout(0.001)
            except (TimeoutError, OSError):
                pass
            for s, is_heard in order:
                try:
                    data = s.recv(65536)
                except (TimeoutError, OSError):
                    continue
                if is_heard:
                    self.heard += data
                try:
                    pairs[s].settimeout(5)
                    pairs[s].sendall(data)
                    pairs[s].settimeout(0.001)
                except OSError:
                    pass
        for s, _ in order:
            s.close()
        self.listener.close()


# ---- What is refused at the start ----


def test_member_without_a_key_here_is_named_by_check_config(ring):
    r = ring(3)
    give_keys(r)
    node = r.nodes[0]
    assert check_config(node) == (0, "config ok\n", "")
    (node.folder / "keys/c.pub").unlink()
    refused(node, f"{node.folder}/keys/c.pub: no public key of member c there", "editctl keygen c")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_secret_key_that_others_can_read_is_refused(ring, mode):
    r = ring(2)
    give_keys(r)
    path = r.nodes[0].folder / "keys/secret"
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(mode)
    refused(r.nodes[0], f"{path}: mode {mode:04o} lets others at the secret key, expected 0600")


def test_secret_key_of_another_owner_is_refused(ring):
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    r = ring(2)
    give_keys(r)
    path = r.nodes[0].folder / "keys/secret"
    os.chown(path, 65534, 65534)
    refused(r.nodes[0], f"{path}: belongs to uid 65534, expected uid 0")


def test_keys_that_are_none_are_refused_and_not_repeated(ring):
    r = ring(2)
    give_keys(r)
    path = r.nodes[0].folder / "keys/b.pub"
    shutil.copy(r.nodes[1].folder / "keys/secret", path)
    line = refused(r.nodes[0], f"{path}:2: a secret key where a public one was expected")
    assert (r.nodes[1].folder / "keys/secret").read_text().split()[-1] not in line
    path.write_text("public = 12345\n")
    refused(r.nodes[0], f"{path}:1: public: not a key, expected 40 characters")


def test_wrong_name_with_a_key_is_refused_at_the_start(ring):
    r = ring(2)
    give_keys(r)
    r.nodes[1].config.write_text(r.nodes[1].config.read_text().replace("name = b", "name = a"))
    refused(r.nodes[1], f"{r.nodes[1].folder}/keys/a.pub: not the public key of the secret one", "is node.name = a right")


def test_plain_addresses_beyond_this_host_are_refused_without_keys(ring):
    r = ring(2)
    node = r.nodes[0]
    members = [f"a = tcp://127.0.0.1:{node.port}", "b = tcp://192.0.2.1:7700"]
    node.configure(members=members)
    refused(node, "members.b: tcp://192.0.2.1:7700 leaves this host unencrypted; make keys (`editctl keygen`), or set node.plain = anywhere")
    node.configure(members=members, node="plain = anywhere")
    assert check_config(node)[0] == 0
    node.configure(members=members)
    give_keys(r)
    assert check_config(node)[0] == 0
    node.configure(members=members, node="curve = no")
    refused(node, "leaves this host unencrypted")
    node.configure(members=members, node="curve = yes\nplain = anywhere")
    (node.folder / "keys/secret").unlink()
    refused(node, f"{node.folder}/keys/secret: no secret key of a there; `editctl keygen a --out {node.folder}/keys` makes one")


def test_control_listen_is_refused_without_keys(ring):
    r = ring(1)
    node = r.nodes[0]
    node.configure(node="[control]\nlisten = tcp://127.0.0.1:1")
    refused(node, f"{node.folder}/keys/secret: no secret key of a there")


# ---- keygen ----


def test_keygen_never_replaces_a_key_unless_it_is_told_to(ring):
    folder = ring(1).nodes[0].folder / "keys"
    done = keygen(folder, "a")
    key = (folder / "a.pub").read_text().split()[-1]
    assert done.returncode == 0 and f"public = {key}" in done.stdout and str(folder / "a.pub") in done.stdout
    before = {p.name: p.read_text() for p in folder.iterdir()}
    assert sorted(before) == ["a.pub", "secret"] and before["secret"].split()[-1] not in done.stdout
    again = keygen(folder, "a")
    assert again.returncode == 4 and "secret: there already; --force" in again.stderr and len(again.stderr.splitlines()) == 1
    assert {p.name: p.read_text() for p in folder.iterdir()} == before
    (folder / "secret").unlink()
    assert keygen(folder, "a").returncode == 4  # a.pub is still there
    assert sorted(p.name for p in folder.iterdir()) == ["a.pub"]
    forced = json.loads(keygen(folder, "a", "--force", "--json").stdout)
    assert forced["public"] == (folder / "a.pub").read_text().split()[-1] != key
    assert (folder / "secret").stat().st_mode & 0o777 == 0o600
    assert keygen(folder, "A b").returncode == 2


def test_keygen_that_cannot_write_leaves_nothing(ring):
    folder = ring(1).nodes[0].folder
    (folder / "file").write_text("")
    done = keygen(folder / "file", "a")
    assert done.returncode == 2 and "not a folder" in done.stderr
    done = keygen(folder / "absent/keys", "a")
    assert done.returncode == 1 and "cannot be made (No such file or directory)" in done.stderr
    done = subprocess.run(["prlimit", "--fsize=0", BUILD / "editctl", "keygen", "a", "--out", folder / "keys"], capture_output=True,
                          text=True, preexec_fn=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN), restore_signals=False)
    assert done.returncode == 1 and "cannot be written (File too large)" in done.stderr
    assert list((folder / "keys").iterdir()) == []


# ---- Wrong keys, and what they are not ----


def test_wrong_key_and_stalled_peer_look_different_and_are_counted_apart(ring):
    r = ring(2)
    give_keys(r)
    a, b = r.nodes
    keygen(b.folder / "keys", "b", "--force")  # and nobody has told a
    r.start()
    r.start_workers("--steps", 1000000, "--step-ms", 2)
    a.wait_for_log("peer b at tcp://127.0.0.1:")
    wait_until(lambda: peer(a, "b")["state"] == "wrong-key", 10, a.log)
    wait_until(lambda: peer(b, "a")["state"] == "key-refused", 10, b.log)
    wrong = peer(a, "b")
    assert "its key is not the one that node.keys here has of it" in wrong["refusal"] and wrong["key_failures"] >= 1
    assert "it does not know the key of this node" in peer(b, "a")["refusal"]
    status = a.status()
    assert status["phase"] == "gathering" and status["keys_refused"] >= 1 and not status["healthy"]
    wait_until(lambda: "peer b: it ends every handshake" in a.status()["degraded"], 5, a.status)
    assert b.status()["handshakes_failed"] >= 1
    assert "its key is not that of a member" in a.log() and "that expect another key of this node" in b.log()

    # Once a is given it, a reload is enough.
    exchange(r.nodes)
    a.daemon.send_signal(signal.SIGHUP)
    a.wait_for_log("keys read again (SIGHUP): 2 of members, 0 of clients")
    a.wait_for_round(3, 30)
    assert peer(a, "b")["state"] == "live" and peer(a, "b")["refusal"] == "" and a.status()["degraded"] == ""
    before = (peer(b, "a")["key_failures"], b.status()["keys_refused"], b.status()["handshakes_failed"])

    # A peer that stands still is not heard, and nothing is said of keys. Without a the other is no majority.
    a.daemon.send_signal(signal.SIGSTOP)
    wait_until(lambda: peer(b, "a")["state"] == "down", 15, b.log)
    wait_until(lambda: b.status()["stalled_us"] > 7000000, 30, b.status)  # longer than a handshake may take
    stalled = peer(b, "a")
    assert stalled["state"] == "down" and stalled["refusal"] == "" and b.status()["degraded"] == ""
    assert (stalled["key_failures"], b.status()["keys_refused"], b.status()["handshakes_failed"]) == before
    a.daemon.send_signal(signal.SIGCONT)
    b.wait_for_round(b.status()["round"] + 3, 30)
    r.check_hashes()


def test_mesh_says_in_its_advice_whose_key_is_wrong(ring):
    r = ring(2, shards=2)
    give_keys(r)
    a, b = r.nodes
    keygen(b.folder / "keys", "b", "--force")
    r.start()
    r.start_workers("--steps", 100)
    wait_until(lambda: a.status()["advice"].startswith("b: it ends every handshake"), 15, a.status)
    wait_until(lambda: b.status()["advice"].startswith("a: it does not know the key of this node"), 15, b.status)
    mate = a.ctl("peers")["mates"][0]
    assert (mate["name"], mate["state"]) == ("b", "wrong-key")
    assert next(m for m in a.ctl("mesh")["members"] if m["name"] == "b")["state"] == "wrong-key"


def test_unknown_key_is_told_once_a_minute_however_often_it_comes(ring):
    r = ring(2)
    give_keys(r)
    keygen(r.nodes[1].folder / "keys", "b", "--force")
    r.start()
    a = r.nodes[0]
    wait_until(lambda: a.status()["keys_refused"] >= 3, 20, a.log)
    assert a.log().count("its key is not that of a member") == 1
    assert a.log().count("peer b at") == 1
    assert r.nodes[1].log().count("connections at the peer port refused so far") == 1


def test_half_of_a_ring_with_keys_does_not_start_and_both_halves_say_why(ring):
    r = ring(2)
    give_keys(r)
    a, b = r.nodes
    b.configure(node="curve = no")
    r.start()
    r.start_workers("--steps", 100)
    wait_until(lambda: peer(a, "b")["state"] == peer(b, "a")["state"] == "no-curve", 15, a.log)
    wait_until(lambda: "it has no keys and does not encrypt" in a.status()["degraded"], 5, a.status)
    wait_until(lambda: "it encrypts, and this node has no keys" in b.status()["degraded"], 5, b.status)
    assert a.status()["round"] == b.status()["round"] == 0 and a.status()["phase"] == "gathering"
    wait_until(lambda: a.status()["handshakes_failed"] >= 1, 15, a.status)
    assert a.status()["keys_refused"] == 0


def test_stolen_name_is_refused_and_its_owner_unharmed(ring):
    r = ring(3)
    give_keys(r)
    r.start()
    r.start_workers("--steps", 1000000, "--step-ms", 2)
    a = r.nodes[0]
    a.wait_for_round(2)
    # c's key, and the name of b: with folders and a port of its own, and without the file that would tell it so at the start.
    twin = ring(3)
    thief = twin.nodes[1]
    shutil.copytree(r.nodes[2].folder / "keys", thief.folder / "keys")
    for name in ("b", "c"):
        (thief.folder / f"keys/{name}.pub").unlink()
    keygen(twin.folder / "other", "c")
    shutil.copy(twin.folder / "other/c.pub", thief.folder / "keys")
    members = [f"{n.name} = tcp://127.0.0.1:{n.port}" for n in r.nodes]
    thief.configure(node=f"listen = tcp://127.0.0.1:{thief.port}", members=members)
    thief.start()
    thief.start_worker()
    a.wait_for_log("hello of b refused: its connection has the key of c")
    thief.wait_for_log("refused by peer a (the key of this connection is another member's")
    before = a.status()["round"]
    a.wait_for_round(before + 5)
    assert peer(a, "b")["state"] == "live"
    r.check_hashes()


def test_rotated_key_holds_after_a_restart_of_all(ring):
    r = ring(2)
    give_keys(r)
    a, b = r.nodes
    r.start()
    r.start_workers("--steps", 1000000, "--step-ms", 2)
    a.wait_for_round(3)
    old = (b.folder / "keys/b.pub").read_text()
    keygen(b.folder / "keys", "b", "--force")
    exchange(r.nodes)
    assert (a.folder / "keys/b.pub").read_text() != old
    b.daemon.send_signal(signal.SIGHUP)
    b.wait_for_log("keys not read again (SIGHUP): the secret key of this node is another one, which takes a restart")
    before = a.status()["round"]
    a.wait_for_round(before + 3)  # nothing has changed yet
    for node in r.nodes:
        node.stop()
    r.start()
    a.wait_for_round(before + 6, 30)
    assert a.status()["keys_refused"] == b.status()["keys_refused"] == 0
    r.check_hashes()


def test_reload_with_a_bad_key_leaves_all_as_it_was(ring):
    r = ring(2)
    give_keys(r)
    a = r.nodes[0]
    r.start()
    r.start_workers("--steps", 1000000, "--step-ms", 2)
    a.wait_for_round(1)
    (a.folder / "keys/b.pub").write_text("public = \n")
    a.daemon.send_signal(signal.SIGHUP)
    a.wait_for_log(f"keys not read again (SIGHUP): {a.folder}/keys/b.pub:1: public: not a key")
    a.wait_for_round(a.status()["round"] + 5)


# ---- Floods, and what they leave ----

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)
HELLO = b"\x04" + bytes([200]) + b"\x05HELLO\x01\x00" + bytes(72) + bytes(range(1, 33)) + struct.pack("<Q", 1) + bytes(80)


@pytest.mark.parametrize("where", ["peer port", "control.listen"])
@pytest.mark.parametrize("hello", [GREETING, GREETING + HELLO], ids=["greeting", "hello"])
def test_flood_of_handshakes_stops_neither_ring_nor_editctl(ring, hello, where):
    r = ring(2)
    remote = Remote(r)
    reader = remote.client("reader", "read")
    r.start()
    node = remote.node
    bound(node)
    r.start_workers("--steps", 1000000, "--step-ms", 2)
    node.wait_for_round(2)
    port = node.port if where == "peer port" else remote.port
    with Flood(socket.AF_INET, ("127.0.0.1", port), hello) as flood:
        if hello == GREETING:  # connections that are held
            node.wait_for_log("connections refused, ")
        else:  # each ends as soon as its hello is read
            wait_until(lambda: flood.ended > 2000, 30, node.log)
        for _ in range(10):
            before = node.status()["round"]
            node.wait_for_round(before + 3)
        assert node.daemon.poll() is None, node.log()
    assert all(": down, not heard" not in n.log() for n in r.nodes), node.log()
    assert remote.ctl(reader, "status")[0] == 0
    if hello != GREETING and where == "peer port":
        assert node.status()["handshakes_failed"] > 1000
        assert node.log().count("connections at the peer port refused so far") == 1
    wait_until(lambda: descriptors(node) < 64, 20, lambda: descriptors(node))
    r.check_hashes()


def test_handshakes_that_fail_cost_nothing_that_lasts(ring):
    r = ring(2)
    remote = Remote(r)
    stranger = remote.client("stranger")
    node = remote.node
    node.start()  # b is not there: its address refuses connections

    def churn(count):
        for _ in range(count):
            with socket.create_connection(("127.0.0.1", node.port)) as peer:
                peer.sendall(GREETING + HELLO)
                while peer.recv(1024):  # until it hangs up
                    pass
        for _ in range(count // 20):
            assert remote.ctl(stranger, "status")[0] == 4

    churn(300)
    files, memory = descriptors(node), node.status()["memory_bytes"]
    churn(2700)
    wait_until(lambda: descriptors(node) <= files + 2, 10, lambda: descriptors(node))
    status = node.status()
    assert status["handshakes_failed"] == 3000 and status["keys_refused"] == 150
    if SLOW == 1:  # sanitizers keep freed memory
        assert status["memory_bytes"] < memory + (4 << 20)


def test_neighbour_tried_again_and_again_costs_nothing_that_lasts(ring):
    r = ring(2)
    give_keys(r)
    a, b = r.nodes
    keygen(a.folder / "keys", "a", "--force")  # b refuses it, so a makes its socket anew each time
    r.start()
    wait_until(lambda: peer(a, "b")["key_failures"] >= 2, 20, a.log)
    files, memory = descriptors(a), a.status()["memory_bytes"]
    wait_until(lambda: peer(a, "b")["key_failures"] >= 6, 30, a.log)
    assert descriptors(a) <= files + 2 and descriptors(b) <= files + 6
    if SLOW == 1:
        assert a.status()["memory_bytes"] < memory + (1 << 20)

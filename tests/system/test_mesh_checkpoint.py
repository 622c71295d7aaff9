"""Checkpoints of a mesh: each member writes its pieces, and edit-worker join makes a model of them that has learned."""

import json
import subprocess

import pytest

from conftest import BUILD

TEXT = b"What one node cannot hold, several hold together, and what they write down apart becomes one model again. "


def tool(*words):
    done = subprocess.run([BUILD / "edit-worker", *map(str, words)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loss(model, data):
    return json.loads(tool("eval", "--model", model, "--data", data, "--threads", 1, "--json"))["loss"]


def joined(r, path, folders):
    """The folder of the model of these, and the bytes of its weights."""
    tool("join", "--out", path, *folders)
    return path, (path / "model.safetensors").read_bytes()


def initial_model(r, data, config):
    """The initial parameters, as the checkpoint of a member that trains alone and takes no step worth the name."""
    r.start()
    r.start_training(data, "--steps", 5, "--lr", "1e-30", "--min-lr", "0", model=config)
    r.wait_until_finished()
    r.nodes[0].wait_for_log("checkpoint of round")
    return r.nodes[0].status()["checkpoint"]


@pytest.mark.parametrize("tied", [False, True])
def test_pieces_of_any_replica_make_the_model(ring, tmp_path, tied):
    data, config = tmp_path / "text", {"tie_word_embeddings": tied}
    data.write_bytes(TEXT * 300)
    mesh = ring(4, shards=2)
    mesh.start()
    mesh.start_training(data, "--steps", 60, "--lr", "0.01", model=config)
    mesh.wait_until_finished()
    folders = []
    for node in mesh.nodes:
        node.wait_for_log("checkpoint of round 12: ")
        folders.append(node.folder / "state/checkpoints/round-000012")
        assert node.status()["checkpoint"] == str(folders[-1])
    for rank, folder in enumerate(folders):
        manifest = json.loads((folder / "manifest.json").read_text())
        assert [manifest[key] for key in ("round", "row", "column", "shards")] == [12, rank // 2, rank % 2, 2]
        assert sorted(path.name for path in folder.iterdir()) == [
            "config.json", "manifest.json", f"piece-{rank % 2 + 1}-of-2.safetensors", "state.safetensors"]

    # The replicas' pieces are the same bytes, so it does not matter whose are taken.
    for column in range(2):
        pieces = [(folder / f"piece-{column + 1}-of-2.safetensors").read_bytes() for folder in folders[column::2]]
        assert pieces[0] == pieces[1]
    model, weights = joined(mesh, tmp_path / "model", folders[:2])
    assert joined(mesh, tmp_path / "other", [folders[1], folders[2]])[1] == weights

    before, after = loss(initial_model(ring(1), data, config), data), loss(model, data)
    assert after < before - 0.5, (before, after)
    # And training can go on from it, in a ring as in a mesh.
    more = ring(2, shards=2)
    more.start()
    for node in more.nodes:
        node.run_worker([BUILD / "edit-worker", "train", "--socket", node.folder / "run/worker.sock", "--model", model, "--data",
                         data, "--batch", "2", "--context", "16", "--threads", "1", "--steps", "20"])
    more.wait_until_finished()

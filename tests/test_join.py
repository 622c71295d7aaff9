#!/usr/bin/env python3
"""edit-worker join as people use it: a model comes back from its pieces to the byte, and everything that does not fit is told
in one line with an exit status, and leaves no model behind."""

import ctypes.util
import json
import os
import pty
import resource
import shutil
import subprocess
import unittest

from test_worker_tools import BYTE_CONFIG, TOOL, Case, read_safetensors, run, write_safetensors

XXHASH = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
XXHASH.XXH3_64bits.restype = ctypes.c_uint64
XXHASH.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def file_entry(path):
    with open(path, "rb") as file:
        data = file.read()
    return {"bytes": len(data), "xxh3": f"{XXHASH.XXH3_64bits(data, len(data)):016x}"}


def layers_of(tensors):
    """Name and bytes of each layer: its tensors one behind the other."""
    layers = {}
    for name, _, _, data in tensors:
        words = name.split(".")
        layer = f"block {words[2]}" if words[1] == "layers" else "embedding" if "embed" in name else "head"
        layers[layer] = layers.get(layer, b"") + data
    return layers


def cut(data, shards, column):
    """(first element, bytes) of a piece: the first ones have one element more if it does not come out even."""
    size = len(data) // 4
    small, more = divmod(size, shards)
    first = column * small + min(column, more)
    return first, data[4 * first:4 * (first + small + (column < more))]


def change_json(path, **changes):
    """None takes a key away."""
    with open(path, encoding="utf-8") as file:
        root = {**json.load(file), **changes}
    with open(path, "w", encoding="utf-8") as file:
        json.dump({key: value for key, value in root.items() if value is not None}, file)


class Join(Case):
    def seal(self, folder, shards, column, **more):
        """Writes a manifest about the files as they are."""
        names = ("config.json", f"piece-{column + 1}-of-{shards}.safetensors")
        manifest = {"format": 1, "run": "run", "member": "a", "view": 1, "round": 12, "row": 0, "column": column, "shards": shards,
                    "files": {name: file_entry(f"{folder}/{name}") for name in names}, **more}
        with open(folder + "/manifest.json", "w", encoding="utf-8") as file:
            json.dump(manifest, file)

    def pieces(self, model, shards, name="piece"):
        """Folders as the daemons of one replica write them."""
        layers, folders = layers_of(read_safetensors(model + "/model.safetensors")), []
        for column in range(shards):
            folder = self.path(f"{name}-{column}")
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
            shutil.copy(model + "/config.json", folder)
            parts = [(layer, cut(data, shards, column)[1]) for layer, data in layers.items()]
            write_safetensors(f"{folder}/piece-{column + 1}-of-{shards}.safetensors",
                              [(layer, "F32", [len(part) // 4], part) for layer, part in parts])
            self.seal(folder, shards, column)
            folders.append(folder)
        return folders

    def fails(self, status, fragment, *folders, out=None):
        """One line, and nothing made."""
        before = sorted(os.listdir(self.folder))
        self.expect_line(status, fragment, "join", "--out", out or self.path("out"), *folders)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_model_comes_back_to_the_byte(self):
        for shards, tied in ((2, False), (3, True), (7, False)):
            with self.subTest(shards=shards, tied=tied):
                model = self.model(config={"tie_word_embeddings": tied})
                out = self.path(f"out-{shards}")
                status, text, err = run("join", "--out", out + "/", *reversed(self.pieces(model, shards)))
                self.assertEqual((status, text), (0, b""), err)
                self.assertIn(f"the model of run run after round 12, of {shards} pieces", err)
                self.assertEqual(sorted(os.listdir(out)), ["config.json", "model.safetensors"])
                self.assertEqual(read_safetensors(out + "/model.safetensors"), read_safetensors(model + "/model.safetensors"))
                with open(out + "/config.json", "rb") as a, open(model + "/config.json", "rb") as b:
                    self.assertEqual(a.read(), b.read())
                self.assertFalse(os.path.exists(out + ".partial"))

    def test_pieces_may_be_empty(self):
        model = self.model(config={"vocab_size": 2, "hidden_size": 2, "num_attention_heads": 1, "num_key_value_heads": 1})
        status, _, err = run("join", "--out", self.path("out"), *self.pieces(model, 9))  # the head has six elements
        self.assertEqual(status, 0, err)
        self.assertEqual(read_safetensors(self.path("out/model.safetensors")), read_safetensors(model + "/model.safetensors"))

    def test_folders_that_do_not_belong_together_are_told(self):
        model = self.model()
        a, b, c = self.pieces(model, 3)
        self.fails(2, "piece 2 of 3 is missing, expected a folder with each piece", a, c)
        self.fails(2, f"{a} and {a}: both hold piece 1 of 3", a, b, c, a)
        other = self.pieces(model, 2, "half")
        self.fails(2, f"{other[1]}: one of 2 pieces, {a} is one of 3", a, other[1], c)
        change_json(b + "/manifest.json", round=13)
        self.fails(2, f"{b}: of round 13, {a} is of round 12", a, b, c)
        change_json(b + "/manifest.json", round=12, run="another")
        self.fails(2, f"{b}: of run another, {a} is of run run", a, b, c)
        with open(b + "/config.json", "a", encoding="utf-8") as file:
            file.write("\n")
        self.seal(b, 3, 1)
        self.fails(2, f"{b}: its config.json is another one than that of {a}", a, b, c)

    def test_arguments_that_do_not_fit_are_told(self):
        model = self.model()
        folders = self.pieces(model, 2)
        self.expect_line(2, "--out DIR is missing", "join", *folders)
        self.expect_line(2, "expected the checkpoint's folder of a member", "join", "--out", self.path("out"))
        self.expect_line(2, "--out: ''", "join", "--out=", *folders)
        self.fails(2, "model: is there already, expected a new folder", *folders, out=model)
        self.fails(1, "out.partial: cannot be made: No such file", *folders, out=self.path("lost/out"))
        self.fails(1, "lost/manifest.json: cannot be opened: No such file", folders[0], self.path("lost"))
        self.fails(1, "model/manifest.json: cannot be opened: No such file", folders[0], model)

    def test_bad_manifests_are_told(self):
        model = self.model()
        for status, fragment, changes in (
                (2, "not a piece of a model: its manifest names no column", {"shards": None}),
                (2, "format 2, expected 1", {"format": 2}),
                (1, "format: expected a whole number", {"format": None}),
                (1, "run: expected a name of up to 63 bytes", {"run": 7}),
                (1, "run: expected a name", {"run": "x" * 64}),
                (1, "round: expected a whole number from 0", {"round": -1}),
                (1, "column: expected a whole number from 0 to 1", {"column": 2}),
                (1, "shards: expected a whole number from 0 to 1024", {"shards": 1 << 40}),
                (1, "column: expected a whole number from 0 to", {"shards": 0}),
                (1, "files: piece-2-of-2.safetensors: expected bytes and xxh3", {"column": 1}),
                (1, "files: piece-1-of-2.safetensors: expected bytes and xxh3", {"files": []}),
                (1, "files: piece-1-of-2.safetensors: expected bytes and xxh3",
                 {"files": {"piece-1-of-2.safetensors": {"bytes": 9, "xxh3": "12"}}})):
            with self.subTest(fragment):
                a, b = self.pieces(model, 2)
                change_json(a + "/manifest.json", **changes)
                self.fails(status, fragment, a, b)
        self.write("piece-0/manifest.json", b"{")
        self.fails(1, "piece-0/manifest.json: line 1: not JSON", a, b)

    def test_damaged_files_are_told(self):
        a, b = self.pieces(self.model(), 2)
        name = b + "/piece-2-of-2.safetensors"
        with open(name, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x55")
        self.fails(1, f"{name}: damaged: xxh3 ", a, b)
        os.truncate(name, os.path.getsize(name) - 4)
        self.fails(1, "bytes, expected ", a, b)
        os.remove(name)
        self.fails(1, f"{name}: cannot be opened", a, b)

    def test_tensors_that_do_not_fit_the_config_are_told(self):
        a, b = self.pieces(self.model(), 2)
        name = a + "/piece-1-of-2.safetensors"
        good = read_safetensors(name)
        write_safetensors(name, [tensor for tensor in good if tensor[0] != "block 1"])
        self.seal(a, 2, 0)
        self.fails(2, f"{name}: layer block 1 is missing, expected [", a, b)
        write_safetensors(name, [(n, k, [s[0] - 1], d[:-4]) if n == "head" else (n, k, s, d) for n, k, s, d in good])
        self.seal(a, 2, 0)
        self.fails(2, "tensor head: shape [2055], expected [2056]", a, b)
        for column, folder in enumerate(self.pieces(self.model(), 2)):
            self.write(os.path.basename(folder) + "/config.json", json.dumps({**BYTE_CONFIG, "hidden_act": "gelu"}).encode())
            self.seal(folder, 2, column)
        self.fails(2, "hidden_act", a, b)

    def test_full_disk_leaves_nothing(self):
        folders = self.pieces(self.model(), 2)
        done = subprocess.run([TOOL, "join", "--out", self.path("out"), *folders], stderr=subprocess.PIPE, check=False, timeout=60,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)), restore_signals=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(b"out.partial/model.safetensors.partial: write at byte 8192: File too large", done.stderr)
        self.assertFalse(os.path.exists(self.path("out")) or os.path.exists(self.path("out.partial")))

    def test_what_a_killed_one_left_is_replaced(self):
        model = self.model()
        folders = self.pieces(model, 2)
        os.makedirs(self.path("out.partial"))
        self.write("out.partial/model.safetensors.partial", b"half")
        self.assertEqual(run("join", "--out", self.path("out"), *folders)[0], 0)
        self.assertEqual(sorted(os.listdir(self.path("out"))), ["config.json", "model.safetensors"])
        # A folder with anything else in it is somebody's.
        os.makedirs(self.path("new.partial"))
        self.write("new.partial/thesis", b"years of work")
        self.fails(1, "new.partial: cannot be made: File exists", *folders, out=self.path("new"))
        self.assertTrue(os.path.exists(self.path("new.partial/thesis")))

    def test_piece_as_a_model_is_told(self):
        folder = self.pieces(self.model(), 2)[0]
        data = self.write("text", b"some text to measure" * 9)
        told = f"{folder}: a piece of a model, from a mesh; `edit-worker join' makes the model of all its pieces"
        self.expect_line(2, told, "eval", "--model", folder, "--data", data)
        self.expect_line(2, told, "sample", "--model", folder, "--prompt", "a")
        self.expect_line(2, told, "train", "--model", folder, "--data", data, "--socket", self.path("socket"), "--context", "16")

    def test_terminal_is_wiped_after_the_bar(self):
        folders = self.pieces(self.model(), 2)
        ours, theirs = pty.openpty()
        done = subprocess.run([TOOL, "join", "--out", self.path("out"), *folders], stderr=theirs, check=False, timeout=60)
        os.close(theirs)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(os.read(ours, 65536).decode(), "\r\x1b\\[Kedit-worker: .*of 2 pieces")
        os.close(ours)


if __name__ == "__main__":
    unittest.main()

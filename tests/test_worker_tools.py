#!/usr/bin/env python3
"""The tools of edit-worker as people use them: eval and sample on folders of all kinds, and the one line and the exit
status for everything that does not fit."""

import json
import math
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest

TOOL = os.path.join(os.environ.get("BUILD", "build"), "edit-worker")
VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors")

BYTE_CONFIG = {"model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 24,
               "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
               "max_position_embeddings": 64}


def run(*arguments, **options):
    """(exit status, stdout, stderr) of edit-worker; a test must not hang."""
    done = subprocess.run([TOOL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=60,
                          **options)
    return done.returncode, done.stdout, done.stderr.decode()


def shapes(config):
    """Names and shapes of a model's tensors, in Hugging Face's words."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim") or width // config["num_attention_heads"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", [config["vocab_size"], width]
    for i in range(config["num_hidden_layers"]):
        block = f"model.layers.{i}."
        yield block + "input_layernorm.weight", [width]
        yield block + "self_attn.q_proj.weight", [queries, width]
        yield block + "self_attn.k_proj.weight", [keys, width]
        yield block + "self_attn.v_proj.weight", [keys, width]
        yield block + "self_attn.o_proj.weight", [width, queries]
        yield block + "post_attention_layernorm.weight", [width]
        yield block + "mlp.gate_proj.weight", [inner, width]
        yield block + "mlp.up_proj.weight", [inner, width]
        yield block + "mlp.down_proj.weight", [width, inner]
    yield "model.norm.weight", [width]
    if not config.get("tie_word_embeddings"):
        yield "lm_head.weight", [config["vocab_size"], width]


def bytes_of(values, kind):
    """Numbers as F32, F16 or BF16 (cut off, so use numbers that bfloat16 holds)."""
    if kind == "BF16":
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{'e' if kind == 'F16' else 'f'}", *values)


def write_safetensors(path, tensors):
    """tensors: (name, kind, shape, bytes)."""
    header, at = {}, 0
    for name, kind, shape, data in tensors:
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, _, data in tensors))


def poisoned(tensors, name, value):
    """The tensors with that value as element 3 of the named one; for change of Case.model, as the next."""
    return [(n, k, s, d[:12] + struct.pack("<f", value) + d[16:] if n == name else d) for n, k, s, d in tensors]


def too_large(tensors):
    """Weights that are finite, and results that are not."""
    return [(n, k, s, struct.pack("<f", 3e38) * (len(d) // 4) if "lm_head" in n else d) for n, k, s, d in tensors]


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return [(name, entry["dtype"], entry["shape"], data[8 + size:][slice(*entry["data_offsets"])])
            for name, entry in header.items()]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)

    def model(self, name="model", kind="F32", config=None, change=None):
        """A model folder with random numbers that all three kinds hold exactly."""
        config = {**BYTE_CONFIG, **(config or {})}
        draw = random.Random(7)
        tensors = []
        for tensor, shape in shapes(config):
            values = [draw.randint(-31, 31) / 64 for _ in range(math.prod(shape))]
            tensors.append((tensor, kind, shape, bytes_of(values, kind)))
        os.makedirs(self.path(name), exist_ok=True)
        self.write(name + "/config.json", json.dumps(config).encode())
        write_safetensors(self.path(name + "/model.safetensors"), change(tensors) if change else tensors)
        return self.path(name)

    def expect_line(self, status, fragment, *arguments):
        """The command fails with that status and exactly one line, which holds fragment."""
        got, out, err = run(*arguments)
        self.assertEqual((got, out), (status, b""), err)
        self.assertIn(fragment, err)
        self.assertEqual(err.count("\n"), 1, err)


class Eval(Case):
    def losses_of(self, name):
        """Loss of each row of the reference's first batch, and the reference's mean."""
        with open(f"{VECTORS}/{name}/expect.json", encoding="utf-8") as file:
            expect = json.load(file)
        losses = []
        for row in expect["batches"][0]:
            data = self.write("row.bin", struct.pack(f"<{len(row)}H", *row))
            status, out, err = run("eval", "--model", f"{VECTORS}/{name}", "--data", data, "--json")
            self.assertEqual(status, 0, err)
            result = json.loads(out)
            self.assertEqual((result["version"], result["tokens"]), (1, len(row) - 1))
            self.assertIsNone(result["bits_per_byte"])
            self.assertAlmostEqual(result["perplexity"], math.exp(result["loss"]), delta=1e-4 * result["perplexity"])
            losses.append(result["loss"])
        return losses, expect["steps"][0]["loss"]

    def test_loss_is_that_of_the_reference(self):
        for name in ("llama_tied_mha", "llama_untied_gqa", "llama_one_head_one_token"):
            losses, expected = self.losses_of(name)
            self.assertLess(abs(sum(losses) / len(losses) / expected - 1), 1e-5, name)

    def loss(self, model, data, *more):
        status, out, err = run("eval", "--model", model, "--data", data, "--json", *more)
        self.assertEqual(status, 0, err)
        return json.loads(out)

    def test_all_kinds_of_weights_give_one_loss(self):
        data = self.write("text", bytes(range(256)) * 2)
        losses = [self.loss(self.model(kind.lower(), kind), data)["loss"] for kind in ("F32", "F16", "BF16")]
        self.assertEqual(losses[1:], losses[:1] * 2)

    def test_shards_give_the_loss_of_one_file(self):
        whole, data = self.model(), self.write("text", b"some text to measure" * 9)
        tensors = read_safetensors(whole + "/model.safetensors")
        os.makedirs(self.path("shards"))
        shutil.copy(whole + "/config.json", self.path("shards"))
        names = {}
        for i in range(3):
            write_safetensors(self.path(f"shards/part-{i}.safetensors"), tensors[i::3])
            names.update({tensor[0]: f"part-{i}.safetensors" for tensor in tensors[i::3]})
        self.write("shards/model.safetensors.index.json", json.dumps({"weight_map": names}).encode())
        self.assertEqual(self.loss(self.path("shards"), data)["loss"], self.loss(whole, data)["loss"])

    def test_every_token_but_the_first_is_measured_once(self):
        model, data = self.model(), self.write("text", os.urandom(1001))
        for context, batch in ((1, 1), (7, 3), (64, 64), (10, 100)):
            result = self.loss(model, data, "--context", str(context), "--batch", str(batch))
            self.assertEqual(result["tokens"], 1000)
            self.assertAlmostEqual(result["bits_per_byte"], result["loss"] / math.log(2), places=6)

    def test_held_out_part_is_the_end_of_the_file(self):
        model, text = self.model(), random.Random(1).randbytes(1000)
        part = self.loss(model, self.write("all", text), "--holdout", "0.1")
        self.assertEqual(part["tokens"], 99)
        self.assertEqual(part["loss"], self.loss(model, self.write("end", text[900:]))["loss"])

    def test_text_output_holds_the_same_numbers(self):
        model, data = self.model(), self.write("text", b"some text to measure")
        loss = self.loss(model, data)["loss"]
        status, out, _ = run("eval", "--model", model, "--data", data)
        self.assertEqual(status, 0)
        self.assertIn(f"loss           {loss:.6f} nats per token\n", out.decode())
        self.assertIn("tokens         19\n", out.decode())

    def test_extra_tensors_are_named_or_known(self):
        known = ("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", [2], bytes(8))
        data = self.write("text", b"some text to measure")
        model = self.model(change=lambda tensors: tensors + [known])
        status, _, err = run("eval", "--model", model, "--data", data)
        self.assertEqual((status, err), (0, ""))
        model = self.model(change=lambda tensors: tensors + [("adapter", "F32", [2], bytes(8))])
        status, _, err = run("eval", "--model", model, "--data", data)
        self.assertEqual(status, 0)
        self.assertIn("1 tensors are not part of the model and left aside (one is adapter)", err)

    def test_what_does_not_fit_is_told(self):
        model, data = self.model(), self.write("text", b"some text to measure")
        lost = self.path("lost")

        def fails(status, fragment, *arguments):
            self.expect_line(status, fragment, "eval", *arguments)
        fails(2, "--data FILE is missing", "--model", model)
        fails(2, "--model DIR is missing", "--data", data)
        fails(2, "'more': not expected", "--model", model, "--data", data, "more")
        fails(1, "lost: cannot be opened: No such file", "--model", lost, "--data", data)
        fails(1, "lost: cannot be opened: No such file", "--model", model, "--data", lost)
        fails(2, "expected a folder with config.json", "--model", model + "/config.json", "--data", data)
        fails(2, "--context: 65, but the model has 64 positions", "--model", model, "--data", data, "--context", "65")
        fails(2, "--context: '0', expected a whole number from 1", "--model", model, "--data", data, "--context", "0")
        fails(2, "--batch: '1e3', expected a whole number", "--model", model, "--data", data, "--batch", "1e3")
        fails(2, "--holdout: 'nan', expected a number from 0", "--model", model, "--data", data, "--holdout", "nan")
        fails(2, "--data-type: 'u8', expected text", "--model", model, "--data", data, "--data-type", "u8")
        fails(2, "1 tokens to measure on, expected at least 2", "--model", model, "--data", self.write("one", b"x"))
        fails(2, "empty, expected text tokens", "--model", model, "--data", self.write("none", b""))
        os.remove(model + "/model.safetensors")
        fails(2, "has neither model.safetensors nor", "--model", model, "--data", data)

    def test_damaged_weights_are_told(self):
        data = self.write("text", b"some text to measure")

        def fails(status, fragment, change):
            self.expect_line(status, fragment, "eval", "--model", self.model(change=change), "--data", data)
        fails(2, "/model.safetensors: tensor model.layers.1.mlp.up_proj.weight is missing, expected with shape [24",
              lambda tensors: [tensor for tensor in tensors if "1.mlp.up" not in tensor[0]])
        fails(2, "tensor model.norm.weight: shape [4, 4], expected [16]",
              lambda tensors: [(n, k, [4, 4] if n == "model.norm.weight" else s, d) for n, k, s, d in tensors])
        fails(2, "tensor model.norm.weight: type I32, expected F32, BF16 or F16",
              lambda tensors: [(n, "I32" if n == "model.norm.weight" else k, s, d) for n, k, s, d in tensors])
        fails(1, "the loss is not finite (tensor model.layers.0.input_layernorm.weight: element 0 is NaN)",
              lambda tensors: [(n, k, s, b"\xff" * len(d) if "norm" in n else d) for n, k, s, d in tensors])
        fails(1, "the loss is not finite (all weights are finite: too large for float32 on the way)", too_large)
        model = self.model()
        os.truncate(model + "/model.safetensors", os.path.getsize(model + "/model.safetensors") - 1)
        self.expect_line(1, "are not inside the data", "eval", "--model", model, "--data", data)

    def test_loss_that_is_not_finite_is_null_in_json(self):
        model = self.model(change=lambda tensors: poisoned(tensors, "model.norm.weight", math.inf))
        got, out, err = run("eval", "--model", model, "--data", self.write("text", b"some text to measure"), "--json")
        self.assertEqual(got, 1)
        result = json.loads(out)
        self.assertEqual([result["loss"], result["perplexity"], result["bits_per_byte"]], [None] * 3)
        self.assertIn("the loss is not finite (tensor model.norm.weight: element 3 is infinite)", err)

    def test_full_output_is_told(self):
        model, data = self.model(), self.write("text", b"some text to measure")
        with open("/dev/full", "wb") as full:
            done = subprocess.run([TOOL, "eval", "--model", model, "--data", data], stdout=full, stderr=subprocess.PIPE,
                                  check=False, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cannot be written: No space left", done.stderr)


class Sample(Case):
    def test_text_begins_with_the_prompt_and_repeats_with_its_seed(self):
        model = self.model()
        arguments = ("sample", "--model", model, "--prompt", "Once", "--tokens", "40", "--temperature", "1")
        status, text, err = run(*arguments)
        self.assertEqual((status, err), (0, ""))
        self.assertEqual((text[:4], len(text), text[-1:]), (b"Once", 4 + 40 + 1, b"\n"))
        self.assertEqual(run(*arguments)[1], text)
        self.assertNotEqual(run(*arguments, "--seed", "2")[1], text)

    def test_most_likely_token_is_that_of_the_reference(self):
        for name in ("llama_tied_mha", "llama_untied_gqa"):
            with open(f"{VECTORS}/{name}/expect.json", encoding="utf-8") as file:
                expect = json.load(file)
            with open(f"{VECTORS}/{name}/config.json", encoding="utf-8") as file:
                vocab = json.load(file)["vocab_size"]
            # logits: [rows of the first batch, time, vocabulary]
            rows = expect["batches"][0]
            time_count = len(rows[0]) - 1
            for r, row in enumerate(rows):
                last = expect["logits"][((r + 1) * time_count - 1) * vocab:][:vocab]
                ids = ",".join(str(token) for token in row[:-1])
                status, out, err = run("sample", "--model", f"{VECTORS}/{name}", "--prompt-ids", ids, "--tokens", "1",
                                       "--temperature", "0")
                self.assertEqual(status, 0, err)
                self.assertEqual([int(token) for token in out.split()], row[:-1] + [last.index(max(last))])

    def test_default_is_what_fits(self):
        text = run("sample", "--model", self.model(), "--prompt", "x" * 60)[1]
        self.assertEqual(len(text), 60 + 5 + 1)

    def test_what_does_not_fit_is_told(self):
        model, wide = self.model(), self.model("wide", config={"vocab_size": 300})

        def fails(status, fragment, *arguments):
            self.expect_line(status, fragment, "sample", *arguments)
        fails(2, "expected either --prompt TEXT or --prompt-ids", "--model", model)
        fails(2, "expected either", "--model", model, "--prompt", "a", "--prompt-ids", "1")
        fails(2, "--prompt: empty", "--model", model, "--prompt", "")
        fails(2, "a vocabulary of 300 tokens, not of 256 bytes: give --prompt-ids", "--model", wide, "--prompt", "a")
        for bad in ("", "1,", ",1", "1,,2", "-1", "1 ,2", "300", "99999999999999999999", "a"):
            fails(2, "expected ids below 300 with commas", "--model", wide, "--prompt-ids", bad)
        fails(2, "64 positions, but the prompt has 65 tokens", "--model", model, "--prompt", "x" * 65)
        fails(2, "64 positions, but the prompt has 3 tokens and 63", "--model", model, "--prompt=abc", "--tokens=63")
        fails(2, "--temperature: '-1', expected a number from 0", "--model", model, "--prompt=a", "--temperature=-1")
        fails(2, "--tokens: '0'", "--model", model, "--prompt", "a", "--tokens", "0")

    def test_logits_that_are_not_finite_are_told(self):
        for value, told in ((math.nan, "NaN"), (-math.inf, "infinite")):
            for name in ("model.layers.1.mlp.up_proj.weight", "lm_head.weight"):
                model = self.model(change=lambda tensors, n=name, v=value: poisoned(tensors, n, v))
                for temperature in ("0", "0.8"):
                    got, out, err = run("sample", "--model", model, "--prompt", "ab", "--temperature", temperature)
                    self.assertEqual((got, out), (1, b"ab\n"), err)
                    self.assertIn(f"{model}: the logits are not finite (tensor {name}: element 3 is {told})", err)
                    self.assertEqual(err.count("\n"), 1, err)
        got, _, err = run("sample", "--model", self.model(change=too_large), "--prompt", "ab")
        self.assertEqual(got, 1)
        self.assertIn("the logits are not finite (all weights are finite", err)

    def test_closed_output_ends_it(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([TOOL, "sample", "--model", self.model(), "--prompt", "a"], stdout=full,
                                  stderr=subprocess.PIPE, check=False, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cannot be written", done.stderr)


class Train(Case):
    def arguments(self, **changes):
        """A good command line, with changes; None leaves an option out."""
        good = {"socket": self.path("worker.sock"), "model": self.model(), "context": "16", "wait": "0.2",
                "data": self.write("text", b"some text" * 99), **changes}
        return ["train"] + [f"--{name}={value}" for name, value in good.items() if value is not None]

    def test_no_daemon_is_told_in_time(self):
        begin = time.monotonic()
        self.expect_line(3, "no daemon on " + self.path("worker.sock"), *self.arguments())
        self.assertLess(time.monotonic() - begin, 10)

    def test_signal_ends_the_wait_for_a_daemon(self):
        with subprocess.Popen([TOOL, *self.arguments(wait="inf")], stderr=subprocess.PIPE) as process:
            time.sleep(0.5)
            self.assertIsNone(process.poll())
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(10), 0)
            self.assertEqual(process.stderr.read(), b"")

    def test_reason_of_a_refusal_is_told(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self.path("worker.sock"))
            listener.listen()
            with subprocess.Popen([TOOL, *self.arguments(wait="10")], stderr=subprocess.PIPE) as process:
                daemon, _ = listener.accept()
                # struct segment_bell: kind REFUSED, the version that the worker sent, value, flags, text
                version = struct.unpack_from("<I", daemon.recv(65536), 4)[0]
                daemon.send(struct.pack("<IIQQ232s", 3, version, 0, 0, b"the ring is full"))
                self.assertEqual(process.wait(10), 4)
                self.assertEqual(process.stderr.read(), b"edit-worker: the daemon refuses: the ring is full\n")
                daemon.close()

    def test_what_does_not_fit_is_told_before_the_daemon_is_asked(self):
        for status, fragment, changes in (
                (2, "--data FILE is missing", {"data": None}),
                (2, "--model DIR is missing", {"model": None}),
                (1, "lost: cannot be opened", {"data": self.path("lost")}),
                (1, "lost: cannot be opened", {"model": self.path("lost")}),
                (2, "4 tokens to train on (0 held out), shorter than a sample", {"data": self.write("short", b"text")}),
                (2, "empty, expected text tokens", {"data": self.write("none", b"")}),
                (2, "--context: 65, but the model has 64", {"context": 65}),
                (2, "--steps: '-1', expected a whole number", {"steps": -1}),
                (2, "--lr: 'fast', expected a number", {"lr": "fast"}),
                (2, "--min-lr: 0.1, expected at most --lr (0.01)", {"min-lr": 0.1, "lr": 0.01}),
                (2, "--warmup: 11, expected at most --steps (10)", {"warmup": 11, "steps": 10}),
                (2, "--beta1: '1', expected a number from 0", {"beta1": 1}),
                (2, "--run: 'My run', expected 1 to 63 of a-z", {"run": "My run"}),
                (2, "--drill: 'nan', expected KIND@STEP", {"drill": "nan"}),
                (2, "longer than 107 bytes", {"socket": "x" * 200})):
            with self.subTest(fragment):
                got, out, err = run(*self.arguments(**changes))
                self.assertIn(fragment, err)
                self.assertEqual((got, out, err.count("\n")), (status, b"", 1))


class Commands(unittest.TestCase):
    def test_help_and_version_answer_on_stdout(self):
        for arguments in (("--help",), ("train", "--help"), ("eval", "--help"), ("sample", "--help"), ("join", "--help")):
            status, out, err = run(*arguments)
            self.assertEqual((status, err), (0, ""))
            self.assertIn("Exit status: 0 ok", " ".join(out.decode().split()))
        for arguments in (("--version",), ("eval", "--version")):
            status, out, err = run(*arguments)
            self.assertEqual((status, err), (0, ""))
            self.assertRegex(out.decode(), r"^edit-worker \d+\.\d+\.\d+\n$")

    def test_unknown_commands_and_options_are_told(self):
        for arguments, fragment in (((), "expected a command: train, eval, sample or join"),
                                    (("tain",), "'tain' is not a command: train, eval, sample or join"),
                                    (("--loud", "train"), "unrecognized option '--loud'"),
                                    (("eval", "--loud"), "unrecognized option '--loud'")):
            status, out, err = run(*arguments)
            self.assertEqual((status, out), (2, b""))
            self.assertIn(fragment, err)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Real daemons and real workers on loopback: two members train on text, and have incidents that a worker can have."""

import glob
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

BUILD = os.environ.get("BUILD", "build")
CONFIG = {"model_type": "llama", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
          "tie_word_embeddings": True}
PATIENCE_S = 60  # for anything that should take a moment; a sanitizer on a busy machine is slow


def free_ports(count):
    """Ports that nobody listens on right now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_until(condition, what):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("not within %d s: %s" % (PATIENCE_S, what))
        time.sleep(0.02)


class Member:
    """One daemon and the workers that are started for it, one after the other."""

    def __init__(self, test, name, members, interval):
        self.name, self.folder = name, os.path.join(test.folder, name)
        self.test = test
        for part in ("run", "state"):
            os.makedirs(os.path.join(self.folder, part))
        lines = ["[node]", f"name = {name}", "curve = no", "run = test", f"runtime_dir = {self.folder}/run",
                 f"state_dir = {self.folder}/state", "[members]",
                 *(f"{other} = tcp://127.0.0.1:{port}" for other, port in members.items()),
                 "[sync]", f"interval = {interval}"]
        config = self.write("editd.conf", "\n".join(lines) + "\n")
        self.daemon = self.start("editd", "daemon.log", "-c", config)
        self.worker = None

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)
        return os.path.join(self.folder, name)

    def start(self, program, log, *arguments):
        with open(os.path.join(self.folder, log), "ab") as file:
            process = subprocess.Popen([os.path.join(BUILD, program), *arguments], stderr=file, stdout=file)
        self.test.addCleanup(process.wait)
        self.test.addCleanup(process.kill)
        return process

    def train(self, *more, config=None):
        """Starts a worker; options given later win."""
        path = self.write("config.json", json.dumps({**CONFIG, **(config or {})}))
        self.worker = self.start("edit-worker", "worker.log", "train", "--socket", self.folder + "/run/worker.sock",
                                 "--model", path, "--data", self.test.data, "--batch=4", "--context=32", "--threads=1",
                                 "--lr=0.003", "--log-interval=0", "--run=test", *more)

    def log(self, name):
        with open(os.path.join(self.folder, name + ".log"), encoding="utf-8") as file:
            return file.read()

    def step(self):
        """Number of the last step that the worker told of."""
        steps = re.findall(r"step (\d+)/", self.log("worker"))
        return int(steps[-1]) if steps else 0

    def has_checkpoint(self):
        return "checkpoint of round" in self.log("daemon")

    def checkpoint(self):
        """Newest checkpoint folder."""
        return max(glob.glob(self.folder + "/state/checkpoints/round-*"))


class Training(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.data = os.path.join(self.folder, "text")
        draw = random.Random(3)
        words = "the ring of nodes takes steps and gives its layers to all members of a round".split()
        with open(self.data, "w", encoding="utf-8") as file:
            file.write(" ".join(draw.choice(words) for _ in range(20000)))

    def members(self, count=2, interval=5):
        ports = dict(zip("abcdefgh"[:count], free_ports(count)))
        return [Member(self, name, ports, interval) for name in ports]

    def finish(self, members):
        """Both workers end well, and both daemons write the same model. Returns its loss on the data."""
        for member in members:
            self.assertEqual(member.worker.wait(PATIENCE_S), 0, member.log("worker"))
            wait_until(member.has_checkpoint, "a checkpoint at the end")
        models = []
        for member in members:
            with open(member.checkpoint() + "/model.safetensors", "rb") as file:
                models.append(file.read())
        self.assertEqual(models[1:], models[:1] * (len(models) - 1))
        command = [os.path.join(BUILD, "edit-worker"), "eval", "--model", members[0].checkpoint(), "--data", self.data]
        done = subprocess.run([*command, "--json", "--threads=1"], stdout=subprocess.PIPE, check=True,
                              timeout=PATIENCE_S)
        return json.loads(done.stdout)["loss"]

    def test_two_members_learn_and_end_with_one_model(self):
        members = self.members()
        for member in members:
            member.train("--steps=60")
        loss = self.finish(members)
        self.assertLess(loss, 3.0)  # nats per byte; untrained: ln 256 = 5.5, the letters' entropy: 2.8
        for member in members:
            self.assertNotIn("left out (", member.log("daemon"))
            self.assertRegex(member.log("worker"), r"finished after step 60, peak memory \d+\.\d MiB")

    def test_worker_without_standard_streams_trains_and_tells_nobody(self):
        # Its lines would else go into the daemon's socket or the segment, whichever got the number of standard error.
        member = self.members(1)[0]
        path = member.write("config.json", json.dumps(CONFIG))
        command = [os.path.join(BUILD, "edit-worker"), "train", "--socket", member.folder + "/run/worker.sock", "--model", path,
                   "--data", self.data, "--batch=4", "--context=32", "--threads=1", "--steps=30", "--log-interval=0", "--run=test"]
        done = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0)
        wait_until(member.has_checkpoint, "a checkpoint at the end")
        self.assertNotIn("is gone (", member.log("daemon"))

    def test_killed_worker_goes_on_where_it_was(self):
        members = self.members()
        for member in members:
            member.train("--steps=200")
        wait_until(lambda: members[0].step() >= 20, "20 steps")
        members[0].worker.kill()
        members[0].worker.wait()
        died = members[0].step()
        self.assertLess(died, 200)
        wait_until(lambda: "is gone" in members[0].log("daemon"), "the daemon says that its worker is gone")
        members[0].train("--steps=200")
        self.finish(members)
        begun = int(re.search(r"goes on at step (\d+)", members[0].log("worker"))[1])
        self.assertGreaterEqual(begun, died)
        self.assertLess(begun, 200)

    def test_run_that_is_stopped_and_resumed_is_the_same_to_the_bit(self):
        straight, stopped = (Member(self, name, {name: free_ports(1)[0]}, 5) for name in "ab")
        for member in (straight, stopped):
            member.train("--steps=200", "--accumulate=2")
        for begin in (20, 60):  # in the middle of whatever it is doing
            wait_until(lambda first=begin: stopped.step() >= first, "some steps")
            stopped.worker.send_signal(signal.SIGTERM)
            self.assertEqual(stopped.worker.wait(PATIENCE_S), 0)
            self.assertIn("stopped by a signal", stopped.log("worker"))
            stopped.train("--steps=200", "--accumulate=2")
        self.finish([straight, stopped])  # compares the models

    def test_signal_ends_a_worker_cleanly_even_while_it_waits(self):
        members = self.members()
        for member in members:
            member.train("--steps=100000")
        wait_until(lambda: members[0].step() >= 10, "10 steps")
        for number, member in ((signal.SIGTERM, members[0]), (signal.SIGINT, members[1])):
            # The second one waits for a round that the first has left.
            member.worker.send_signal(number)
            self.assertEqual(member.worker.wait(10), 0)
            self.assertIn("stopped by a signal after step", member.log("worker"))

    def test_nan_is_left_out_and_the_run_goes_on(self):
        members = self.members()
        members[0].train("--steps=60")
        members[1].train("--steps=60", "--drill=nan@22")
        loss = self.finish(members)
        self.assertLess(loss, 3.0)
        for member in members:
            self.assertRegex(member.log("daemon"), r"round 5, layer 2: peer b left out \(nonfinite")
            self.assertEqual(member.log("daemon").count("left out ("), 1)
        told = members[1].log("worker")
        self.assertIn("step 23: the gradient is not finite, no step is taken (loss nan)", told)
        self.assertIn("block 1: was not finite and left out of round 5, begins anew from the anchor", told)

    def test_slow_and_scaled_steps_can_be_rehearsed(self):
        members = self.members()
        members[0].train("--steps=200")
        members[1].train("--steps=200", "--drill=scale@131x300+5", "--drill=slow@150x20+2")
        self.finish(members)
        self.assertEqual(members[1].log("worker").count("moves 300 times as far"), 5)
        self.assertRegex(members[0].log("daemon"), r"round 27, layer \d: peer b left out \(outlier")

    def test_weights_of_a_folder_are_the_beginning(self):
        members = self.members(count=1)
        members[0].train("--steps=40")
        loss = self.finish(members)
        first = members[0].checkpoint()
        members = [Member(self, "g", {"g": free_ports(1)[0]}, 5)]
        members[0].train("--steps=5", "--lr=0", "--model", first)
        self.assertAlmostEqual(self.finish(members), loss, places=5)

    def test_members_with_different_models_are_told_the_first_difference(self):
        members = self.members()
        members[0].train("--steps=60")
        members[1].train("--steps=60", config={"intermediate_size": 64})
        wait_until(lambda: re.search(r"refused.*intermediate_size", members[0].log("daemon")), "the key in a refusal")
        self.assertLessEqual(max(member.step() for member in members), 5)  # no round comes about


if __name__ == "__main__":
    unittest.main()

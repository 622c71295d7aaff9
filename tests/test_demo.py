#!/usr/bin/env python3
"""The demonstration leaves no process behind, however it ends, and says why it failed in its last line."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from processes import processes_with

BUILD = os.environ.get("BUILD", "build")
DEMO = [str(pathlib.Path(__file__).parent / "demo.py"), "--build", BUILD]
SLOW = 8 if "san-" in BUILD else 1


class Demo(unittest.TestCase):
    def setUp(self):
        # Fortunes of our own: the test must not depend on what is installed.
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "corpus").mkdir()
        lines = "".join(f"Fortune number {i} is {i * i % 977} words long.\n%\n" for i in range(4000))
        (self.folder / "corpus" / "numbers").write_text(lines)

    def start(self, *options):
        """A demonstration in a folder of its own; what it started is found by that folder's name."""
        return subprocess.Popen([*DEMO, "--out", self.folder / "out", "--corpus", self.folder / "corpus", *options],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def wait_for(self, condition):
        """Until condition() is true."""
        end = time.monotonic() + 20 * SLOW
        while not condition():
            self.assertLess(time.monotonic(), end, "not in time")
            time.sleep(0.05)

    def own(self):
        """Running processes of this demonstration, but not itself."""
        return [line for line in processes_with(str(self.folder)) if "demo.py" not in line]

    def end_by(self, number, *options, processes=10):
        """Sends a signal while all eight processes and both watches run (a mesh has one more); returns (exit status, last line)."""
        demo = self.start("--steps", "100000", *options)
        self.wait_for(lambda: len(self.own()) >= processes)
        demo.send_signal(number)
        output = demo.communicate()[0]
        self.wait_for(lambda: not self.own())
        return demo.returncode, output.strip().splitlines()[-1]

    def test_interrupt_stops_all(self):
        self.assertEqual(self.end_by(signal.SIGINT), (1, "demo: FAILED stopped by SIGINT"))

    def test_termination_stops_all(self):
        self.assertEqual(self.end_by(signal.SIGTERM), (1, "demo: FAILED stopped by SIGTERM"))

    def test_death_stops_all(self):
        self.assertEqual(self.end_by(signal.SIGKILL)[0], -signal.SIGKILL)

    def test_death_of_a_worker_fails_the_run_and_stops_all(self):
        demo = self.start("--steps", "100000")
        self.wait_for(lambda: len(self.own()) >= 10)
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            words = path.read_bytes().decode(errors="replace").split("\0") if path.exists() else []
            if words[0].endswith("edit-worker") and f"{self.folder}/out/node-b/run/worker.sock" in words:
                os.kill(int(path.parent.name), signal.SIGKILL)
        last = demo.communicate()[0].strip().splitlines()[-1]
        self.assertEqual(demo.returncode, 1)
        self.assertTrue(last.startswith("demo: FAILED edit-worker of node-b was killed by SIGKILL"), last)
        self.assertEqual(self.own(), [])

    def test_mesh_trains_joins_and_says_ok(self):
        demo = self.start("--mesh", "2x2", "--steps", "40")
        output = demo.communicate()[0]
        self.assertEqual(demo.returncode, 0, output)
        self.assertIn("node-a+node-b, node-c+node-d: each row is a replica", output)
        for column in ("column 0 (node-a, node-c)", "column 1 (node-b, node-d)"):
            self.assertIn(f"hashes   equal on {column} in all 6 layers", output)
        self.assertRegex(output.splitlines()[-1], "^demo: ok [(]all 4 nodes, [0-9]+ rounds, .*equal and new after every round")
        self.assertEqual(self.own(), [])

    def test_interrupt_stops_a_mesh(self):
        self.assertEqual(self.end_by(signal.SIGINT, "--mesh", "2x2", processes=11), (1, "demo: FAILED stopped by SIGINT"))

    def test_mesh_that_cannot_be_is_told_in_one_line(self):
        for mesh in ("0x2", "2", "axb", "2x2x2", "6x5", "", "-1x2"):
            demo = self.start(f"--mesh={mesh}")
            self.assertEqual(demo.communicate()[0], f'demo: --mesh: "{mesh}", expected NxM as in 2x2: N replicas of M nodes each, '
                                                    f'1 to 26 nodes in all\n')
            self.assertEqual(demo.returncode, 2)
        demo = self.start("--mesh=2x2", "--nodes=4")
        self.assertEqual((demo.communicate()[0], demo.returncode), ("demo: --mesh and --nodes: one of them only\n", 2))

    def test_no_fortunes_fail_at_once(self):
        (self.folder / "corpus" / "numbers").unlink()
        demo = self.start()
        self.assertEqual(demo.communicate()[0].strip(),
                         f"demo: FAILED no fortunes in {self.folder}/corpus (apt install fortunes fortunes-min)")
        self.assertEqual(demo.returncode, 1)

    def test_held_out_loss_above_the_limit_fails(self):
        demo = self.start("--nodes", "2", "--steps", "40", "--lr", "1e-5")
        output = demo.communicate()[0]
        last = output.strip().splitlines()[-1]
        self.assertEqual(demo.returncode, 1, output)
        self.assertRegex(last, r"^demo: FAILED held-out loss [0-9.]+ is not below 2\.5$")
        self.assertTrue((self.folder / "out" / "loss.svg").stat().st_size > 1000)
        self.assertEqual(self.own(), [])


if __name__ == "__main__":
    unittest.main()

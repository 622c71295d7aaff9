#!/usr/bin/env python3
"""experiments/real.py leaves no namespace and no process behind when it is interrupted, and says in one line what it lacks."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from processes import processes_with

BUILD = os.environ.get("BUILD", "build")
REAL = [sys.executable, str(pathlib.Path(__file__).parent.parent / "experiments" / "real.py"), "E6", "--build", BUILD]
CAN_RUN = os.geteuid() == 0 and shutil.which("ip") and shutil.which("tc") and \
    subprocess.run(["unshare", "--net", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0
PATIENCE_S = 60


def namespaces_of(pid):
    """Network namespaces that the program with that pid has made."""
    listed = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if line.startswith(f"editd-{pid}-")]


def processes_in(folder):
    """Command lines of running processes that hold the folder's name, but for the experiment itself."""
    return [line for line in processes_with(folder) if "real.py" not in line]


class Real(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="editd-test-real-")
        self.addCleanup(shutil.rmtree, self.folder)

    def test_what_is_missing_is_said_in_one_line(self):
        done = subprocess.run([*REAL, "--out", self.folder], env={"PATH": self.folder}, capture_output=True, text=True,
                              check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"^real: needs .*ip and tc\n$")

    @unittest.skipUnless(CAN_RUN, "needs root, ip and tc")
    def test_nothing_is_left_after_an_interrupt(self):
        real = subprocess.Popen([*REAL, "--out", self.folder], env=dict(os.environ, TMPDIR=self.folder), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
        try:
            end = time.monotonic() + PATIENCE_S
            while len(processes_in(self.folder)) < 8:  # four daemons, four workers
                self.assertIsNone(real.poll(), "it ended by itself")
                self.assertLess(time.monotonic(), end, "not in time")
                time.sleep(0.05)
            self.assertEqual(len(namespaces_of(real.pid)), 4)
            real.send_signal(signal.SIGINT)
            error = real.communicate(timeout=PATIENCE_S)[1]
        finally:
            real.kill()
        self.assertEqual(error.splitlines()[-1], "real: stopped by SIGINT")
        self.assertEqual(real.returncode, 1)
        self.assertEqual(namespaces_of(real.pid), [])
        self.assertEqual(processes_in(self.folder), [])
        self.assertEqual([path.name for path in pathlib.Path(self.folder).iterdir() if path.name.startswith("editd-")], [])


if __name__ == "__main__":
    unittest.main()

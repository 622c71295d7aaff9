#!/usr/bin/env python3
"""What `make install` puts down is complete: units that systemd accepts, a library that others can link."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

FILES = """bin/editd bin/edit-worker bin/editctl bin/edit-sim include/edit_worker.h lib/libedit-worker.so.0
lib/sysusers.d/editd.conf lib/tmpfiles.d/editd.conf share/doc/editd/README.md share/doc/editd/LICENSE
share/doc/editd/design.md share/doc/editd/protocol.md share/doc/editd/style.md share/doc/editd/worker.md
share/doc/editd/examples/editd.conf share/doc/editd/examples/editd-worker""".split()
UNITS = ["editd.service", "editd@.service", "editd-worker.service", "editd-worker@.service"]

WORKER = """#include <edit_worker.h>
int main(void)
{
	struct edit_worker *worker = edit_worker_new("/nowhere/worker.sock");
	int error = edit_worker_attach(worker, 0);
	edit_worker_free(worker);
	return error < 0 ? 0 : 1;
}
"""


def run(*command, **options):
    """(exit status, output) of a command."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    return done.returncode, done.stdout


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp()
        cls.prefix = os.path.join(cls.root, "usr")
        cls.addClassCleanup(shutil.rmtree, cls.root)
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        status, output = run("make", "install", "B=" + os.environ.get("BUILD", "build"), "PREFIX=" + cls.prefix,
                             "SYSCONFDIR=" + os.path.join(cls.root, "etc"), env=plain)
        if status:
            raise AssertionError(output)

    def in_prefix(self, path):
        return os.path.join(self.prefix, path)

    def test_everything_is_there(self):
        units = ["lib/systemd/system/" + unit for unit in UNITS]
        self.assertEqual([path for path in FILES + units if not os.path.isfile(self.in_prefix(path))], [])
        self.assertEqual(os.readlink(self.in_prefix("lib/libedit-worker.so")), "libedit-worker.so.0")

    def unit(self, name):
        with open(self.in_prefix("lib/systemd/system/" + name), encoding="utf-8") as file:
            return file.read()

    def test_units_name_the_programs_of_the_prefix(self):
        for unit in UNITS:
            self.assertNotRegex(self.unit(unit), "@[A-Z]+@")
            self.assertIn(f"ExecStart={self.prefix}/bin/edit", self.unit(unit))

    def test_daemon_is_watched_and_the_worker_outlives_it(self):
        for line in ("Type=notify", "WatchdogSec=30", "RuntimeDirectoryPreserve=yes", "Restart=on-failure"):
            self.assertIn(f"\n{line}\n", self.unit("editd.service"))
        for unit, daemon in (("editd-worker.service", "editd.service"), ("editd-worker@.service", "editd@%i.service")):
            for key in ("Wants", "After"):
                self.assertIn(f"\n{key}={daemon}\n", self.unit(unit))
            self.assertNotRegex(self.unit(unit), "(BindsTo|Requires|Requisite|PartOf)=")

    def test_units_run_nothing_that_a_small_debian_lacks(self):
        """`kill`, for instance, is a program of a package that need not be there."""
        for unit in UNITS:
            for program in re.findall(r"^Exec\w+=(\S+)", self.unit(unit), re.M):
                self.assertTrue(program == "/bin/sh" or program.startswith(self.prefix), (unit, program))

    def test_staging_folder_leaves_no_trace(self):
        stage = os.path.join(self.root, "stage")
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        status, output = run("make", "install", "B=" + os.environ.get("BUILD", "build"), "DESTDIR=" + stage, "PREFIX=/usr",
                             "SYSCONFDIR=/etc", env=plain)
        self.assertEqual(status, 0, output)
        self.assertEqual(sorted(os.listdir(stage)), ["etc", "usr"])
        for unit in UNITS:
            with open(os.path.join(stage, "usr/lib/systemd/system", unit), encoding="utf-8") as file:
                text = file.read()
            self.assertIn("ExecStart=/usr/bin/edit", text)
            self.assertNotIn(stage, text)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_accepts_the_units(self):
        paths = [self.in_prefix("lib/systemd/system/" + unit) for unit in UNITS]
        self.assertEqual(run("systemd-analyze", "verify", "--man=no", *paths), (0, ""))

    def test_every_program_tells_its_version(self):
        for program in ("editd", "edit-worker", "editctl", "edit-sim"):
            self.assertEqual(run(self.in_prefix("bin/" + program), "--version"), (0, program + " 0.1.0\n"))

    def test_another_program_links_the_library(self):
        source, program = os.path.join(self.root, "worker.c"), os.path.join(self.root, "worker")
        with open(source, "w", encoding="utf-8") as file:
            file.write(WORKER)
        flags = os.environ.get("SANFLAGS", "").split()
        status, output = run("cc", *flags, "-I" + self.in_prefix("include"), source, "-L" + self.in_prefix("lib"),
                             "-ledit-worker", "-o", program)
        self.assertEqual((status, output), (0, ""))
        self.assertEqual(run(program, env={**os.environ, "LD_LIBRARY_PATH": self.in_prefix("lib")}), (0, ""))

    def test_library_shows_its_interface_only(self):
        _, output = run("nm", "-D", "--defined-only", self.in_prefix("lib/libedit-worker.so"))
        names = [line.split()[-1] for line in output.strip().split("\n")]
        self.assertEqual([name for name in names if not name.startswith("edit_worker_")], [])
        self.assertIn("edit_worker_attach", names)

    def check_with_keys(self, name, text):
        """Whether a config of members a, b and c is right on a, once each has keys and before."""
        keys, path = os.path.join(self.root, name + ".keys"), os.path.join(self.root, name + ".conf")
        os.mkdir(path + ".d")
        for file, content in ((path, text), (path + ".d/keys.conf", f"[node]\nkeys = {keys}\n")):
            with open(file, "w", encoding="utf-8") as opened:
                opened.write(content)
        check = (self.in_prefix("bin/editd"), "--check-config", "--config", path)
        status, line = run(*check)
        self.assertEqual(status, 2)
        self.assertIn("leaves this host unencrypted; make keys (`editctl keygen`)", line)
        for member in "abc":
            folder = keys if member == "a" else os.path.join(self.root, name + member)
            self.assertEqual(run(self.in_prefix("bin/editctl"), "keygen", member, "--out", folder)[0], 0)
            if member != "a":
                shutil.copy(os.path.join(folder, member + ".pub"), keys)
        self.assertEqual(run(*check), (0, "config ok\n"))

    def test_example_of_a_config_is_valid(self):
        with open(self.in_prefix("share/doc/editd/examples/editd.conf"), encoding="utf-8") as file:
            self.check_with_keys("example", file.read())

    def test_config_that_the_readme_shows_is_valid(self):
        with open(self.in_prefix("share/doc/editd/README.md"), encoding="utf-8") as file:
            self.check_with_keys("shown", re.search(r"```ini\n(.*?)```", file.read(), re.S)[1])


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""./bootstrap with apt-get, dpkg-query, id, sudo and make replaced by scripts that tell how they were called."""

import os
import re
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOOLS = ["sh", "sed", "tr", "cat", "rm", "mktemp", "dirname", "env"]


def build_depends():
    """Package names of debian/control, read in another way than bootstrap does."""
    with open(os.path.join(HERE, "debian/control"), encoding="utf-8") as file:
        field = re.search(r"^Build-Depends:((?:.|\n )*)", file.read(), re.M)[1]
    return [re.match(r"[a-z0-9.+-]+", entry.strip())[0] for entry in field.split(",") if entry.strip()]


@unittest.skipUnless("VERSION_ID=\"12\"" in open("/etc/os-release", encoding="utf-8").read(), "not Debian 12")
class Bootstrap(unittest.TestCase):
    def run_bootstrap(self, *targets, missing=(), user=0, has_sudo=False, apt_fails=False):
        """(exit status, output, calls of apt-get and make) on a machine where all but `missing` is installed."""
        with tempfile.TemporaryDirectory() as folder:
            calls = os.path.join(folder, "calls")

            def script(name, text):
                path = os.path.join(folder, name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write("#!/bin/sh\n" + text + "\n")
                os.chmod(path, 0o755)

            for tool in TOOLS:
                os.symlink(f"/usr/bin/{tool}", os.path.join(folder, tool))
            absent = "|".join(missing) or "none-is-missing"
            script("dpkg-query", f'for last; do :; done; case $last in {absent}) exit 1;; esac; echo installed')
            script("apt-get", f'echo "apt-get $*" >>{calls}; echo "apt speaks"; exit {100 if apt_fails else 0}')
            script("make", f'echo "make $*" >>{calls}')
            script("id", f"echo {user}")
            script("nproc", "echo 3")
            if has_sudo:
                script("sudo", f'echo "sudo $*" >>{calls}; exec "$@"')
            done = subprocess.run([os.path.join(HERE, "bootstrap"), *targets], env={"PATH": folder, "HOME": folder},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            try:
                with open(calls, encoding="utf-8") as file:
                    return done.returncode, done.stdout, file.read().splitlines()
            except FileNotFoundError:
                return done.returncode, done.stdout, []

    def test_nothing_missing_goes_straight_to_make(self):
        self.assertEqual(self.run_bootstrap("check", "demo", user=1000), (0, "", ["make -j3 check demo"]))

    def test_only_what_is_missing_is_installed(self):
        status, output, calls = self.run_bootstrap("check", missing=["make", "gnuplot-nox"])
        self.assertEqual((status, output), (0, "bootstrap: installing make gnuplot-nox\n"))
        self.assertEqual(calls, ["apt-get --quiet update",
                                 "apt-get --quiet install --yes --no-install-recommends make gnuplot-nox",
                                 "make -j3 check"])

    def test_every_package_of_the_list_is_asked_for(self):
        packages = build_depends()
        self.assertGreater(len(packages), 10)
        output = self.run_bootstrap("check", missing=packages)[1]
        self.assertEqual(output, "bootstrap: installing " + " ".join(packages) + "\n")

    def test_user_with_sudo_uses_it_for_apt_only(self):
        calls = self.run_bootstrap("check", missing=["make"], user=1000, has_sudo=True)[2]
        self.assertEqual([call for call in calls if call.startswith("sudo") and "apt-get" not in call], [])
        self.assertEqual(len([call for call in calls if call.startswith("sudo")]), 2)

    def test_user_without_sudo_is_told_what_is_missing(self):
        self.assertEqual(self.run_bootstrap("check", missing=["make"], user=1000),
                         (1, "bootstrap: needs root or sudo to install: make\n", []))

    def test_failing_apt_shows_its_output(self):
        status, output, calls = self.run_bootstrap("check", missing=["make"], apt_fails=True)
        self.assertEqual((status, output), (1, "bootstrap: installing make\napt speaks\nbootstrap: apt-get update failed\n"))
        self.assertEqual(calls, ["apt-get --quiet update"])

    def test_no_target_is_a_usage_error(self):
        status, output, calls = self.run_bootstrap()
        self.assertEqual((status, calls), (2, []))
        self.assertIn("usage: ./bootstrap TARGET", output)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""What `make check` says at its end is what the tests have said."""

import pathlib
import subprocess
import tempfile
import time
import unittest

TESTS = pathlib.Path(__file__).parent

PASSING = {"cmocka": "echo '[  PASSED  ] 12 test(s).'", "unittest": "echo 'Ran 7 tests in 0.1s'", "pytest": "echo '5 passed, 1 skipped in 2s'",
           "silent": "true"}


class Verdict(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_test(self, name, command):
        return subprocess.run([TESTS / "run", name, self.folder / f"{name}.log", "sh", "-c", command], stdout=subprocess.PIPE, text=True,
                              check=False)

    def verdict(self, *names, status=0, age_s=0):
        done = subprocess.run([TESTS / "verdict", str(status), str(int(time.time()) - age_s), self.folder, *names],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout

    def test_programs_and_tests_that_passed_are_counted(self):
        for name, command in PASSING.items():
            self.assertEqual(self.run_test(name, command).returncode, 0)
        status, text = self.verdict(*PASSING, age_s=1000)
        self.assertEqual(status, 0)
        self.assertRegex(text, r"^check: ok, 4 programs, 24 tests, 100[0-9] s\n$")

    def test_those_that_failed_or_never_ran_are_named(self):
        self.run_test("good", PASSING["cmocka"])
        self.assertEqual(self.run_test("bad", "echo '[  PASSED  ] 3 test(s).'; exit 1").returncode, 1)
        self.assertEqual(self.verdict("good", "bad", "unbuilt", status=2), (1, "check: FAILED: bad unbuilt\n"))

    def test_one_that_passed_before_and_fails_now_has_failed(self):
        self.run_test("fickle", "true")
        self.run_test("fickle", "false")
        self.assertEqual(self.verdict("fickle"), (1, "check: FAILED: fickle\n"))

    def test_failure_of_something_else_is_not_ok(self):
        self.run_test("good", "true")
        self.assertEqual(self.verdict("good", status=2), (1, "check: FAILED: make ended with status 2\n"))


if __name__ == "__main__":
    unittest.main()

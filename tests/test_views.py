#!/usr/bin/env python3
"""The rules by which members decide the next view, model-checked: tests/views.pml, all states, with and without planted faults."""

import os
import re
import subprocess
import tempfile
import unittest

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "views.pml")


def search(*defines):
    """Whether an error was found, whether all states were searched, and how many states there are."""
    with tempfile.TemporaryDirectory() as folder:
        def run(*words, status=0):
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
            if done.returncode != status:
                raise AssertionError(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
            return done.stdout

        run("spin", "-a", *defines, MODEL)
        run("gcc", "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=1024", "-o", "pan", "pan.c")
        text = run("./pan", "-m100000")
        errors = int(re.search(r"errors: (\d+)", text)[1])
        is_whole = not re.search(r"max search depth too small|Search not completed|out of memory", text)
        return errors, is_whole, int(float(re.search(r"([\d.e+]+) states, stored", text)[1]))


class Views(unittest.TestCase):
    def assert_right(self, least_states, *defines):
        errors, is_whole, states = search(*defines)
        self.assertEqual(errors, 0)
        self.assertTrue(is_whole)
        self.assertGreater(states, least_states)

    def assert_found(self, *defines):
        errors, _, states = search(*defines)
        self.assertEqual(errors, 1)
        self.assertGreater(states, 10)

    def test_three_members_and_three_ballots_choose_one_value(self):
        self.assert_right(100000)

    def test_four_members_and_a_tie_holder_choose_one_value(self):
        self.assert_right(30000, "-DMEMBERS=4", "-DBALLOTS=3")

    def test_promise_that_a_death_wipes_out_is_found(self):
        self.assert_found("-DFAULT_MEMORY")

    def test_tie_without_a_holder_is_found(self):
        self.assert_found("-DMEMBERS=4", "-DBALLOTS=3", "-DFAULT_TIE")

    def test_value_that_is_not_adopted_is_found(self):
        self.assert_found("-DFAULT_ADOPT")

    def test_vote_below_a_promise_is_found(self):
        self.assert_found("-DFAULT_LOW")


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""edit-sim as a program: one line, the same on every run; a clear line and status 2 for what cannot be."""

import os
import re
import subprocess
import sys

SIM = os.path.join(os.environ.get("BUILD", "build"), "edit-sim")


def run(*arguments):
    done = subprocess.run([SIM, *arguments], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def check(condition, what):
    if not condition:
        sys.exit(f"test_edit_sim: {what}")


def same_seed_prints_the_same_line():
    arguments = ("--seed", "11", "--peers", "5", "--layers", "3", "--rounds", "6", "--faults", "loss,reorder,change")
    first, second = run(*arguments), run(*arguments)
    check(first == second, f"two runs differ: {first} {second}")
    check(re.fullmatch(r"sim: ok seed=11 peers=5 layers=3 rounds=6 events=\d+ time=[\d.]+ hash=[0-9a-f]{16}\n", first[1]),
          f"not the line that was expected: {first}")
    check(first[0] == 0 and first[2] == "", f"status or standard error: {first}")


def another_seed_has_another_hash():
    lines = {run("--seed", str(seed), "--peers", "3", "--faults", "none")[1].split("hash=")[1] for seed in range(5)}
    check(len(lines) == 5, "five seeds give fewer hashes")


def trace_goes_to_standard_error_and_changes_nothing():
    plain, traced = run("--seed", "3", "--peers", "2"), run("--seed", "3", "--peers", "2", "--trace")
    check(plain[1] == traced[1], "the trace changes the run")
    check("reduce" in traced[2] and "publish" in traced[2] and "hello" in traced[2], "the trace lacks events")


def many_seeds_print_a_summary():
    status, out, _ = run("--seeds", "5-24")
    check(status == 0 and out.rstrip().split("\n")[-1].startswith("sim: ok seeds=5-24 "), f"summary: {out}")
    check("outliers" in out and "crashes" in out, "the summary lacks coverage")


def bad_arguments_get_one_line_and_status_2():
    for arguments, words in [(("--peers", "0"), "--peers 0"), (("--peers", "1025"), "1 to 1024"), (("--layers", "x"), "--layers x"),
                             (("--rounds", "-1"), "--rounds -1"), (("--faults", "loss,flood"), "flood"),
                             (("--seeds", "9-3"), "from 9 to"), (("--seed", ""), "--seed"), (("stray",), "stray")]:
        status, out, error = run(*arguments)
        check(status == 2 and out == "", f"{arguments}: status {status}, output {out!r}")
        check(words in error and error.count("\n") == 1, f"{arguments}: {error!r}")


if __name__ == "__main__":
    for test in (same_seed_prints_the_same_line, another_seed_has_another_hash, many_seeds_print_a_summary,
                 trace_goes_to_standard_error_and_changes_nothing, bad_arguments_get_one_line_and_status_2):
        test()
    print("test_edit_sim: ok")

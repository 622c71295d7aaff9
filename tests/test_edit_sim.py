#!/usr/bin/env python3
"""edit-sim as a program: one line, the same on every run; a clear line and status 2 for what cannot be."""

import os
import re
import subprocess
import sys

SIM = os.path.join(os.environ.get("BUILD", "build"), "edit-sim")


def run(*arguments):
    done = subprocess.run([SIM, *arguments], capture_output=True, text=True, timeout=float(os.environ.get("LIMIT", 600)))
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


def members_change_in_every_way_there_is():
    """A third of what is usual: what hardly ever happens proves little."""
    least = {"views entered": 2200, "falls": 240, "back intact": 65, "back torn": 55, "joins": 110, "leaves": 18, "layers healed": 480,
             "layers redone": 2, "workers live on": 60, "memory lives on": 22, "offered again": 28, "counted again": 18,
             "offers void": 10, "steps refused": 7, "cut in scalars": 280, "cut in reduce": 65, "cut in gather": 115, "cut in standing": 1100,
             "cut in heal": 200}
    status, out, error = run("--seeds", "250", "--faults", "views,loss,jitter,slow,nan,poison,change,death,cut")
    check(status == 0 and error == "", f"status {status}: {out.split(chr(10))[0]} {error}")
    counts = {name: int(count) for name, count in re.findall(r"^  (\S.*?) +(\d+)$", out, re.MULTILINE)}
    for name, minimum in least.items():
        check(counts.get(name, 0) >= minimum, f"{name}: {counts.get(name)}, at least {minimum} expected")


def mesh_runs_without_views():
    """The members of a mesh stay."""
    faults = "loss,reorder,change,nan"
    mesh = ("--seed", "8", "--peers", "3", "--shards", "2", "--faults")
    check(run(*mesh, faults) == run(*mesh, faults + ",views"), "a mesh runs otherwise when views are asked for")


def bad_arguments_get_one_line_and_status_2():
    for arguments, words in [(("--peers", "0"), "--peers 0"), (("--peers", "1025"), "1 to 1024"), (("--layers", "x"), "--layers x"),
                             (("--rounds", "-1"), "--rounds -1"), (("--faults", "loss,flood"), "flood"),
                             (("--seeds", "9-3"), "from 9 to"), (("--seed", ""), "--seed"), (("stray",), "stray")]:
        status, out, error = run(*arguments)
        check(status == 2 and out == "", f"{arguments}: status {status}, output {out!r}")
        check(words in error and error.count("\n") == 1, f"{arguments}: {error!r}")


if __name__ == "__main__":
    for test in (same_seed_prints_the_same_line, another_seed_has_another_hash, many_seeds_print_a_summary,
                 members_change_in_every_way_there_is, mesh_runs_without_views,
                 trace_goes_to_standard_error_and_changes_nothing, bad_arguments_get_one_line_and_status_2):
        test()
    print("test_edit_sim: ok")

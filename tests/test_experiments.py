#!/usr/bin/env python3
"""The experiments in their small version: all methods run and learn, runs that were made are not made again, and what is missing is
told in one line."""

import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("BUILD", "build")
METHODS = {"ddp", "edit", "a-edit", "diloco", "co2", "local-sgd", "one node"}
UNTRAINED = 5.545  # nats per byte of 256 equally likely ones


def run(folder, *arguments):
    done = subprocess.run([os.path.join(HERE, "experiments/virtual.py"), "--size", "small", "--build", BUILD, "--out", folder, *arguments],
                          capture_output=True, text=True, timeout=1200)
    return done.returncode, done.stdout, done.stderr


def check(condition, what):
    if not condition:
        sys.exit(f"test_experiments: {what}")


def rows(text):
    """The cells of every row of a table, by its first cell."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    return {cells[0]: cells[1:] for cells in lines}


def every_method_learns_and_no_run_is_made_twice(folder):
    status, out, error = run(folder, "E1")
    check(status == 0, f"status {status}: {error}")
    table = rows(out)
    losses = {name: float(table[name][1].split()[0]) for name in METHODS}
    check(all(1 < loss < 0.9 * UNTRAINED for loss in losses.values()), f"losses {losses}")
    check(abs(losses["ddp"] / losses["one node"] - 1) < 0.02, f"ddp is not one node with the whole batch: {losses}")
    check(re.search(r"^experiments: ok \(21 runs made, \d+ s\)$", out, re.M), f"the last line: {out[-200:]}")
    status, again, _ = run(folder, "E1")
    check(status == 0 and "(0 runs made," in again, "runs are made a second time")
    check(rows(again) == table, "another table for the same runs")


def damage_is_told_apart(folder):
    status, out, error = run(folder, "E3")
    check(status == 0, f"status {status}: {error}")
    table = rows(out)
    check({"full penalty", "none", "diloco"} <= set(table), f"rows {list(table)}")
    check(all(float(cells[0]) < UNTRAINED for cells in table.values() if cells[0] != "loss"), f"losses {table}")


def stages_go_on_from_each_other(folder):
    status, out, error = run(folder, "E5")
    check(status == 0, f"status {status}: {error}")
    up, down = (rows(part) for part in out.split("### E5")[1:])
    for table in (up, down):
        for method in ("edit", "ddp", "local-sgd"):
            losses = [float(cell) for cell in table[method][1:]]
            check(len(losses) == 4 and losses[3] < losses[0] < 0.9 * UNTRAINED, f"{method}: {losses}")
    status, _, error = run(folder, "E5")
    check(status == 0 and error == "", f"runs are made a second time: {error}")


def missing_sentencepiece_gets_one_line(folder):
    for size, chosen in (("bpe", []), ("full", ["E2", "E1"])):
        done = subprocess.run([sys.executable, os.path.join(HERE, "experiments/virtual.py"), "--size", size, "--out",
                               os.path.join(folder, "none"), *chosen],
                              capture_output=True, text=True, env={**os.environ, "PATH": folder}, timeout=60)
        check(done.returncode == 1 and done.stdout == "", f"{size}: status {done.returncode}, output {done.stdout!r}")
        check(done.stderr == "spm_train: not there; install sentencepiece\n", f"{size}: {done.stderr!r}")
    check(not os.path.exists(os.path.join(folder, "none")), "something was begun without sentencepiece")


def missing_text_gets_one_line(folder):
    status, out, error = run(os.path.join(folder, "none"), "--dictionaries", folder, "E1")
    check(status == 1 and out == "", f"status {status}, output {out!r}")
    check(error == f"{folder}/gcide.dict.dz: not there; install dict-gcide\n", f"error {error!r}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        every_method_learns_and_no_run_is_made_twice(folder)
        damage_is_told_apart(folder)
        stages_go_on_from_each_other(folder)
        missing_sentencepiece_gets_one_line(folder)
        missing_text_gets_one_line(folder)
    print("test_experiments: ok")

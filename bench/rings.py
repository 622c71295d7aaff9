#!/usr/bin/env python3
"""What a round costs in a large ring, flat and as a ring of rings, in virtual time.

    bench/rings.py [--build build] [--latency 5] [--mbit 1000] [--parameters 1e6] [--json FILE] [N ...]

One layer, all nodes equal, the workers wait for the round: so the time that they stand still is the ring's own, the scalars' way
round and the mean's. Groups of sqrt(N) members. Printed beside it: what the line's rate alone would need, 2 (N - 1) / N layers each way.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

INTERVAL = 4   # steps between rounds
SPEED = 4      # steps per second
ROUNDS = 3


def scenario(count, fanout, arguments):
    """The text of an `edit-sim run` file; long enough for ROUNDS of the slowest ring."""
    return (f"[run]\nmethod = diloco\nsync.interval = {INTERVAL}\nsync.prefetch = 64\nseconds = {ROUNDS * INTERVAL / SPEED}\n"
            f"[model]\ntiming = yes\nlayers = 1\nparameters = {arguments.parameters:g}\nscale = 64\n"
            f"[nodes]\ncount = {count}\nspeed = {SPEED}\nlink.latency_ms = {arguments.latency}\nlink.mbit = {arguments.mbit}\n"
            f"ring.fanout = {fanout}\n")


def round_ms(count, fanout, arguments):
    """Virtual milliseconds of a round, from the offer of all to the last commit."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "ring.ini"
        file.write_text(scenario(count, fanout, arguments))
        done = subprocess.run([arguments.build / "edit-sim", "run", "--out", folder + "/out", file], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"edit-sim run: exits with {done.returncode}\n{done.stderr}")
        lines = [json.loads(line) for line in pathlib.Path(folder, "out", "lines.json").read_text().splitlines()]
    waits = [line["exposed_us"] for line in lines if line["event"] == "round" and line["round"] == 2]
    return max(waits) / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"), help="folder of edit-sim")
    parser.add_argument("--latency", type=float, default=5, help="ms, one way (default 5)")
    parser.add_argument("--mbit", type=float, default=1000, help="of a line, each way (default 1000)")
    parser.add_argument("--parameters", type=float, default=1e6, help="of the model (default 1e6)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="the numbers, too")
    parser.add_argument("counts", nargs="*", type=int, metavar="N", default=[4, 16, 64, 256, 1024], help="members (squares)")
    arguments = parser.parse_args()
    rows = []
    for count in arguments.counts:
        fanout = math.isqrt(count)
        if fanout < 2 or fanout * fanout != count:
            parser.error(f"{count}: expected a square of 2 or more")
        line_ms = 1000 * 2 * (count - 1) / count * 32 * arguments.parameters / (arguments.mbit * 1e6)
        rows.append((count, round_ms(count, 0, arguments), fanout, round_ms(count, fanout, arguments), line_ms))
    print(f"A round of {arguments.parameters:g} parameters, lines of {arguments.mbit:g} Mbit/s and {arguments.latency:g} ms\n")
    print("| members | flat ring, ms | groups of | ring of rings, ms | times as fast | the line's rate alone, ms |")
    print("|---|---|---|---|---|---|")
    for count, flat, fanout, rings, line_ms in rows:
        print(f"| {count} | {flat:.0f} | {fanout} | {rings:.0f} | {flat / rings:.1f} | {line_ms:.0f} |")
    if arguments.json:
        arguments.json.write_text(json.dumps([dict(zip(("members", "flat_ms", "fanout", "rings_ms", "line_ms"), row)) for row in rows]))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""That a ring without pieces pays nothing for what was added since an earlier build: hashes, bytes and speed of both.

    bench/plain.py --against BUILD [--build build] [--steps 50] [--pairs 40] [--seeds 200] [--json FILE]

Two nodes on loopback, pinned to a core each, train the same Llama with one build and with the other, A B, B A, and so on.
"""

import argparse
import json
import math
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import time

import namespaces

MODEL = {"model_type": "llama", "hidden_act": "silu", "vocab_size": 256, "hidden_size": 128, "intermediate_size": 352,
         "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 128,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}
TEXT = "what is measured is time; any text will do, but no two lines of it are the same: {}. "
PLAIN_RINGS = ("--shards", "1", "--fanout", "4")  # nothing is drawn for what an edit-sim before the mesh does not know
PATIENCE_S = 3600


def await_workers(ring, workers):
    """Until all have ended well."""
    end = time.monotonic() + PATIENCE_S
    while any(worker.poll() is None for worker in workers):
        ring.check()
        if time.monotonic() > end:
            raise namespaces.Trouble(f"the workers did not end within {PATIENCE_S} s")
        time.sleep(0.25)
    ring.check()


def table(title, names, rows):
    print(f"\n{title}\n\n| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |")


def measure(arguments, build):
    """A run of two nodes: mean tokens per second of both, hashes of the anchor, bytes of the last round, and seconds of
    processor time of all its programs, which tell more than time does where others use the machine too."""
    before_s = processor_s()
    ring = namespaces.Loopback(("a", "b"), build)
    core = dict(zip(("a", "b"), sorted(os.sched_getaffinity(0))))
    try:
        (ring.folder / "config.json").write_text(json.dumps(MODEL))
        (ring.folder / "text").write_text("".join(TEXT.format(i) for i in range(5000)))
        ring.start_daemons({"sync.interval": 10, "checkpoint.at_end": "no"}, core)
        workers = [ring.start_worker(name, "--model", ring.folder, "--data", ring.folder / "text", f"--steps={arguments.steps}",
                                     "--batch=8", "--context=128", "--lr=1e-4", "--threads=1", "--log-interval=100000",
                                     core=core[name]) for name in core]
        await_workers(ring, workers)
        speeds = []
        for name in core:
            words = (ring.folder / f"{name}.edit-worker.log").read_text(encoding="utf-8").split()
            speeds.append(float(words[words.index("tokens/s,") - 1]))
        speed, hashes, sent = statistics.mean(speeds), ring.ask("a", "hash"), ring.ask("a", "status")["round_bytes"]
    finally:
        ring.close()
    return speed, hashes, sent, processor_s() - before_s


def processor_s():
    """Of all programs that were started here and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def anchors(answer):
    """The hashes in an answer of `editctl hash`, and nothing that differs between runs."""
    return sorted(json.dumps(one, sort_keys=True) for one in find_hashes(answer))


def find_hashes(value, path=()):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from find_hashes(inner, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from find_hashes(inner, (*path, i))
    elif "hash" in [str(word).rstrip("es") for word in path]:
        yield [*map(str, path), value]


def simulated(build, seed, *more):
    """The line that `edit-sim` ends with."""
    command = [str(pathlib.Path(build) / "edit-sim"), "--peers", "4", *more, "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    return lines[-1] if done.returncode == 0 and lines else f"exit status {done.returncode}"


def interval(ratios):
    """Median of ratios, and the borders of its confidence interval of at least 95 %: those of its order statistics whose ranks
    the sign test does not reject, whatever the distribution. A run that something else on the machine held up is one of many."""
    ranked, below, rank = sorted(ratios), 0.0, 0
    while True:
        below += math.comb(len(ranked), rank) / 2 ** len(ranked)  # that the median lies below the rank-th of them
        if 2 * below > 0.05:
            break
        rank += 1
    return (statistics.median(ranked), *((ranked[rank - 1], ranked[-rank]) if rank > 0 else (0, math.inf)))


def compare(arguments):
    builds = {"earlier": arguments.against, "this": arguments.build}
    seeds = range(1, arguments.seeds + 1)
    same = sum(simulated(arguments.against, seed) == simulated(arguments.build, seed, *PLAIN_RINGS) for seed in seeds)
    runs = {which: [] for which in builds}
    for turn in range(arguments.pairs):
        for which in builds if turn % 2 == 0 else reversed(builds):  # whatever drifts meets both alike
            runs[which].append(measure(arguments, builds[which]))
    hashes = [anchors(run[1]) for list_ in runs.values() for run in list_]
    is_same = bool(hashes[0]) and all(one == hashes[0] for one in hashes)
    sent = {run[2] for list_ in runs.values() for run in list_}
    pairs = list(zip(runs["earlier"], runs["this"]))
    ratios = [now[0] / before[0] for before, now in pairs]
    processor_ratios = [now[3] / before[3] for before, now in pairs]
    median, low, high = interval(ratios)
    processor = interval(processor_ratios)
    table(f"Two nodes without pieces, an earlier build and this one, {arguments.steps} steps, {arguments.pairs} "
          "pairs of runs",
          ("what", "earlier", "this", "equal or ratio"),
          [("tokens/s of a node, median", *(f"{statistics.median(run[0] for run in list_):.0f}" for list_ in runs.values()),
            f"{median:.4f} ({low:.4f} to {high:.4f}, 95 %)"),
           ("processor time of a run, s, median",
            *(f"{statistics.median(run[3] for run in list_):.2f}" for list_ in runs.values()),
            f"{processor[0]:.4f} ({processor[1]:.4f} to {processor[2]:.4f}, 95 %)"),
           ("anchor hashes of all runs", f"{len(hashes[0])} each", "", "equal" if is_same else "DIFFERENT"),
           ("bytes sent in the last round", "", "", f"equal, {sent.pop()}" if len(sent) == 1 else f"different: {sorted(sent)}"),
           ("`edit-sim --peers 4 --seed S`, S from 1", len(seeds), len(seeds), f"{same} equal")])
    return {"ratios": ratios, "median": median, "low": low, "high": high, "processor_ratios": processor_ratios,
            "processor": processor, "seeds": len(seeds), "seeds_equal": same,
            "hashes_equal": is_same,
            "tokens_per_second": {which: [run[0] for run in list_] for which, list_ in runs.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--against", required=True, metavar="BUILD", help="folder of the earlier build")
    parser.add_argument("--steps", type=int, default=50, help="of a run")
    parser.add_argument("--pairs", type=int, default=40, help="of runs")
    parser.add_argument("--seeds", type=int, default=200, help="rings that are simulated by both")
    parser.add_argument("--json", type=pathlib.Path, help="also write the numbers to this file")
    arguments = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2 or shutil.which("taskset") is None:
        print("plain: left out, needs two cores and taskset")
        return
    namespaces.trap_signals()
    try:
        told = compare(arguments)
    except namespaces.Trouble as trouble:
        sys.exit(f"plain: {trouble}")
    if arguments.json:
        arguments.json.write_text(json.dumps(told, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

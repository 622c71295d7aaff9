#!/usr/bin/env python3
"""What a mesh costs and saves: memory per node by pieces, and how long workers wait for whole layers.

    bench/mesh.py [memory] [gather] [--build build] [--blocks 80] [--hidden 512] [--shards 1 2 4] [--rate 200mbit] [--repeats 2]
                  [--json FILE]

memory: one replica of a byte-level Llama (250 M parameters by default, batch 1 x 64) on M nodes, as many as --shards says; of its
first node the largest proportional set size of daemon and worker together, twenty times a second, over five steps and two rounds.
The formula beside it: 24 bytes per parameter / M (theta 4, AdamW 8, anchor 4, momentum 4, gradient 4), two whole layers, what the
model needs for activations, 64 MiB.
gather: one replica on two nodes with a core each, on a line limited by tbf; time that a worker waits for whole layers, per
step, at mesh.prefetch 0 and 1 in turn. Needs root, ip and tc.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import sys
import time

import namespaces

CONTEXT, BATCH = 64, 1
SETTLE_STEPS, STEPS = 5, 20    # gather: not counted, counted
MEMORY_STEPS, INTERVAL = 5, 2
SAMPLE_S = 0.05


def model(hidden, blocks, context):
    """config.json of a byte-level Llama."""
    return {"model_type": "llama", "hidden_act": "silu", "vocab_size": 256, "hidden_size": hidden,
            "intermediate_size": hidden * 11 // 4 // 32 * 32, "num_hidden_layers": blocks, "num_attention_heads": hidden // 64,
            "num_key_value_heads": hidden // 64, "max_position_embeddings": context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "tie_word_embeddings": False}


def layer_sizes(config):
    """Elements of embedding, blocks, head."""
    hidden, feed = config["hidden_size"], config["intermediate_size"]
    block = 4 * hidden * hidden + 3 * hidden * feed + 2 * hidden
    table = config["vocab_size"] * hidden
    return [table] + config["num_hidden_layers"] * [block] + [table + hidden]


def begin(ring, config, settings, rate, workers, cores=None):
    """Namespaces, daemons and workers of one replica."""
    ring.join(rate)
    (ring.folder / "config.json").write_text(json.dumps(config))
    (ring.folder / "text").write_text("what is measured is time and room; any text will do. " * 20000)
    ring.start_daemons({"mesh.shards": len(ring.names), "checkpoint.at_end": "no", **settings}, cores)
    return [ring.start_worker(name, "--model", ring.folder, "--data", ring.folder / "text", "--threads=1", *workers,
                              core=cores and cores[name]) for name in ring.names]


# ---- Memory ----------------------------------------------------------------------------------------------------------

def proportional_bytes(pid):
    """Of a process; 0 if it is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    found = re.search(r"^Pss: +(\d+)", text, re.M)
    return 1024 * int(found[1]) if found else 0


def children(pid):
    """The process itself and all below it: `ip netns exec` may stay in between."""
    found = [pid]
    for task in found:
        try:
            found += map(int, pathlib.Path(f"/proc/{task}/task/{task}/children").read_text().split())
        except OSError:
            pass
    return found


def memory(arguments, shards):
    """Largest sum for one node of a replica in so many pieces, and bytes of the model's activations."""
    config = model(arguments.hidden, arguments.blocks, CONTEXT)
    ring = namespaces.Ring([f"n{i}" for i in range(shards)], arguments.build)
    try:
        workers = begin(ring, config, {"sync.interval": INTERVAL}, "10gbit",
                        [f"--steps={MEMORY_STEPS}", f"--batch={BATCH}", f"--context={CONTEXT}"])
        watched = [process.pid for process in ring.processes if process.name.endswith(f" of {ring.names[0]}")]
        peak = 0
        while any(worker.poll() is None for worker in workers):
            peak = max(peak, sum(proportional_bytes(pid) for first in watched for pid in children(first)))
            time.sleep(SAMPLE_S)
        ring.check()
        told = (ring.folder / f"{ring.names[0]}.edit-worker.log").read_text()
        work = float(re.search(r"([\d.]+) MiB of working memory", told)[1]) * 2**20
    finally:
        ring.close()
    sizes = layer_sizes(config)
    gradients = 4 * sum(sizes) if shards == 1 else 4 * max(sizes)
    return peak, work - gradients


def tell_memory(arguments):
    sizes = layer_sizes(model(arguments.hidden, arguments.blocks, CONTEXT))
    print(f"Memory of a node: one replica of {sum(sizes) / 1e6:.0f} M parameters in {len(sizes)} layers, batch {BATCH} x {CONTEXT}\n")
    print("| nodes of the replica | peak, MiB | of M = 1 | the formula, MiB | of the formula |\n|---|---|---|---|---|")
    rows, first = [], None
    for shards in arguments.shards:
        peak, activations = memory(arguments, shards)
        bound = 24 * sum(sizes) / shards + 2 * 4 * max(sizes) + activations + (64 << 20)
        first = first or peak
        rows.append({"shards": shards, "peak_bytes": peak, "formula_bytes": bound})
        print(f"| {shards} | {peak / 2**20:.0f} | {peak / first:.3f} | {bound / 2**20:.0f} | {peak / bound:.3f} |", flush=True)
    print()
    return rows


# ---- Gather ----------------------------------------------------------------------------------------------------------

def gather(arguments, prefetch):
    """(ms a step, ms of it waiting for whole layers) of the slower of two nodes."""
    config = model(256, 6, 256)
    ring = namespaces.Ring(("a", "b"), arguments.build)
    cores = dict(zip(ring.names, sorted(os.sched_getaffinity(0))))
    try:
        begin(ring, config, {"sync.interval": 1000000, "mesh.prefetch": prefetch}, arguments.rate,
              ["--steps=1000000", "--batch=8", "--context=256", "--lr=1e-5"], cores)
        points = []
        for step in (SETTLE_STEPS, SETTLE_STEPS + STEPS):
            end = time.monotonic() + namespaces.PATIENCE_S
            while int(ring.ask("a", "status", statuses=(0, 5)).get("step", 0)) < step:
                ring.check()
                if time.monotonic() > end:
                    raise namespaces.Trouble(f"step {step} did not come")
                time.sleep(0.02)
            now = int(ring.ask("a", "status", statuses=(0, 5))["step"])
            points.append((time.monotonic(), now, max(int(ring.ask(name, "mesh")["gather_us"]) for name in ring.names)))
    finally:
        ring.close()
    (begin_s, begin_step, begin_us), (end_s, end_step, end_us) = points
    steps = end_step - begin_step
    return 1000 * (end_s - begin_s) / steps, (end_us - begin_us) / 1000 / steps


def tell_gather(arguments):
    sizes = layer_sizes(model(256, 6, 256))
    sent = 4 * (2 * sum(sizes) + sum(sizes[1:-1])) / 2  # forwards, gradients, backwards without embedding and head; half of each
    line_ms = 1000 * 8 * sent / namespaces.bits_per_second(arguments.rate)
    print(f"Waiting for whole layers: {sum(sizes) / 1e6:.1f} M parameters on two nodes, {arguments.rate} each way; "
          f"the line alone needs {line_ms:.0f} ms a step\n")
    print("| mesh.prefetch | step, ms | waiting for layers, ms | all of them, ms |\n|---|---|---|---|")
    runs = {0: [], 1: []}
    for _ in range(arguments.repeats):
        for prefetch, found in runs.items():
            found.append(gather(arguments, prefetch))
    for prefetch, found in runs.items():
        steps, waits = zip(*found)
        print(f"| {prefetch} | {statistics.median(steps):.0f} | {statistics.median(waits):.0f} | "
              f"{', '.join(f'{wait:.0f}' for wait in waits)} |")
    print()
    return runs


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="*", choices=[[], "memory", "gather"], metavar="memory|gather", help="default: both")
    parser.add_argument("--build", default="build")
    parser.add_argument("--blocks", type=int, default=80, help="memory: decoder blocks")
    parser.add_argument("--hidden", type=int, default=512, help="memory: width, a multiple of 128")
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2, 4], metavar="M")
    parser.add_argument("--rate", default="200mbit", help="gather: of the line, as tc takes it")
    parser.add_argument("--repeats", type=int, default=2, help="gather: runs of each")
    parser.add_argument("--json", help="also write the numbers to this file")
    arguments = parser.parse_args()
    lacks = namespaces.missing("taskset")
    if lacks or len(os.sched_getaffinity(0)) < 2:
        print(f"mesh: left out, needs {lacks or 'two cores'} (ip and tc: apt install iproute2)")
        return
    namespaces.trap_signals()
    told = {}
    try:
        if not arguments.what or "memory" in arguments.what:
            told["memory"] = tell_memory(arguments)
        if not arguments.what or "gather" in arguments.what:
            told["gather"] = tell_gather(arguments)
    except namespaces.Trouble as trouble:
        sys.exit(f"mesh: {trouble}")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()

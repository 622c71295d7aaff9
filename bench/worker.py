#!/usr/bin/env python3
"""Speed and memory of the built-in worker beside PyTorch eager: the same model, float32, one thread, one core.

    bench/worker.py [--program build/bench/worker_bench] [--rounds 5] [--json FILE]

Runs alternate (ours, theirs, ours, theirs ...) on one pinned core. Printed for each model: median step of all runs, spread
(lowest and highest median of a run), CPU time (what counts if others use the core too), ratio, share of the rate of plain
matrix products that our step reaches, and peak memory. Where the system's python3 has no PyTorch, ours is measured alone.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
# name: vocabulary, hidden, layers, heads, intermediate, batch, time, steps of a run
MODELS = {"23 M": (8192, 512, 6, 8, 1376, 4, 256, 3), "0.84 M": (256, 128, 4, 4, 352, 16, 256, 10)}
NO_TORCH = 3


def run(command, model, core):
    """The JSON of one run, None if it says that there is no PyTorch."""
    environment = dict(os.environ, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    done = subprocess.run(["taskset", "-c", str(core), *command, *map(str, model)], env=environment, text=True,
                          stdout=subprocess.PIPE, check=False)
    if done.returncode == NO_TORCH:
        return None
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(command)} failed with {done.returncode}")
    return json.loads(done.stdout)


def step_flop(vocab, hidden, layers, heads, intermediate, batch, time, _steps):
    """Useful operations of a step: products with matrices three times, and the causal half of the scores and their use."""
    weights = layers * (4 * hidden * hidden + 3 * hidden * intermediate) + vocab * hidden
    scores = layers * 2 * time * hidden / 2
    return 6 * batch * time * (weights + scores)


def describe(who, runs):
    """Prints a line; medians of all steps, lowest and highest median of a run."""
    elapsed, cpu = zip(*[step for one in runs for step in one["steps"]])
    medians = [statistics.median(ms for ms, _ in one["steps"]) for one in runs]
    result = {"step_ms": statistics.median(elapsed), "low_ms": min(medians), "high_ms": max(medians),
              "cpu_ms": statistics.median(cpu), "peak_mib": max(one["peak_bytes"] for one in runs) / 2**20}
    print(f"  {who:12} {result['step_ms']:8.1f} ms a step ({result['low_ms']:.1f} to {result['high_ms']:.1f}; "
          f"CPU {result['cpu_ms']:.1f}), peak memory {result['peak_mib']:.0f} MiB")
    return result


def measure(name, model, program, rounds, core):
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(run([program], model, core))
        other = run(["/usr/bin/python3", os.path.join(FOLDER, "worker_torch.py")], model, core)
        if other:
            theirs.append(other)
    sgemm = max(one["sgemm_gflops"] for one in ours)
    vocab, hidden, layers, heads, intermediate, batch, time, _ = model
    print(f"{name} parameters ({ours[0]['parameters']}): vocabulary {vocab}, hidden {hidden}, layers {layers}, heads {heads}, "
          f"intermediate {intermediate}, batch {batch} x {time}")
    result = {"ours": describe("edit-worker", ours), "sgemm_gflops": sgemm,
              "model_mib": ours[0]["model_bytes"] / 2**20}
    rate = step_flop(*model) / result["ours"]["cpu_ms"] / 1e6
    result["share_of_sgemm"] = rate / sgemm
    if theirs:
        result["torch"] = describe(f"torch {theirs[0]['version']}", theirs)
        for clock in ("step", "cpu"):
            result[f"{clock}_ratio"] = result["torch"][f"{clock}_ms"] / result["ours"][f"{clock}_ms"]
        print(f"  edit-worker is {result['step_ratio']:.2f} times as fast (by CPU time {result['cpu_ratio']:.2f})")
    else:
        print("  no PyTorch for /usr/bin/python3: measured alone")
    print(f"  {rate:.1f} of {sgemm:.1f} GFLOP/s of sgemm ({100 * result['share_of_sgemm']:.0f} %); "
          f"gradients and activations {result['model_mib']:.0f} MiB")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/bench/worker_bench")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="also write the numbers to this file")
    arguments = parser.parse_args()
    core = max(os.sched_getaffinity(0))
    results = {name: measure(name, model, arguments.program, arguments.rounds, core) for name, model in MODELS.items()}
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()

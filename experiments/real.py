#!/usr/bin/env python3
"""The experiments with real daemons, in network namespaces whose lines tbf limits.

    experiments/real.py E6 [--build build] [--out build/experiments] [--rounds 10] [--repeats 2]
    experiments/real.py E7 [--build build] [--out build/experiments] [--seconds 75] [--rate 30mbit]

E6: is the simulator honest about time? Four daemons, one worker of them slow, measured and simulated (`edit-sim run`, times
only). The simulator is calibrated on the first setup alone and predicts the others. The workers are tests/probe_worker, which
sleeps its steps and changes few numbers: on a machine with few cores four that compute would disturb each other, and it is the
ring's time that is in question, not theirs.
E7: eight daemons and trainers, slow lines, one straggler: held-out loss over real time of edit, a-edit and ddp.

Prints tables in Markdown. Needs root, ip, tc, and for E7 gnuplot and fortunes; without them one line and exit status 1.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests")]

import demo  # noqa: E402
import namespaces  # noqa: E402

# ---- E6 --------------------------------------------------------------------------------------------------------------

FOUR = ("a", "b", "c", "d")
SLOW = "d"
LAYERS, ELEMENTS = 4, 250000  # of the probe's model, elements of a layer
SETTLE = 2                    # rounds at the begin that are not counted
LATENCY_MAX_MS = 200          # of the calibration
SIM_SCALE = 8
TARGET = 0.15                 # of the prediction's error

# What is calibrated on, then what is predicted: name, method, Mbit/s, step of three members in ms, the slow one's factor, more
# settings.
SETUPS = (
    ("calibration", "diloco", 100, 100, 2, {"sync.interval": 4}),
    ("slower lines", "diloco", 40, 100, 2, {"sync.interval": 4}),
    ("behind the forward pass", "edit", 100, 300, 3, {"sync.interval": 2}),
    ("behind the next interval", "co2", 40, 100, 2, {"sync.interval": 4}),
    ("by time", "a-edit", 100, 100, 3, {"sync.period": 1.5}),
    ("fast lines", "diloco", 1000, 100, 2, {"sync.interval": 4}),
)


def step_ms(setup, name):
    """Of a member."""
    return setup[3] * (setup[4] if name == SLOW else 1)


def measure_setup(setup, arguments, has_line):
    """One run: {round_ms, fast_ms, slow_ms, over_ms: lists}, and with has_line what its lines carry."""
    ring = namespaces.Ring(FOUR, arguments.build)
    try:
        ring.join(f"{setup[2]}mbit")
        line = ring.measure_line("a", "b") if has_line else None
        ring.start_daemons({"method": setup[1], **setup[5]})
        for name in FOUR:
            ring.start(name, ring.build / "tests" / "probe_worker", "--passes", f"--layers={LAYERS}", f"--size={ELEMENTS}",
                       "--moving=1000", "--steps=1000000000", f"--step-ms={step_ms(setup, name)}",
                       ring.run_folder(name) / "worker.sock")
        last = SETTLE + arguments.rounds + 1
        ring.await_round(last)
        rounds = {line["round"]: line for line in ring.trace("a")[1]}
    finally:
        ring.close()
    told = {"round_ms": [], "fast_ms": [], "slow_ms": [], "over_ms": []}
    for number in range(SETTLE + 1, last):
        told["round_ms"].append((rounds[number]["end_us"] - rounds[number - 1]["end_us"]) / 1000)
        for member in rounds[number + 1]["members"]:  # they tell then what they waited in this round
            told["slow_ms" if member["name"] == SLOW else "fast_ms"].append(member["exposed_us"] / 1000)
        for member in rounds[number]["members"]:
            took_ms = member["interval_us"] / 1000 / max(1, member["steps"])
            told["over_ms"].append(took_ms - step_ms(setup, member["name"]))
    return told, line


def simulate(setup, model, arguments):
    """The same from the simulator: medians {round_ms, fast_ms, slow_ms}. model: latency_ms, over_ms, carried (of the rate)."""
    folder = arguments.out / "E6" / setup[0].replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    settings = "".join(f"{key} = {value}\n" for key, value in setup[5].items())
    nodes = "".join(f"[node {name}]\nspeed = {1000 / (step_ms(setup, name) + model['over_ms']):.9g}\n" for name in FOUR)
    (folder / "scenario.ini").write_text(
        f"[run]\nmethod = {setup[1]}\nseconds = 40\n{settings}\n"
        f"[model]\ntiming = yes\nlayers = {LAYERS}\nparameters = {LAYERS * ELEMENTS}\nscale = {SIM_SCALE}\n\n"
        f"[nodes]\nlink.mbit = {setup[2] * model['carried']:.9g}\nlink.latency_ms = {model['latency_ms']:.9g}\n\n{nodes}")
    namespaces.must(pathlib.Path(arguments.build) / "edit-sim", "run", folder / "scenario.ini", "--out", folder, "--no-plots")
    ends, waits = [], {"fast_ms": [], "slow_ms": []}
    for text in (folder / "lines.json").read_text().splitlines():
        event = json.loads(text)
        if event["event"] != "round" or event["round"] <= SETTLE:
            continue
        if event["node"] == "a":
            ends.append(event["time_us"] / 1000)
        waits["slow_ms" if event["node"] == SLOW else "fast_ms"].append((event["exposed_us"] + event["waiting_us"]) / 1000)
    ends.pop()  # the last round is cut off by the end of the run
    return {"round_ms": statistics.median(b - a for a, b in zip(ends, ends[1:])),
            **{key: statistics.median(values) for key, values in waits.items()}}


def calibrate(measured, line, arguments):
    """What the simulator has to know: the line as TCP sees it, what a step takes more than it sleeps, and the delay of a
    message with all that its two ends do about it, so that the slow member waits as long as it did."""
    setup = SETUPS[0]
    model = {"carried": line[0] * 8 / (setup[2] * 1e6), "over_ms": max(0.0, statistics.median(measured["over_ms"]))}
    low, high, aim = line[1], LATENCY_MAX_MS, statistics.median(measured["slow_ms"])
    for _ in range(14):
        model["latency_ms"] = math.sqrt(low * high)
        if simulate(setup, model, arguments)["slow_ms"] < aim:
            low = model["latency_ms"]
        else:
            high = model["latency_ms"]
    return model


def report_setup(setup, measured, simulated):
    """Lines of the table; returns errors: of the round, the larger one of both waits, and that as a part of the round."""
    medians = {key: statistics.median(values) for key, values in measured.items()}
    name, method, rate, step, factor, settings = setup
    text = f"{name}: {method}, {rate} Mbit/s, {step} ms x {factor}, " + ", ".join(f"{k} {v}" for k, v in settings.items())
    errors = []
    for key, label in (("round_ms", "round"), ("fast_ms", "wait, fast"), ("slow_ms", "wait, slow")):
        quartiles = statistics.quantiles(measured[key], n=4)
        error = simulated[key] / medians[key] - 1 if medians[key] > 0 else math.inf
        part = (simulated[key] - medians[key]) / medians["round_ms"]
        errors.append((abs(error), abs(part)))
        print(f"| {text} | {label} | {medians[key]:.0f} | {quartiles[0]:.0f} to {quartiles[2]:.0f} | {simulated[key]:.0f} "
              f"| {100 * error:+.1f} % | {100 * part:+.1f} % |")
        text = ""
    return errors[0][0], max(error for error, _ in errors[1:]), max(part for _, part in errors[1:])


def run_e6(arguments):
    """Measures all setups in turn, again and again, then simulates."""
    begin = os.getloadavg()[0]
    measured, line = {setup[0]: {} for setup in SETUPS}, None
    for repeat in range(arguments.repeats):
        for setup in SETUPS:
            print(f"E6: {setup[0]}, {repeat + 1} of {arguments.repeats}", file=sys.stderr, flush=True)
            told, carried = measure_setup(setup, arguments, line is None)
            line = line or carried
            for key, values in told.items():
                measured[setup[0]].setdefault(key, []).extend(values)
    (arguments.out / "E6.json").write_text(json.dumps({"measured": measured, "line": line}) + "\n")
    model = calibrate(measured[SETUPS[0][0]], line, arguments)
    print(f"Four members, a model of {LAYERS} layers with {LAYERS * ELEMENTS / 1e6:.0f} M parameters, member {SLOW} slow; "
          f"medians of {arguments.repeats} x {arguments.rounds} rounds. Load of the machine {begin:.1f} before, "
          f"{os.getloadavg()[0]:.1f} after.\nA line carries {100 * model['carried']:.1f} % of its rate over TCP, half a round "
          f"trip is {line[1]:.3f} ms. Calibrated on the first setup: a message takes {model['latency_ms']:.3f} ms, a step "
          f"{model['over_ms']:.2f} ms more than it sleeps.\n")
    print("| setup | time | measured, ms | half of them | simulated, ms | error | of the round |\n|" + "---|" * 7)
    worst = [report_setup(setup, measured[setup[0]], simulate(setup, model, arguments)) for setup in SETUPS][1:]
    of_round, of_wait, part = (100 * max(column) for column in zip(*worst))
    print(f"\nPredicted rounds are off by at most {of_round:.1f} % (target {100 * TARGET:.0f} %), waits by at most "
          f"{of_wait:.1f} % of themselves, and by at most {part:.1f} % of a round.")


# ---- E7 --------------------------------------------------------------------------------------------------------------

EIGHT = tuple("abcdefgh")
STRAGGLER, STRAGGLER_FACTOR = "h", 3
BATCH, CONTEXT, RATE = 8, 64, 3e-3  # sequences, bytes, learning rate
LOOK_S = 7                          # between two checkpoints
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "vocab_size": 256,
         "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 4,
         "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}
METHODS = {"edit": {"sync.interval": 10}, "a-edit": {"sync.period": 3}, "ddp": {}}


def train(method, folder, arguments):
    """One run of a method: [(seconds, folder of a checkpoint)], and its trace."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ring = namespaces.Ring(EIGHT, arguments.build, folder)
    seen = []
    try:
        ring.join(arguments.rate)
        ring.start_daemons({"method": method, "penalty.warmup": 10, **METHODS[method]})
        begin = time.monotonic()
        for name in EIGHT:
            drill = [f"--drill=slow@1x{STRAGGLER_FACTOR}+1000000000"] if name == STRAGGLER else []
            ring.start_worker(name, "--model", folder.parent / "model", "--data", folder.parent / "train.txt",
                              "--steps=1000000000", "--warmup=20", f"--lr={RATE}", f"--min-lr={RATE}", f"--batch={BATCH}",
                              f"--context={CONTEXT}", "--threads=1", *drill)
        ring.await_round(1)
        while not seen or seen[-1][0] < arguments.seconds:
            ring.check()
            number = len(seen)
            ring.ask("a", "checkpoint", "--wait", "--timeout", "60")
            seen.append((time.monotonic() - begin, folder / f"checkpoint-{number}"))
            shutil.copytree(ring.ask("a", "status")["checkpoint"], seen[-1][1])
            time.sleep(max(0.0, min((number + 1) * LOOK_S, arguments.seconds) - (time.monotonic() - begin)))
        rounds = ring.trace("a")[1]
        elapsed = time.monotonic() - begin
    finally:
        ring.close()
    return seen, rounds, elapsed


def held_out(folder, arguments):
    """Loss of a checkpoint, nats per byte, on text that no member has seen."""
    return json.loads(namespaces.must(pathlib.Path(arguments.build) / "edit-worker", "eval", "--model", folder, "--data",
                                      arguments.out / "E7" / "heldout.txt", "--context", CONTEXT, "--json"))["loss"]


def loss_at(points, seconds):
    """Between the two measurements around it, as text."""
    for (t0, l0), (t1, l1) in zip(points, points[1:]):
        if t0 <= seconds <= t1:
            return f"{l0 + (l1 - l0) * (seconds - t0) / (t1 - t0):.3f}"
    return "-"


def summarise(method, points, rounds, elapsed, marks):
    """One line of the table."""
    sums = {name: [0, 0] for name in EIGHT}  # steps, waited
    for line in rounds:
        for member in line["members"]:
            sums[member["name"]][0] += member["steps"]
            sums[member["name"]][1] += member["exposed_us"]
    fast = [sums[name] for name in EIGHT if name != STRAGGLER]
    steps, waited = statistics.mean(one[0] for one in fast), statistics.mean(one[1] for one in fast)
    slow = sums[STRAGGLER]
    sent = sum(line["bytes"] for line in rounds)
    losses = " | ".join(f"{loss_at(points, mark)}" for mark in marks)
    waits = [f"{100e-6 * wait_us / elapsed:.0f} %" for wait_us in (waited, slow[1])]
    print(f"| {method} | {len(rounds)} | {steps:.0f} | {slow[0]} | {waits[0]} | {waits[1]} "
          f"| {sent / 1e6:.1f} | {losses} |")


def draw(folder):
    """loss.svg of the three tables, by gnuplot."""
    plots = ", ".join(f"'{method}.tsv' using 1:2 with linespoints lw 2 title '{method}'" for method in METHODS)
    script = (f"set terminal svg size 800,480 background 'white'\nset output 'loss.svg'\nset xlabel 'real time, s'\n"
              f"set ylabel 'held-out loss, nats per byte'\nset grid\nplot {plots}\n")
    done = subprocess.run(["gnuplot"], input=script, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise namespaces.Trouble(f"gnuplot: {done.stderr.strip()}")


def run_e7(arguments):
    """One method after the other."""
    folder = arguments.out / "E7"
    (folder / "model").mkdir(parents=True, exist_ok=True)
    (folder / "model" / "config.json").write_text(json.dumps(LLAMA))
    demo.write_text(folder, pathlib.Path("/usr/share/games/fortunes"))
    marks = [round(arguments.seconds * part / 3) for part in (1, 2, 3)]
    print(f"\nEight members, lines of {arguments.rate}, batches of {BATCH} x {CONTEXT} bytes, a Llama of 0.13 M parameters, "
          f"member {STRAGGLER} {STRAGGLER_FACTOR} times slower; {arguments.seconds} s of each method on "
          f"{len(os.sched_getaffinity(0))} cores, load of the machine before: {os.getloadavg()[0]:.1f}.\n")
    print("| method | rounds | steps, fast | steps, slow | waiting, fast | waiting, slow | MB sent by one | "
          + " | ".join(f"loss at {mark} s" for mark in marks) + " |\n|" + "---|" * (7 + len(marks)), flush=True)
    for method in METHODS:
        seen, rounds, elapsed = train(method, folder / method, arguments)
        points = [(seconds, held_out(kept, arguments)) for seconds, kept in seen]
        (folder / f"{method}.tsv").write_text("# seconds\tloss\n" + "".join(f"{s:.2f}\t{loss:.5f}\n" for s, loss in points))
        (folder / f"{method}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rounds))
        summarise(method, points, rounds, elapsed, marks)
        sys.stdout.flush()
    draw(folder)
    print(f"\nPicture: {folder / 'loss.svg'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("experiment", choices=("E6", "E7"))
    parser.add_argument("--build", default="build")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/experiments"))
    parser.add_argument("--rounds", type=int, default=10, help="E6: counted in a run")
    parser.add_argument("--repeats", type=int, default=2, help="E6: runs of each setup")
    parser.add_argument("--seconds", type=int, default=75, help="E7: of each method")
    parser.add_argument("--rate", default="30mbit", help="E7: of the lines, as tc takes it")
    arguments = parser.parse_args()
    programs = ["editd", "editctl", *(["edit-sim", "tests/probe_worker"] if arguments.experiment == "E6" else ["edit-worker"])]
    lacks = namespaces.missing(*(["gnuplot"] if arguments.experiment == "E7" else []))
    lacks = lacks or " and ".join(f"{arguments.build}/{name}" for name in programs
                                  if not os.access(pathlib.Path(arguments.build) / name, os.X_OK))
    if lacks:
        sys.exit(f"real: needs {lacks}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    namespaces.trap_signals()
    try:
        (run_e6 if arguments.experiment == "E6" else run_e7)(arguments)
    except (namespaces.Trouble, demo.Failed) as trouble:
        sys.exit(f"real: {trouble}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""How robust it is, in numbers: what faults cost rings of real daemons on this machine, and whether the bits stay equal.

    bench/robustness.py [latency] [goodput] [bits] [torment] [--soak [SECONDS]] [--build build] [--seed 1] [--nodes 4 8]
                        [--repeats 4] [--torments 200] [--json FILE]

latency: every kind of fault on every size of ring, --repeats times, rounds of a second: when it is noticed, when the ring goes on, when
the member is back. goodput: a fault every 30 s, rounds of ten seconds: what of the workers' steps gets into the anchor. Their workers
take a fixed time for a step, so nobody can make up for others. bits: the real worker. torment: many short faults, two at a time.
Without a name: these four. --soak: a fault every 20 to 30 s for so long (default 1800), memory and descriptors of the daemons; with a
build of SAN=address,undefined also what its sanitizers say. The plan of faults follows from the seed alone. Exit status 1 if
bits differ, a process ends by itself, or a member does not come back; a target that is missed is only told.
"""

import argparse
import json
import math
import os
import pathlib
import platform
import random
import statistics
import sys
import time

import namespaces
import outage
import plain

STEP_TOKENS = 100                         # as tests/probe_worker counts them
LAYERS = 3
QUICK = {"node.heartbeat_ms": 200, "node.silence_ms": 1000}
CHECKPOINTS = {"checkpoint.rounds": 20}   # so that some come back with one
MODEL = {"model_type": "llama", "hidden_act": "silu", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 88,
         "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 32,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}
TEXT = "what comes back is what was there before, number {}. "
BASELINE_ROUNDS = 5
PERIOD_S = 30                             # goodput: from fault to fault
COMPARED_EVERY = 10                       # torment: faults
SOAK_GAP_S = (20, 30)
WARM_S = 120                              # soak: memory that is touched for the first time
BLOCKS = 30                               # soak: means of so many parts of the time are taken for independent
# Two-sided 95 % of Student's t, by degrees of freedom.
STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 8: 2.31, 10: 2.23, 15: 2.13, 20: 2.09, 25: 2.06, 28: 2.05}
SLOPE_KIB, SLOPE_DESCRIPTORS = 1.0, 1.0   # targets: per round, per hour
DETECTION_S, GOING_S, BACK_S = 3.0, 1.0, 3.0


def names(count):
    return [chr(ord("a") + i) for i in range(count)]


def say(text):
    print(text, flush=True)


def probe(step_ms):
    """Starts workers that take that time for a step."""
    def start(ring, name):
        return ring.start(name, ring.build / "tests/probe_worker", "--layers", LAYERS, "--steps", 10**9, "--step-ms", step_ms,
                          ring.run_folder(name) / "worker.sock")
    return start


def real_worker(ring, name):
    """Starts edit-worker as its unit does, with a small model."""
    return ring.start_worker(name, "--model", ring.folder, "--data", ring.folder / "text", "--steps", 10**9, "--batch", 2,
                             "--context", 16, "--lr", "0.01", "--threads", 1, "--log-interval", 0, "--wait", "inf")


def draw_plan(seed, what, victims, kinds, repeats):
    """Every kind that often, in a drawn order, on drawn members."""
    dice = random.Random(f"{seed} {what}")
    plan = [kind for kind in kinds for _ in range(repeats)]
    dice.shuffle(plan)
    return [outage.Fault(kind, dice.choice(victims)) for kind in plan], dice


# ---- What followed from a fault ----

def first(times):
    return min(times, default=None)


def after(start, at):
    """From start to at, None if that never came."""
    return None if at is None else round(at - start, 3)


def all_of(times):
    """When the last one had it; None if one never had."""
    return None if None in times or not times else max(times)


def followed(ring, fault):
    """Times from the fault on, seconds; None: it did not come to that."""
    others = [member for member in ring.members.values() if member.name != fault.victim]
    victim = ring.members[fault.victim]
    noticed = first(at for one in others for at, peer in one.downs if peer == fault.victim and at > fault.at)
    dropped, going, stalls = [], [], []
    for one in others:
        entered = first(at for at, _, view in one.views if at > fault.at and fault.victim not in view)
        dropped.append(entered)
        going.append(None if entered is None else first(at for at, _, _ in one.rounds if at > entered))
        times = [at for at, _, _ in one.rounds]
        stalls.append(max((b - a for a, b in zip(times, times[1:]) if b > fault.at), default=0))
    entered = max((at for at, _, _ in victim.views if at > fault.at), default=fault.at)
    back = first(at for at, _, _ in victim.rounds if at > max(entered, fault.back_at, victim.ready_at))
    told = {"kind": fault.kind, "victim": fault.victim, "down_s": fault.down_s,
            "noticed_s": after(fault.at, noticed), "dropped_s": after(fault.at, all_of(dropped)),
            "going_s": after(fault.at, all_of(going)), "stall_s": round(max(stalls), 3), "back_s": after(fault.at, back)}
    if noticed is not None and told["going_s"] is not None:
        told["going_after_notice_s"] = round(told["going_s"] - told["noticed_s"], 3)
    return told


def all_rounds(ring):
    """{number: (time at which the first member had it, accepted steps)}."""
    found = {}
    for member in ring.members.values():
        for at, number, steps in member.rounds:
            before = found.get(number, (at, steps))
            found[number] = (min(at, before[0]), max(steps, before[1]))
    return found


def repeated(ring):
    """Rounds that a member has completed a second time."""
    return sum(later <= earlier for member in ring.members.values()
               for (_, earlier, _), (_, later, _) in zip(member.rounds, member.rounds[1:]))


def window(rounds, begin, end):
    """From the last round before begin to the first one after end: both their times, and the steps accepted between."""
    low = max(number for number, (at, _) in rounds.items() if at <= begin)
    high = min(number for number, (at, _) in rounds.items() if at >= end)
    steps = sum(steps for number, (_, steps) in rounds.items() if low < number <= high)
    return rounds[low][0], rounds[high][0], steps


def baseline(ring):
    """Seconds that a member takes for a step while there is no fault, its part of the rounds included."""
    begin = time.monotonic()
    count = len(ring.members[ring.names[0]].rounds) + BASELINE_ROUNDS + 1
    ring.wait(lambda: all(len(member.rounds) >= count for member in ring.members.values()), outage.SETTLE_S * 4, "rounds before the faults")
    start, end, steps = window(all_rounds(ring), begin, ring.members[ring.names[0]].rounds[-1][0] - 0.1)
    return (end - start) * len(ring.names) / steps


def lost_node_seconds(ring, step_s, begin, end):
    start, stop, steps = window(all_rounds(ring), begin, end)
    return (stop - start) * len(ring.names) - steps * step_s


# ---- Runs ----

def end_run(ring, told):
    """What every run tells at its end."""
    told["equal_bits"] = ring.compare()
    told["rounds"] = max(all_rounds(ring))
    told["rounds_repeated"] = repeated(ring)
    told["ended_by_themselves"] = ring.unplanned
    told["failed_checks"] = [line for member in ring.members.values() for line in member.trouble]
    return told


def run(arguments, what, count, interval, step_ms, settings, play):
    """Makes a ring, lets `play` do with it what it does, tells what came of it."""
    say(f"\n{what}, {count} nodes, a round every {interval * step_ms / 1000:g} s")
    is_real = what == "bits"
    ring = outage.Ring(names(count), arguments.build, interval, MODEL["num_hidden_layers"] + 2 if is_real else LAYERS,
                       real_worker if is_real else probe(step_ms))
    told = {"what": what, "nodes": count, "interval": interval, "step_ms": step_ms, "settings": settings}
    begin = time.monotonic()
    try:
        if is_real:
            (ring.folder / "config.json").write_text(json.dumps(MODEL))
            (ring.folder / "text").write_text("".join(TEXT.format(i) for i in range(2000)))
        ring.begin(settings)
        play(ring, told)
        end_run(ring, told)
    except namespaces.Trouble as trouble:
        told["trouble"] = str(trouble)
        say(f"  TROUBLE {trouble}")
        keep_logs(arguments, ring, what)
    finally:
        ring.close()
    told["seconds"] = round(time.monotonic() - begin)
    return told


def keep_logs(arguments, ring, what):
    """What the daemons have said, and say now, is worth keeping."""
    folder = pathlib.Path(arguments.build) / "robustness" / f"{what}-{len(ring.names)}"
    folder.mkdir(parents=True, exist_ok=True)
    for path in ring.folder.glob("*.log"):
        (folder / path.name).write_bytes(path.read_bytes())
    for what, name in ring.running:
        if what == "daemon":
            told = [ring.ask(name, word, statuses=(0, 1, 3, 5, 6)) for word in ("status", "layers", "view")]
            (folder / f"{name}.json").write_text(json.dumps(told, indent=1))
    say(f"  logs: {folder}")


def tell_fault(number, one):
    times = ", ".join(f"{key[:-2].replace('_', ' ')} {one[key]} s" for key in
                      ("noticed_s", "dropped_s", "going_s", "stall_s", "back_s") if one[key] is not None)
    say(f"  {number:3} {one['kind']:7} {one['victim']}: {times}")


def play_faults(plan, dice, period_s):
    """One fault after the other; period_s: from one to the next, or as soon as it is over."""
    def play(ring, told):
        step_s = baseline(ring)
        told |= {"step_s": step_s, "faults": []}
        begin = end = time.monotonic()
        for number, fault in enumerate(plan, 1):
            ring.pass_time(dice.uniform(0.5, 1.5) if period_s is None else max(0.0, begin + number * period_s - time.monotonic()
                                                                              + dice.uniform(-5, 5)))
            ring.strike(fault)
            ring.settle(fault)
            end = time.monotonic()
            told["faults"].append(followed(ring, fault))
            tell_fault(number, told["faults"][-1])
        ring.wait(lambda: ring.is_whole(end), outage.SETTLE_S, "the last round")
        for fault, one in zip(plan, told["faults"]):
            one["lost_node_s"] = round(lost_node_seconds(ring, step_s, fault.at, fault.at + one["back_s"]), 2)
        rounds = all_rounds(ring)
        start, stop, steps = window(rounds, begin, end)
        told["goodput"] = steps * step_s / (stop - start) / len(ring.names)
        told["of_fixed_steps"] = steps * told["step_ms"] / 1000 / (stop - start) / len(ring.names)
        told["tokens"] = round(steps * STEP_TOKENS)
    return play


def play_bits(plan, dice):
    """Equal bits after each of them."""
    def play(ring, told):
        told |= {"faults": [], "compared": 0}
        for number, fault in enumerate(plan, 1):
            ring.pass_time(dice.uniform(0.5, 1.5))
            ring.strike(fault)
            ring.settle(fault)
            told["faults"].append(followed(ring, fault))
            tell_fault(number, told["faults"][-1])
            if not ring.compare():
                raise namespaces.Trouble(f"bits differ after {fault.kind} of {fault.victim}")
            told["compared"] += 1
    return play


def play_torment(count, dice):
    """Short faults, up to two at a time; a disk is lost only while all are there, because votes are lost with it."""
    def play(ring, told):
        told |= {"faults": [], "compared": 0}
        under_way = []
        for number in range(1, count + 1):
            ring.pass_time(dice.uniform(0.1, 2))
            ring.wait(lambda: sum(fault.back_at is None for fault in under_way) < 2, outage.SETTLE_S, "a member that is free")
            under_way = [fault for fault in under_way if fault.back_at is None]
            kind = dice.choice([kind for kind in outage.KINDS if kind != "leave"])
            if kind == "disk":
                ring.wait(lambda: all(f.back_at for f in under_way) and ring.is_whole(time.monotonic() - 1), outage.SETTLE_S,
                          "all members together before a disk is lost")
            taken = [fault.victim for fault in under_way if fault.back_at is None]
            fault = outage.Fault(kind, dice.choice([name for name in ring.names if name not in taken]), dice.uniform(0.2, 3))
            ring.strike(fault)
            under_way.append(fault)
            told["faults"].append({"kind": kind, "victim": fault.victim, "down_s": round(fault.down_s, 2)})
            if kind == "disk" or number % COMPARED_EVERY == 0 or number == count:
                for one in under_way:
                    ring.settle(one)
            if number % COMPARED_EVERY == 0 or number == count:
                if not ring.compare():
                    raise namespaces.Trouble(f"bits differ after fault {number}")
                told["compared"] += 1
                say(f"  {number} faults, bits equal on all {len(ring.names)}, round {max(all_rounds(ring))}")
    return play


def play_soak(seconds, dice, witnesses):
    """Faults until the time is over. Witnesses keep their daemon."""
    def play(ring, told):
        told |= {"faults": [], "witnesses": witnesses, "soak_s": seconds}
        begin = time.monotonic()
        while time.monotonic() - begin < seconds:
            ring.pass_time(dice.uniform(*SOAK_GAP_S))
            kind = dice.choice(list(outage.KINDS))
            victims = ring.names if kind in outage.SPARED else [name for name in ring.names if name not in witnesses]
            fault = outage.Fault(kind, dice.choice(victims))
            ring.strike(fault)
            ring.settle(fault)
            told["faults"].append(followed(ring, fault))
            tell_fault(len(told["faults"]), told["faults"][-1])
        told["slopes"] = [slopes(ring, name, begin) for name in witnesses]
        told["resident_max_kib"] = max(sample[3] for sample in ring.samples)
        told["descriptors_max"] = max(sample[4] for sample in ring.samples)
    return play


# ---- Numbers ----

def line_fit(points):
    """Least squares through (x, y): slope, and half of its 95 % interval. Neighbouring samples are alike, so the means of BLOCKS parts
    of the time are what is fitted."""
    count = min(BLOCKS, len(points) // 4)
    if count < 4:
        return math.nan, math.inf
    parts = [points[i * len(points) // count:(i + 1) * len(points) // count] for i in range(count)]
    x, y = ([statistics.mean(point[axis] for point in part) for part in parts] for axis in (0, 1))
    slope, intercept = statistics.linear_regression(x, y)
    spread = sum((one - statistics.mean(x)) ** 2 for one in x)
    rest = sum((b - slope * a - intercept) ** 2 for a, b in zip(x, y))
    freedom = count - 2
    student = STUDENT[max(key for key in STUDENT if key <= freedom)]
    return slope, student * math.sqrt(rest / freedom / spread)


def slopes(ring, name, begin):
    """How the memory and the descriptors of a daemon that lived through all of it grow."""
    warm = min(WARM_S, (ring.samples[-1][0] - begin) / 4)
    seen = [sample for sample in ring.samples if sample[1] == name and sample[0] > begin + warm]
    if len({sample[2] for sample in seen}) != 1:
        raise namespaces.Trouble(f"the daemon of {name} has not lived through all of it")
    memory = line_fit([(sample[5], sample[3]) for sample in seen])
    descriptors = line_fit([(sample[0] / 3600, sample[4]) for sample in seen])
    return {"name": name, "samples": len(seen), "rounds": seen[-1][5] - seen[0][5],
            "resident_kib": [seen[0][3], seen[-1][3]], "resident_kib_per_round": memory[0], "resident_limit": sum(memory),
            "descriptors": [seen[0][4], seen[-1][4]], "descriptors_per_hour": descriptors[0],
            "descriptors_limit": sum(descriptors)}


def spread_of(values):
    """Median and worst of those that are there."""
    there = [value for value in values if value is not None]
    return {"count": len(there), "median": round(statistics.median(there), 3), "worst": max(there)} if there else None


def shown(spread):
    return f"{spread['median']:.2f} / {spread['worst']:.2f}" if spread else ""


def verdict(spread, limit):
    return "" if spread is None else "yes" if spread["worst"] <= limit else f"NO, worst {spread['worst']:.2f}"


def sum_up(runs):
    """Tables for people; adds summaries to the runs."""
    for one in runs:
        if one["what"] == "latency" and "faults" in one:
            one["kinds"] = {kind: {key: spread_of(fault.get(key) for fault in one["faults"] if fault["kind"] == kind)
                                   for key in ("noticed_s", "going_after_notice_s", "going_s", "stall_s", "back_s", "lost_node_s")}
                            for kind in outage.KINDS}
            keys = ("noticed_s", "going_after_notice_s", "stall_s", "back_s", "lost_node_s")
            plain.table(f"Latency, {one['nodes']} nodes, seconds, median / worst", ("fault", "noticed", "going after that",
                        "longest between rounds", "back", "node-seconds lost"),
                        [(kind, *(shown(row[key]) for key in keys)) for kind, row in one["kinds"].items()])
            deaths = [fault for fault in one["faults"] if fault["kind"] in ("frozen", "power", "disk")]
            one["targets"] = {"noticed": verdict(spread_of(f["noticed_s"] for f in deaths), DETECTION_S),
                              "going": verdict(spread_of(f.get("going_after_notice_s") for f in deaths), GOING_S),
                              "back": verdict(one["kinds"]["daemon"]["back_s"], BACK_S)}
            say(f"targets: {one['targets']}")
        if one["what"] == "goodput" and "goodput" in one:
            lost = [fault["lost_node_s"] for fault in one["faults"]]
            interval_s = one["interval"] * one["step_ms"] / 1000
            allowed = [fault["down_s"] + interval_s / 2 for fault in one["faults"]]
            one |= {"lost_mean_s": statistics.mean(lost), "allowed_mean_s": statistics.mean(allowed)}
            plain.table(f"Goodput, {one['nodes']} nodes, a fault every {PERIOD_S} s", ("fault", "of", "down s", "node-seconds lost",
                        "allowed"), [(f["kind"], f["victim"], f["down_s"], f["lost_node_s"], limit)
                                     for f, limit in zip(one["faults"], allowed)])
            say(f"goodput {100 * one['goodput']:.2f} % of the same workers without faults; node-seconds lost per fault "
                f"{one['lost_mean_s']:.2f}, allowed {one['allowed_mean_s']:.2f}")
        if one["what"] == "soak" and "slopes" in one:
            plain.table(f"Soak, {one['nodes']} nodes, {len(one['faults'])} faults in {one['seconds']} s",
                        ("daemon", "rounds", "resident KiB, first and last", "KiB per round (95 % limit)",
                         "descriptors, first and last", "per hour (95 % limit)"),
                        [(s["name"], s["rounds"], s["resident_kib"], f"{s['resident_kib_per_round']:.4f} ({s['resident_limit']:.4f})",
                          s["descriptors"], f"{s['descriptors_per_hour']:.3f} ({s['descriptors_limit']:.3f})")
                         for s in one["slopes"]])
            one["targets"] = {"resident": all(s["resident_limit"] < SLOPE_KIB for s in one["slopes"]),
                              "descriptors": all(s["descriptors_limit"] < SLOPE_DESCRIPTORS for s in one["slopes"])}
    plain.table("All runs", ("run", "nodes", "faults", "rounds", "bits equal", "rounds done twice", "ended by themselves",
                             "failed checks", "s"),
                [(one["what"], one["nodes"], len(one.get("faults", [])), one.get("rounds", ""), one.get("equal_bits", "UNKNOWN"),
                  one.get("rounds_repeated", ""), len(one.get("ended_by_themselves", [])), len(one.get("failed_checks", [])),
                  one["seconds"]) for one in runs])
    return all(one.get("equal_bits") and "trouble" not in one and not one["ended_by_themselves"] and not one["failed_checks"]
               for one in runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="*", choices=[[], "latency", "goodput", "bits", "torment"], help="default: all")
    parser.add_argument("--soak", type=float, nargs="?", const=1800, metavar="SECONDS", help="only that")
    parser.add_argument("--build", default="build")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--repeats", type=int, default=4, help="latency and bits: of every kind of fault")
    parser.add_argument("--torments", type=int, default=200, help="faults of torment, on the smallest ring")
    parser.add_argument("--json", type=pathlib.Path, help="also write the numbers to this file")
    arguments = parser.parse_args()
    namespaces.trap_signals()
    load = os.getloadavg()
    seed, kinds, runs = arguments.seed, list(outage.KINDS), []
    what = arguments.what or ["latency", "goodput", "bits", "torment"]
    try:
        if arguments.soak:
            runs.append(run(arguments, "soak", max(arguments.nodes), 10, 100, CHECKPOINTS,
                            play_soak(arguments.soak, random.Random(f"{seed} soak"), ["a", names(max(arguments.nodes))[-1]])))
            what = []
        for count in arguments.nodes if "latency" in what else []:
            runs.append(run(arguments, "latency", count, 10, 100, CHECKPOINTS,
                            play_faults(*draw_plan(seed, f"latency {count}", names(count), kinds, arguments.repeats), None)))
        for count in arguments.nodes if "goodput" in what else []:
            runs.append(run(arguments, "goodput", count, 100, 100, {},
                            play_faults(*draw_plan(seed, f"goodput {count}", names(count), kinds, 1), PERIOD_S)))
        if "bits" in what:
            count = min(arguments.nodes)
            runs.append(run(arguments, "bits", count, 20, 20, QUICK | CHECKPOINTS,
                            play_bits(*draw_plan(seed, "bits", names(count), kinds, arguments.repeats))))
        if "torment" in what:
            runs.append(run(arguments, "torment", min(arguments.nodes), 10, 20, QUICK | CHECKPOINTS,
                            play_torment(arguments.torments, random.Random(f"{seed} torment"))))
    except namespaces.Trouble as trouble:
        sys.exit(f"robustness: {trouble}")
    is_well = sum_up(runs)
    told = {"seed": seed, "machine": platform.platform(), "cores": os.cpu_count(), "load_before": load,
            "load_after": os.getloadavg(), "build": str(arguments.build), "runs": runs}
    say(f"load of the machine: {load[0]:.2f} before, {told['load_after'][0]:.2f} after, {told['cores']} cores")
    if arguments.json:
        arguments.json.write_text(json.dumps(told, indent=1), encoding="utf-8")
    sys.exit(0 if is_well else 1)


if __name__ == "__main__":
    main()

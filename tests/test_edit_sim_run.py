#!/usr/bin/env python3
"""`edit-sim run`: the same bytes on every run and any number of threads, a loss that falls, times that follow from speeds and
links, faults that are left out, runs that begin where others ended, and one line for each scenario that cannot be."""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

SIM, WORKER = (os.path.join(os.environ.get("BUILD", "build"), name) for name in ("edit-sim", "edit-worker"))
FOLDER = tempfile.mkdtemp(prefix="edit-sim-run-")
CONFIG = {"model_type": "llama", "hidden_act": "silu", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 64,
          "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64,
          "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}
REAL = {"run": {"seed": 5, "sync.interval": 4, "penalty.warmup": 2, "tokens": 60000, "eval.tokens": 10000},
        "model": {"config": "config.json"},
        "data": {"file": "text", "context": 32, "batch": 8, "lr": 3e-3},
        "nodes": {"count": 3}}
TIMING = {"run": {"method": "diloco", "sync.interval": 10, "sync.prefetch": 64, "seconds": 60},
          "model": {"timing": "yes", "layers": 12, "parameters": 100e6, "scale": 64},
          "nodes": {"count": 8}}

BEGIN = "[run]\ntokens = 1e5\n[nodes]\ncount = 2\n"
MODEL = BEGIN + "[model]\nconfig = config.json\n"
DATA = MODEL + "[data]\nfile = text\n"
BAD = [  # text, and what the line must say
    ("[run]\ntokens = 1e5\nspeed = 3\n", ":3: ", "speed"),
    ("[run]\ntokens = -1\n", ":2: [run] tokens: -1 is out of range, expected a whole number from 0 to"),
    ("[run]\ntokens = many\n", ':2: [run] tokens: "many" is not a number'),
    ("[run]\ntokens = 1.5\n", ":2: [run] tokens: 1.5 does not fit"),
    ("[run]\ntokens = 1\ntokens = 2\n", ":3: [run] tokens: given twice"),
    ("[run]\nmethod = sgd\n", ':2: method: "sgd" does not fit, expected', "local-sgd"),
    ("[run]\nsync.interval = 0\n", ":2: sync.interval: 0 is out of range"),
    (BEGIN + "[run]\nmethod = ddp\nsync.period = 5\n", ": [run] sync.period has no meaning"),
    ("[run]\nnode.name = a\n", ":2: node.name: a setting of one daemon"),
    ("seed = 1\n", ":1: seed: stands outside a [section]"),
    ("[ring]\na = 1\n", ":2: [ring]: unknown section, expected run, model, data, nodes or node NAME"),
    ("[node A B]\nspeed = 1\n", ":2: [node A B]: not a name"),
    ("[run]\ntokens = 1\n[nodes]\ncount = 8\nring.fanout = 3\n", ":5: [nodes] ring.fanout: 3, expected a divisor of the 8 nodes"),
    ("[run]\ntokens = 1\n[nodes]\ncount = 8\nring.fanout = 8\n", ":5: [nodes] ring.fanout: 8, expected a divisor of the 8 nodes"),
    ("[nodes]\nwheels = 4\n", ":2: [nodes] wheels: unknown key"),
    ("[node a]\nspeed = 0\n", ":2: [node a] speed: 0 is out of range, expected a number from 1e-06"),
    ("[node a]\nlink.shared = maybe\n", ':2: [node a] link.shared: "maybe" does not fit, expected yes or no'),
    ("[model]\nheads = 4\n", ":2: [model] heads: unknown key"),
    ("[run]\ntokens\n", ":2: expected [section], key = value or a comment"),
    ("[run]\ntokens = 1\n", ": no nodes"),
    (BEGIN + "[node n2]\nspeed = 2\n", ": [node n2]: not one of the nodes, expected n0 to n1"),
    (BEGIN, ": [model] config: not given"),
    ("[nodes]\ncount = 2\n[model]\ntiming = yes\n", ": [run] tokens: not given"),
    (MODEL, ": [data] file: not given"),
    (BEGIN + "[model]\nconfig = none.json\n[data]\nfile = text\n", "none.json"),
    (DATA + "context = 65\n", "64 positions"),
    (DATA + "lr = 1\nmin_lr = 2\n", "min_lr: 2"),
    (BEGIN + "[model]\ntiming = yes\nscale = 65536\n", "scale: wire.chunk"),
    (DATA + "context = 32\n[model]\nstart = none\n", ":11: [model] start: ", "/none: has neither model.safetensors nor"),
    (DATA + "[model]\nstart =\n", ':10: [model] start: "" does not fit, expected 1 to'),
    (BEGIN + "[model]\ntiming = yes\nstart = none\n", ":7: [model] start has no meaning with timing"),
    (DATA + "type = x\n", "type: 'x', expected auto"),
]


def path(name):
    return os.path.join(FOLDER, name)


def check(condition, what):
    if not condition:
        sys.exit(f"test_edit_sim_run: {what}")


def write(name, text):
    with open(path(name), "w", encoding="utf-8") as file:
        file.write(text)
    return path(name)


def scenario(base, changes=None):
    """base with the changes: {section: {key: value}}; None takes a key away."""
    whole = {section: dict(keys) for section, keys in base.items()}
    for section, keys in (changes or {}).items():
        whole.setdefault(section, {}).update(keys)
    lines = []
    for section, keys in whole.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {value}" for key, value in keys.items() if value is not None]
    return write("scenario.ini", "\n".join(lines) + "\n")


def run(*arguments):
    done = subprocess.run([SIM, "run", *arguments], capture_output=True, text=True, timeout=250)
    return done.returncode, done.stdout, done.stderr


def lines_of(base, changes=None, out="out", arguments=()):
    """The events of a run, by kind."""
    status, output, error = run(scenario(base, changes), "--out", path(out), "--no-plots", *arguments)
    check(status == 0 and error == "", f"status {status}: {output}{error}")
    events = {"round": [], "eval": [], "end": []}
    with open(path(out + "/lines.json"), encoding="utf-8") as file:
        for line in file:
            event = json.loads(line)
            events[event["event"]].append(event)
    return events


def bytes_of(out):
    texts = []
    for name in ("lines.json", "loss.tsv", "timeline.tsv", "model/config.json", "model/model.safetensors"):
        with open(path(f"{out}/{name}"), "rb") as file:
            texts.append(file.read())
    return texts


def same_scenario_gives_the_same_bytes_on_any_number_of_threads():
    for method in ("edit", "co2", "ddp"):
        changes = {"run": {"method": method, "tokens": 30000}, "node n1": {"speed": 0.7, "speed.spread": 0.3}}
        for out, threads in (("one", "1"), ("two", "2"), ("again", "2")):
            lines_of(REAL, changes, out, ("--threads", threads))
        check(bytes_of("one") == bytes_of("two"), f"{method}: one thread and two give different bytes")
        check(bytes_of("two") == bytes_of("again"), f"{method}: two runs give different bytes")


def loss_falls_with_every_method():
    for method in ("edit", "a-edit", "diloco", "local-sgd", "co2", "ddp"):
        period = {"sync.period": 5} if method == "a-edit" else {}
        events = lines_of(REAL, {"run": {"method": method, **period}})
        first, last = events["eval"][0]["loss"], events["eval"][-1]["loss"]
        check(5.4 < first < 5.7, f"{method}: a new model has loss {first}")
        check(last < 3.7, f"{method}: loss falls from {first} to {last} only")
        check(events["end"][0]["loss"] == last and events["end"][0]["method"] == method, f"{method}: {events['end']}")
        check(events["end"][0]["tokens"] >= 60000, f"{method}: ends before its budget")
        check(events["end"][0]["left_out"] == 0 or method.endswith("edit"), f"{method}: leaves layers out")


def others_wait_for_a_slow_node():
    events = lines_of(REAL, {"node n1": {"straggler.consistent": 3}})
    for event in events["round"][:-3]:
        slow = event["node"] == "n1"
        check(event["compute_us"] == (12000000 if slow else 4000000), f"compute: {event}")
        check(abs(event["waiting_us"] - (0 if slow else 8000000)) < 1000, f"waiting: {event}")
        check(event["exposed_us"] < 100000, f"exposed: {event}")
    by_time = lines_of(REAL, {"run": {"method": "a-edit", "sync.period": 8}, "node n1": {"straggler.consistent": 3}})
    end, end_by_time = events["end"][0], by_time["end"][0]
    check(end_by_time["waiting_us"] < end["waiting_us"] / 3, "by time the others wait as long")
    check(end_by_time["tokens_per_second"] > 1.5 * end["tokens_per_second"], "by time it is no faster")


def speeds_and_stragglers_add_up():
    base = {**TIMING, "nodes": {"count": 4, "speed": 4, "link.mbit": 1e6, "link.latency_ms": 0.001}}
    half = {"straggler.periodic": 3, "straggler.period_s": 20, "straggler.duration_s": 10}
    for node, step_us in ({}, 250000), ({"speed": 2}, 500000), ({"straggler.consistent": 1.5}, 375000):
        rounds = [e for e in lines_of(base, {"node n2": node})["round"] if e["node"] == "n2"]
        check(rounds[1]["compute_us"] == 10 * step_us, f"{node}: {rounds[1]}")
    rounds = [e for e in lines_of(base, {"node n2": half})["round"] if e["node"] == "n2"]
    steps = {e["compute_us"] // e["steps"] for e in rounds}
    check(min(steps) == 250000 and max(steps) == 750000, f"periodic: {steps}")
    events = lines_of(base, {"nodes": {"straggler.random": 5}})["round"]
    slowed = sum((e["compute_us"] - 250000 * e["steps"]) // 1000000 for e in events)
    steps = sum(e["steps"] for e in events) / 4
    check(0.9 * steps <= slowed <= steps, f"random: {slowed} steps are slow, of {steps}")


def ring_takes_as_long_as_the_formula_says():
    for nodes, mbit, shared, scale in (8, 1000, "no", 64), (8, 1000, "no", 16), (4, 200, "no", 64), (8, 1000, "yes", 64):
        changes = {"model": {"scale": scale}, "nodes": {"count": nodes, "link.mbit": mbit, "link.latency_ms": 0.05},
                   "node n1": {"link.shared": shared}}
        event = lines_of(TIMING, changes)["round"][nodes]
        expected = 2 * (nodes - 1) / nodes * 4 * 100e6 / (mbit * 1e6 / 8) * (2 if shared == "yes" else 1)
        check(abs(1e-6 * event["exposed_us"] / expected - 1) < 0.04, f"{changes}: {event}, expected {expected:.3f} s")
        sent = 2 * (nodes - 1) / nodes * 4 * 100e6
        check(abs(event["bytes"] / sent - 1) < 0.01, f"{changes}: {event['bytes']} bytes, expected {sent:.0f}")


def forward_hides_what_none_exposes():
    changes = {"nodes": {"link.mbit": 4000}}
    exposed = lines_of(TIMING, changes)["end"][0]["exposed_us"]
    hidden = lines_of(TIMING, {**changes, "run": {"method": "edit", "sync.prefetch": 2}})["end"][0]["exposed_us"]
    check(hidden < 0.9 * exposed, f"{hidden} us with overlap, {exposed} us without")


def ddp_hides_what_its_backward_pass_covers():
    events = lines_of(TIMING, {"run": {"method": "ddp"}})["round"]
    ring_s, backward_s = 2 * 7 / 8 * 4 * 100e6 / 125e6, 2 / 3 * 11 / 12  # until the first gradient is there nothing is sent
    check(abs(1e-6 * events[8]["exposed_us"] / (ring_s - backward_s) - 1) < 0.02, f"{events[8]}, expected {ring_s - backward_s}")
    check(events[8]["steps"] == 1 and events[8]["compute_us"] == 1000000, f"{events[8]}")


def late_nodes_hold_nobody_up():
    slow = {"node n1": {"straggler.consistent": 4}}
    waits = lines_of(REAL, slow)["end"][0]
    events = lines_of(REAL, {"run": {"straggler.grace": 1.5}, **slow})
    late = {e["node"] for e in events["round"] if e["verdicts"].get("late")}
    check(late == {"n1"}, f"late: {late}")
    check(events["end"][0]["waiting_us"] < waits["waiting_us"] / 2, f"{events['end']}, without grace {waits}")
    check(events["end"][0]["loss"] < 3.7, f"{events['end']}")


def gradients_are_averaged_while_it_warms_up():
    events = lines_of(REAL, {"run": {"sync.warmup_steps": 10}})
    steps = [e["steps"] for e in events["round"] if e["node"] == "n0"]
    check(steps[:10] == [0] + 9 * [1] and steps[10:13] == [5, 4, 4], f"steps by rounds: {steps}")
    check(events["end"][0]["loss"] < 3.7, f"{events['end']}")


def bad_nodes_are_left_out():
    for fault, verdict in (("nan", "nonfinite"), ("scale", "outlier")):
        node = {f"{fault}.from": 60, f"{fault}.steps": 4, f"{fault}.every": 0}
        events = lines_of(REAL, {"run": {"penalty.warmup": 8, "tokens": 90000}, "node n2": node})
        guilty = [e for e in events["round"] if e["verdicts"].get(verdict)]
        check(guilty and {e["node"] for e in guilty} == {"n2"}, f"{fault}: {[(e['node'], e['round']) for e in guilty]}")
        check(events["end"][0]["loss"] < 3.7, f"{fault}: {events['end']}")
    plain = lines_of(REAL, {"run": {"tokens": 20000}})["end"][0]["loss"]
    corrupt = {"corrupt.from": 1, "corrupt.steps": 1000}
    spoilt = lines_of(REAL, {"run": {"tokens": 20000, "method": "diloco"}, "node n2": corrupt})["end"][0]["loss"]
    check(spoilt != plain, "shuffled tokens change nothing")


def evaluated(folder, *arguments):
    done = subprocess.run([WORKER, "eval", "--model", folder, "--data", path("text"), "--json", *arguments], capture_output=True,
                          text=True, timeout=250)
    check(done.returncode == 0 and done.stderr == "", f"eval: status {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def run_begins_where_another_one_ended():
    whole = {"eval.samples": 1000000}
    for method in ("edit", "co2", "ddp"):
        last = lines_of(REAL, {"run": {"method": method, "tokens": 20000, **whole}}, "first")["eval"][-1]["loss"]
        # The worker also measures what is too short for a window.
        by_worker = evaluated(path("first/model"), "--holdout", "0.1", "--context", "32")["loss"]
        check(abs(by_worker - last) < 1e-3, f"{method}: edit-worker measures {by_worker}, edit-sim {last}")
        for count in 1, 5:
            changes = {"run": {"seed": 6, "tokens": 30000, **whole}, "model": {"start": "first/model"}, "nodes": {"count": count}}
            events = lines_of(REAL, changes, "next")
            check(events["eval"][0]["loss"] == last, f"{method}: ends with {last}, {count} nodes begin with {events['eval'][0]}")
            check(events["end"][0]["loss"] < last - 0.1, f"{method}: {count} nodes go on from {last} to {events['end']}")


def model_that_does_not_fit_gets_one_line():
    lines_of(REAL, {"run": {"tokens": 3000}}, "wide")
    narrow = {**CONFIG, "hidden_size": 16}
    write("narrow.json", json.dumps(narrow))
    place = path("scenario.ini") + ":9: [model] start: " + path("wide/model/model.safetensors")
    for config, damage, status, words in (("narrow.json", "", 2, "tensor model.embed_tokens.weight"), ("config.json", "x", 1, "")):
        if damage:
            write("wide/model/model.safetensors", damage)
        got, out, error = run(scenario(REAL, {"model": {"config": config, "start": "wide/model"}}), "--out", path("never"))
        check(got == status and out == "" and error.count("\n") == 1, f"{config}: status {got}, {out!r}, {error!r}")
        check(error.startswith(f"edit-sim: {place}: ") and words in error, f"{config}: {error!r}, expected {place} {words}")
    check(not os.path.exists(path("never")), "a folder was made for a model that does not fit")


def pictures_are_drawn():
    status, output, error = run(scenario(REAL, {"run": {"tokens": 6000}}), "--out", path("pictures"))
    check(status == 0 and error == "" and output.count("\n") == 2 and output.startswith("method "), f"{output}{error}")
    for name in ("loss-tokens", "loss-time", "timeline"):
        with open(path(f"pictures/{name}.png"), "rb") as file:
            check(file.read(8) == b"\x89PNG\r\n\x1a\n", f"{name}.png is none")
        with open(path(f"pictures/{name}.svg"), encoding="utf-8") as file:
            check("</svg>" in file.read(), f"{name}.svg is none")


def bad_scenarios_get_one_line_and_the_right_status():
    for text, *words in BAD:
        status, out, error = run(write("bad.ini", text), "--out", path("never"))
        check(status == (1 if "none.json" in text else 2) and out == "", f"{text!r}: status {status}, output {out!r}, {error}")
        check(error.count("\n") == 1 and error.startswith("edit-sim: "), f"{text!r}: {error!r}")
        check(all(word in error for word in words), f"{text!r}: {error!r}, expected {words}")
    check(not os.path.exists(path("never")), "a folder was made for a scenario that was refused")


def bad_arguments_get_one_line_and_status_2():
    good = scenario(REAL)
    for arguments, words in [((), "SCENARIO is missing"), ((good, "more"), "one SCENARIO only"), (("--threads", "0", good), "--threads 0"),
                             (("--threads", "x", good), "--threads x"), (("--threads", "1025", good), "1 to 1024")]:
        status, out, error = run(*arguments)
        check(status == 2 and out == "", f"{arguments}: status {status}, output {out!r}")
        check(words in error and error.count("\n") == 1, f"{arguments}: {error!r}")
    status, _, error = run(path("missing.ini"))
    check(status == 1 and "missing.ini: cannot be read" in error, f"missing file: {status} {error}")
    status, out, error = run("--keys")
    check(status == 0 and "straggler.periodic" in out and "eval.tokens" in out, f"--keys: {out}{error}")
    status, out, error = run("--help")
    check(status == 0 and "Usage: edit-sim run" in out and "--keys" in out, f"--help: {out}{error}")


TESTS = (same_scenario_gives_the_same_bytes_on_any_number_of_threads, loss_falls_with_every_method, others_wait_for_a_slow_node,
         speeds_and_stragglers_add_up, ring_takes_as_long_as_the_formula_says, forward_hides_what_none_exposes,
         ddp_hides_what_its_backward_pass_covers, late_nodes_hold_nobody_up, gradients_are_averaged_while_it_warms_up,
         bad_nodes_are_left_out, run_begins_where_another_one_ended, model_that_does_not_fit_gets_one_line, pictures_are_drawn, bad_scenarios_get_one_line_and_the_right_status,
         bad_arguments_get_one_line_and_status_2)

if __name__ == "__main__":
    try:
        write("config.json", json.dumps(CONFIG))
        generator = random.Random(7)
        write("text", " ".join(generator.choice("the of and to in that was his with for as had you not be her on at".split())
                               for _ in range(20000)))
        for test in TESTS:
            if len(sys.argv) < 2 or test.__name__ in sys.argv[1:]:
                test()
        print("test_edit_sim_run: ok")
    finally:
        shutil.rmtree(FOLDER)

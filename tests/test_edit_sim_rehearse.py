#!/usr/bin/env python3
"""`edit-sim rehearse`: traces made by hand, of which every number is known, under the same and under other settings; and one line
for each trace that is none. Traces of real rings: tests/system/test_trace.py."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

SIM = os.path.join(os.environ.get("BUILD", "build"), "edit-sim")
FOLDER = tempfile.mkdtemp(prefix="edit-sim-rehearse-")
SETTINGS = {"method": "local-sgd", "sync.interval": 10, "sync.overlap": "none", "outer.lr": 1, "outer.momentum": 0,
            "penalty.threshold": 1e30, "penalty.temperature": 1e30, "penalty.clip": 1e30}
TOKENS = 1000  # of a step


def check(condition, what):
    if not condition:
        sys.exit(f"test_edit_sim_rehearse: {what}")


def near(number, expected, what, part=0.015):
    check(abs(number - expected) <= part * abs(expected) + 1e-9, f"{what}: {number}, expected {expected}")


def head(names, layers):
    return {"version": 1, "command": "trace", "name": names[0], "first_round": 1, "members": names,
            "layers": [{"name": f"block {i}", "size": size} for i, size in enumerate(layers)]}


def trace(step_s, transfer_s, rounds=20, layers=(1_000_000,) * 12, settings=None):
    """Lines of a ring whose workers wait for all layers. step_s: of each member, in seconds, or a list with one number for each round
    of it. transfer_s: from the last offer to the end of the round."""
    names = [f"m{rank}" for rank in range(len(step_s))]
    settings = {**SETTINGS, **(settings or {})}
    interval, count = settings["sync.interval"], len(names)
    lines, end, before = [head(names, layers)], 0, [0] * count
    for number in range(1, rounds + 1):
        busy = [interval * (step[number % len(step)] if isinstance(step, list) else step) for step in step_s]
        end += max(busy) + transfer_s
        lines.append({
            "round": number, "end_us": round(1e6 * end), "sync_us": round(1e6 * (max(busy) - busy[0] + transfer_s)),
            "bytes": 8 * sum(layers) * (count - 1) // count, "settings": settings,
            "members": [{"name": name, "steps": interval, "tokens": TOKENS * interval, "interval_us": round(1e6 * b),
                         "exposed_us": round(1e6 * exposed), "lateness_us": round(1e6 * (b - min(busy)))}
                        for name, b, exposed in zip(names, busy, before)],
            "layers": [{"scalars_us": 1500 if i > 2 else 0, "reduce_us": 0, "gather_us": 0} for i in range(len(layers))]})
        before = [max(busy) - b + transfer_s for b in busy]
    return lines


def write(lines):
    path = os.path.join(FOLDER, "trace.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    return path


def run(*arguments):
    done = subprocess.run([SIM, "rehearse", *map(str, arguments)], capture_output=True, text=True, timeout=250)
    return done.returncode, done.stdout, done.stderr


def rehearse(lines, *arguments):
    status, output, error = run(write(lines), "--json", *arguments)
    check(status == 0 and error == "" and output.count("\n") == 1, f"status {status}: {output}{error}")
    return json.loads(output)


def known_ring_gives_known_numbers():
    # Ten steps of 0.3 s, then 2 s on the ring; the other three do theirs in 1 s.
    told = rehearse(trace([0.1, 0.1, 0.1, 0.3], 2), "--set", "sync.interval=40")
    for name in ("recorded", "calibrated"):
        near(told[name]["round_s"], 5, f"{name}: a round")
        near(told[name]["tokens_per_second"], 4 * 10 * TOKENS / 5, f"{name}: tokens")
        near(told[name]["transfer_us"], 2e6, f"{name}: transfer")
        for member, waiting in zip(told[name]["members"], (40, 40, 40, 0)):
            near(member["waiting_percent"], waiting, f"{name}: waiting of {member['name']}")
            near(member["exposed_percent"], 40, f"{name}: exposed of {member['name']}")
    check(abs(told["error_percent"]) < 1, f"error {told['error_percent']}")
    # 72 MB by each member; what is left of 2 s beside the latency of twelve layers is bandwidth.
    near(told["links"]["latency_ms"], 0.5, "latency")
    near(told["links"]["mbit"], 8 * 72 / 2, "bandwidth", 0.1)
    rehearsed = told["rehearsed"]
    near(rehearsed["round_s"], 40 * 0.3 + 2, "rehearsed: a round")
    near(rehearsed["rounds_per_hour"], 3600 / 14, "rehearsed: rounds per hour")
    near(rehearsed["tokens_per_second"], 4 * 40 * TOKENS / 14, "rehearsed: tokens")
    near(rehearsed["members"][0]["waiting_percent"], 100 * 8 / 14, "rehearsed: waiting")
    near(rehearsed["exposed_percent"], 100 * 2 / 14, "rehearsed: exposed")
    check(told["settings"] == {"sync.interval": 40}, f"settings {told['settings']}")


def steps_are_replayed_in_order():
    # The second member is slow in every other round.
    lines = trace([0.1, [0.1, 0.3]], 0.5, rounds=22)
    told = rehearse(lines, "--set", "sync.interval=20")
    near(told["calibrated"]["round_s"], (1 + 3) / 2 + 0.5, "one sample a round")
    near(told["rehearsed"]["round_s"], 1 + 3 + 0.5, "two samples a round")
    told = rehearse(lines, "--set", "sync.interval=5")
    near(told["rehearsed"]["round_s"], (0.5 + 0.5 + 1.5 + 1.5) / 4 + 0.5, "half a sample a round", 0.05)


def rounds_by_time_leave_nobody_waiting_for_the_slowest():
    told = rehearse(trace([0.1, 0.1, 0.4], 0.2), "--method", "a-edit", "--set", "sync.period=3")
    rehearsed = told["rehearsed"]
    check(told["settings"] == {"method": "a-edit", "sync.period": 3}, f"settings {told['settings']}")
    check(3.1 < rehearsed["round_s"] < 3.7, f"a round of {rehearsed['round_s']} s")
    check(rehearsed["waiting_percent"] < 6 < 30 < told["recorded"]["waiting_percent"], f"waiting {rehearsed['waiting_percent']}")
    check(rehearsed["tokens_per_second"] > 1.5 * told["recorded"]["tokens_per_second"], "no more tokens by time")


def large_models_are_as_fast_to_rehearse():
    # 700 million parameters on four members: by their sizes alone 34 GB.
    told = rehearse(trace([0.5] * 3 + [0.6], 8, layers=(58_000_000,) * 12), "--set", "sync.interval=100")
    near(told["calibrated"]["round_s"], 14, "a round")
    near(told["rehearsed"]["round_s"], 68, "a round of a hundred steps")


def only_the_last_settings_count():
    lines = trace([0.1, 0.1], 0.1, rounds=8)
    later = trace([0.1, 0.1], 0.1, rounds=16, settings={"sync.interval": 30})
    told = rehearse(lines + later[9:])
    check((told["skipped"], told["first_round"], told["round"]) == (7, 9, 16), f"rounds {told}")
    near(told["recorded"]["round_s"], 3.1, "a round")
    # The same after the daemon was started anew: its first line comes again, its first round tells nothing.
    lines = trace([0.1, 0.1], 0.1, rounds=8)
    told = rehearse(lines + [{**lines[0], "first_round": 0}] + [{**line, "round": line["round"] + 8} for line in lines[1:]])
    check((told["recorded"]["rounds"], told["skipped"]) == (6 + 6, 0), f"rounds {told['recorded']}")
    near(told["recorded"]["round_s"], 1.1, "a round")


def one_member_has_no_links():
    told = rehearse(trace([0.2], 0.0), "--set", "sync.interval=50")
    near(told["recorded"]["round_s"], 2, "a round")
    near(told["rehearsed"]["round_s"], 10, "a round of fifty steps")


def text_tells_the_same_and_without_a_change_two_rows():
    path = write(trace([0.1, 0.3], 1))
    status, output, error = run(path)
    check(status == 0 and error == "", f"status {status}: {error}")
    check("2 members, 12 layers, 1.2e+07 parameters, rounds 2 to 20" in output, output)
    check("recorded" in output and "calibrated" in output and "rehearsed  " not in output, output)
    status, output, _ = run(path, "--method", "diloco", "--set", "sync.interval=20")
    rows = [line.split() for line in output.splitlines() if line.startswith("rehearsed")]
    check(status == 0 and len(rows) == 1 and rows[0][-2:] == ["method=diloco", "sync.interval=20"], output)
    check([line.split()[0] for line in output.splitlines()[-2:]] == ["m0", "m1"], output)
    check(run(path, "--set", "sync.interval=20", "--json") == run(path, "--json", "--set", "sync.interval=20"), "not the same twice")


def changed(change):
    """A good trace with one fault, made by change(lines)."""
    lines = json.loads(json.dumps(trace([0.1, 0.2], 0.1, rounds=6, layers=(10, 20))))
    return change(lines) or lines


def put(line, *keys, value):
    def change(lines):
        place = lines[line]
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value
    return change


BAD = [  # change, and what the line must say after the file's name
    (lambda lines: [""], ":1: "),
    (lambda lines: ["{"], ":1: "),
    (lambda lines: ["[1]"], ":1: not an object"),
    (lambda lines: lines[1:], ":1: command: expected \"trace\""),
    (put(0, "command", value="status"), ":1: command: expected \"trace\""),
    (put(0, "version", value=2), ":1: version: expected 1"),
    (put(0, "members", value=[]), ":1: members: expected a list of 1 to 1024"),
    (put(0, "members", 0, value="A b"), ":1: members: expected names"),
    (put(0, "name", value="m7"), ":1: name: expected one of the members"),
    (put(0, "layers", 1, "size", value=-1), ":1: size: expected a whole number from 0 to 2^53 - 1"),
    (put(0, "layers", 1, "size", value=2**50), ":1: size: expected at most 2^40"),
    (put(0, "layers", value=[{"size": 0}]), ":1: size: expected a layer that is not empty"),
    (put(3, "members", value=[{}]), ":4: members: expected a list of 2"),
    (put(3, "members", 1, "name", value="m0"), ":4: members: expected the members of the first line"),
    (put(3, "members", 1, "interval_us", value=1.5), ":4: interval_us: expected a whole number"),
    (put(3, "members", 1, "steps", value="10"), ":4: steps: expected a whole number"),
    (put(3, "layers", value=[]), ":4: layers: expected a list of 2"),
    (put(3, "settings", value=3), ":4: settings: expected an object"),
    (put(3, "settings", "sync.intervall", value=3), ":4: settings: unknown setting sync.intervall, did you mean sync.interval?"),
    (put(3, "settings", "node.heartbeat_ms", value=3), ":4: node.heartbeat_ms: expected a setting of the ring"),
    (put(3, "settings", "sync.interval", value=0), ":4: sync.interval: expected a value that the setting can have"),
    (put(3, "settings", "method", value="sgd"), ":4: settings: method: \"sgd\" does not fit"),
    (put(3, "round", value=2), ":4: round: expected more than in the line before"),
    (put(3, "end_us", value=5), ":4: end_us: expected more than in the line before"),
    (lambda lines: lines[:3], ":3: 1 rounds in a row"),
    (lambda lines: lines[:1], ":1: 0 rounds in a row"),
    (put(6, "settings", "sync.interval", value=11), ":7: 1 rounds in a row"),
    (lambda lines: lines + [head(["m0", "m2"], (10, 20))], ":8: members, layers: expected the same ring"),
    (lambda lines: lines[:3] + ['{"round": 3, "end'], ":4: "),
    (lambda lines: [lines[0]] + [{**line, "members": [line["members"][0], {**line["members"][1], "steps": 0}]}
                                 for line in lines[1:]], ":7: member m1 has done no step"),
]


def bad_traces_get_one_line_and_status_2():
    check(rehearse(changed(lambda lines: None))["round"] == 6, "the good trace is not good")
    for number, (change, expected) in enumerate(BAD):
        path = write(changed(change))
        status, output, error = run(path)
        check(status == 2 and output == "", f"trace {number}: status {status}, {output!r}, {error!r}")
        check(error.startswith(f"edit-sim: {path}{expected}") and error.count("\n") == 1, f"trace {number}: {error!r}")
    path = write([])
    check(run(path) == (2, "", f"edit-sim: {path}: empty, expected what editctl trace writes\n"), f"empty: {run(path)}")
    status, output, error = run(os.path.join(FOLDER, "none"))
    check(status == 1 and output == "" and "cannot be read (No such file" in error, error)


def bad_arguments_get_one_line_and_status_2():
    path = write(trace([0.1, 0.1], 0.1, rounds=6, layers=(10,)))
    for arguments, words in [((), "TRACE is missing"), ((path, path), "expected one TRACE only"),
                             ((path, "--set", "sync.interval"), "expected SETTING=VALUE"),
                             ((path, "--set", "sync.interval=0"), "sync.interval: 0 is out of range"),
                             ((path, "--set", "node.name=a"), "node.name: a setting of one daemon"),
                             ((path, "--set", "sync.intervall=5"), "did you mean sync.interval?"),
                             ((path, "--method", "sgd"), '"sgd" does not fit'),
                             ((path, "--method", "ddp", "--set", "sync.period=5"), "sync.period has no meaning")]:
        status, output, error = run(*arguments)
        check(status == 2 and output == "", f"{arguments}: status {status}, {output!r}, {error!r}")
        check(words in error and error.count("\n") == 1, f"{arguments}: {error!r}")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([SIM, "rehearse", path], stdout=full, stderr=subprocess.PIPE, text=True)
    check(done.returncode == 1 and done.stderr == "edit-sim: standard output cannot be written\n", done.stderr)


if __name__ == "__main__":
    try:
        for test in (known_ring_gives_known_numbers, steps_are_replayed_in_order, rounds_by_time_leave_nobody_waiting_for_the_slowest,
                     large_models_are_as_fast_to_rehearse, only_the_last_settings_count, one_member_has_no_links,
                     text_tells_the_same_and_without_a_change_two_rows, bad_traces_get_one_line_and_status_2,
                     bad_arguments_get_one_line_and_status_2):
            test()
    finally:
        shutil.rmtree(FOLDER)

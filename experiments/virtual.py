#!/usr/bin/env python3
"""The experiments in virtual time: which method learns how much from the same tokens, and what stragglers, links and damaged
data cost it. Every run is a scenario of `edit-sim run`, kept with its lines in OUT/SIZE/runs, so a second call goes on where the
first one stopped.

    experiments/virtual.py [--size small|usual|full] [--build build] [--out build/experiments] [E1 E2 E3 E4 ...]

Prints the tables of docs/experiments.md. Text: Debian's dict-gcide and dict-foldoc, 2 % of each held out.
"""

import argparse
import concurrent.futures
import gzip
import hashlib
import json
import math
import pathlib
import shutil
import subprocess
import sys
import time

METHODS = ("ddp", "edit", "a-edit", "diloco", "co2", "local-sgd")
DICTIONARIES = ("gcide", "foldoc")
HELD_OUT = 0.02
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # Student's t, two-sided, by the number of values

# hidden, feed-forward, layers, heads: parameters of a byte-level Llama
MODELS = {"small": (32, 64, 2, 2), "usual": (128, 352, 4, 4), "full": (128, 352, 4, 4)}
# tokens of a run, sequences of a node's step, bytes of a sequence, interval, learning rates to choose from, seeds, intervals of E4
SIZES = {
    "small": {"tokens": 24576, "batch": 1, "context": 64, "interval": 8, "rates": (2e-3, 4e-3), "seeds": (1,),
              "intervals": (4, 8)},
    "usual": {"tokens": 131072, "batch": 1, "context": 128, "interval": 8, "rates": (1e-3, 2e-3, 4e-3), "seeds": (1, 2, 3),
              "intervals": (4, 8, 16, 32)},
    "full": {"tokens": 16777216, "batch": 4, "context": 128, "interval": 32, "rates": (1e-3, 2e-3, 4e-3), "seeds": (1, 2, 3),
             "intervals": (8, 16, 32, 64, 128, 256, 512)},
}


class Lab:
    """Runs scenarios and remembers what came of them."""

    def __init__(self, arguments):
        self.build, self.out, self.size = arguments.build.resolve(), arguments.out.resolve() / arguments.size, arguments.size
        self.plan = SIZES[arguments.size]
        self.begin, self.count = time.monotonic(), 0
        self.out.mkdir(parents=True, exist_ok=True)
        self.write_model()
        self.write_text(arguments.dictionaries)

    def write_model(self):
        hidden, feed, layers, heads = MODELS[self.size]
        (self.out / "config.json").write_text(json.dumps({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "vocab_size": 256,
            "hidden_size": hidden, "intermediate_size": feed, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": heads, "max_position_embeddings": self.plan["context"], "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "tie_word_embeddings": False}))

    def write_text(self, folder):
        """What is held out stands at the end: of every dictionary its last part."""
        path = self.out / "text.txt"
        if path.exists():
            return
        texts = []
        for name in DICTIONARIES:
            source = folder / f"{name}.dict.dz"
            if not source.exists():
                sys.exit(f"{source}: not there; install dict-{name}")
            texts.append(gzip.open(source).read())
        if self.size == "small":
            texts = [text[:200000] for text in texts]
        cuts = [int(len(text) * (1 - HELD_OUT)) for text in texts]
        train = b"".join(text[:cut] for text, cut in zip(texts, cuts))
        rest = b"".join(text[cut:] for text, cut in zip(texts, cuts))
        path.write_bytes(train + rest)

    def run(self, name, run, data=None, nodes=None, others=None, model=None):
        """Runs a scenario, unless the same one has been run before; returns its last line."""
        sections = {"run": run, "model": model or {"config": "../../config.json"}, "data": data, "nodes": nodes or {"count": 8},
                    **{f"node {node}": keys for node, keys in (others or {}).items()}}
        text = "".join(f"[{title}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items())
                       for title, keys in sections.items() if keys)
        folder = self.out / "runs" / hashlib.sha256(text.encode()).hexdigest()[:16]
        scenario, lines = folder / "scenario.ini", folder / "lines.json"
        if not (lines.exists() and '"event":"end"' in lines.read_text()):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            scenario.write_text(text)
            done = subprocess.run([self.build / "edit-sim", "run", "--no-plots", "--out", folder, scenario],
                                  capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{scenario}: edit-sim run exits with {done.returncode}\n{done.stderr}")
            self.count += 1
            print(f"  {time.monotonic() - self.begin:6.0f} s  {name}", file=sys.stderr, flush=True)
        return json.loads(lines.read_text().splitlines()[-1])

    def learn(self, name, method, seed, rate, settings=None, nodes=None, others=None, data=None, part=1):
        """A run of the model, on a part (1 / part) of the tokens; returns its held-out loss at the end, nats per byte."""
        plan = self.plan
        tokens = plan["tokens"] // part
        run = {"seed": seed, "method": method, "tokens": tokens, "eval.tokens": tokens // 2, "eval.samples": 64,
               "sync.interval": plan["interval"], **({"sync.period": plan["interval"]} if method == "a-edit" else {}),
               **(settings or {})}
        data = {"file": "../../text.txt", "type": "text", "holdout": HELD_OUT, "context": plan["context"], "batch": plan["batch"],
                "lr": rate, **(data or {})}
        end = self.run(name, run, data, nodes or {"count": 8, "speed.spread": 0.05}, others)
        return end["loss"]

    def best_rate(self, name, method, **more):
        """The learning rate that is best with seed 0 on half the tokens: the same ones are tried with every method."""
        return min(self.plan["rates"], key=lambda rate: self.learn(f"grid/{name}-{rate:g}", method, 0, rate, part=2, **more))


def spread(values):
    """Mean, and half the width of its 95 % confidence interval (nan for a single value)."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, T_95[len(values)] * math.sqrt(variance / len(values))


def table(title, head, rows):
    print(f"\n### {title}\n\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    sys.stdout.flush()


def with_spread(values):
    mean, half = spread(values)
    return f"{mean:.4f}" if math.isnan(half) else f"{mean:.4f} ± {half:.4f}"


def compared(values, others):
    """Mean difference seed by seed, and whether it can be told from nothing."""
    mean, half = spread([a - b for a, b in zip(values, others)])
    if math.isnan(half):
        return f"{mean:+.4f}"
    return f"{mean:+.4f} ± {half:.4f}" + (" (tie)" if abs(mean) <= half else "")


def e1(lab):
    """Convergence at equal tokens."""
    seeds, batch = lab.plan["seeds"], lab.plan["batch"]
    alone = {"nodes": {"count": 1}, "data": {"batch": 8 * batch}}
    losses, rates = {}, {}
    for method in METHODS + ("one node",):
        more = alone if method == "one node" else {}
        name = method.replace(" ", "-")
        known = "local-sgd" if method == "one node" else method
        rates[method] = lab.best_rate(name, known, **more)
        losses[method] = [lab.learn(f"E1/{name}-{seed}", known, seed, rates[method], **more) for seed in seeds]
    order = sorted(losses, key=lambda method: spread(losses[method])[0])
    table(f"E1: held-out loss after {lab.plan['tokens']} tokens, 8 nodes, interval {lab.plan['interval']}",
          ("method", "learning rate", "loss, nats per byte", "against ddp"),
          [(method, f"{rates[method]:g}", with_spread(losses[method]), compared(losses[method], losses["ddp"]))
           for method in order])


# E2: method, settings, name
TIMED = (("ddp", {}, "ddp"), ("local-sgd", {}, "local-sgd"), ("diloco", {}, "diloco"), ("co2", {}, "co2"), ("edit", {}, "edit"),
         ("edit", {"straggler.grace": 1.1}, "edit, grace 1.1"), ("edit", {"sync.overlap": "steps"}, "edit, overlap steps"),
         ("a-edit", {}, "a-edit"))


def steps_per_second(lab, name, method, settings, nodes, others=None):
    """Of all nodes together, for 100 million parameters, a step of 1 s, interval 128, period 128 s."""
    seconds = {"small": 400, "usual": 5200, "full": 20000}[lab.size]
    run = {"method": method, "sync.interval": 128, "seconds": 300 if method == "ddp" else seconds, "wire.chunk": 1048576,
           "eval.seconds": seconds,
           **({"sync.period": 128} if method == "a-edit" else {}), **settings}
    end = lab.run(name, run, {"batch": 1, "context": 1}, {"count": 8, "speed": 1, **nodes}, others,
                  {"timing": "yes", "layers": 12, "parameters": 100000000, "scale": 64})
    return end["tokens"] / (1e-6 * end["time_us"])


def e2(lab):
    """Stragglers and links; only times."""
    near = {"link.mbit": 10000, "link.latency_ms": 0.1}
    reference = steps_per_second(lab, "E2/ddp", "ddp", {}, near)
    cases = (("no straggler", near, None, 8.0), ("a random node 4 x slower at each step", {**near, "straggler.random": 4}, None,
              8 / (7 / 8 + 4 / 8)), ("one node 4 x slower", near, {"n3": {"straggler.consistent": 4}}, 7.25))
    links = [(f"{mbit} Mbit/s", {"link.mbit": mbit, "link.latency_ms": 1}, None, 8.0) for mbit in (1000, 100, 20)]
    runs = [(number, case, timed) for number, case in enumerate((*cases, *links)) for timed in TIMED]

    def rate_of(run):
        number, (_, nodes, others, _), (method, settings, name) = run
        return steps_per_second(lab, f"E2/{number}-{name.replace(' ', '-').replace(',', '')}", method, settings, nodes, others)

    with concurrent.futures.ThreadPoolExecutor(2) as pool: # nothing is computed: one thread each
        rows = [(title, name, f"{rate:.2f}", f"{rate / reference:.2f}", f"{100 * rate / ideal:.1f} %")
                for (_, (title, _, _, ideal), (_, _, name)), rate in zip(runs, pool.map(rate_of, runs))]
    head = ("method", "steps/s", "of ddp without stragglers at 10 Gbit/s", "of the nodes' own speeds")
    table("E2 a, b: stragglers, 10 Gbit/s", ("case", *head), rows[:len(cases) * len(TIMED)])
    table("E2 c: links", ("link", *head), rows[len(cases) * len(TIMED):])


OFF = 1e30
PENALTIES = (("full penalty", {}), ("no anomaly elimination", {"penalty.threshold": OFF}), ("no weights", {"penalty.temperature": OFF}),
             ("no clip", {"penalty.clip": OFF}),
             ("none", {"penalty.threshold": OFF, "penalty.temperature": OFF, "penalty.clip": OFF}))


def e3(lab):
    """The penalty: one node with bursts of damaged data."""
    steps = lab.plan["tokens"] // (8 * lab.plan["batch"] * lab.plan["context"])
    interval = max(4, lab.plan["interval"] // 2)
    fixed = {"sync.interval": interval, "penalty.warmup": 6}
    damage = {"n3": {"corrupt.from": steps // 3, "corrupt.steps": interval, "corrupt.every": 5 * interval,
                     "scale.from": steps // 3 + 2 * interval, "scale.every": 5 * interval, "scale.factor": 100,
                     "nan.from": steps // 3 + 4 * interval, "nan.every": 5 * interval}}
    rate = lab.best_rate("edit", "edit")
    clean = {method: lab.learn(f"E3/{method}-clean", method, 1, rate, fixed) for method in ("edit", "diloco")}
    rows = []
    for name, settings in PENALTIES + (("diloco", {}),):
        method = "diloco" if name == "diloco" else "edit"
        hurt = lab.learn(f"E3/{name.replace(' ', '-')}", method, 1, rate, {**fixed, **settings}, others=damage)
        rows.append((name, f"{hurt:.4f}", f"{100 * (hurt / clean[method] - 1):+.2f} %"))
    table(f"E3: one of 8 nodes with bursts of shuffled text, gradients x 100 and NaN; interval {interval}; undamaged: edit "
          f"{clean['edit']:.4f}, diloco {clean['diloco']:.4f}", ("penalty", "loss", "against the undamaged method"), rows)


def e4(lab):
    """The interval."""
    rows = []
    for method in ("edit", "diloco"):
        rate = lab.best_rate(method, method)
        losses = [lab.learn(f"E4/{method}-{interval}", method, 1, rate, {"sync.interval": interval})
                  for interval in lab.plan["intervals"]]
        rows.append((method, *(f"{loss:.4f}" for loss in losses)))
    table("E4: held-out loss by interval, one seed", ("method", *map(str, lab.plan["intervals"])), rows)


def e8(lab):
    """Weights of unequal nodes in rounds by time."""
    rate = lab.best_rate("a-edit", "a-edit")
    unequal = {f"n{n}": {"speed": speed} for n, speed in enumerate((1, 1, 1, 1, 2, 2, 4, 4))}
    rows = []
    for by_steps in ("no", "yes"):
        for temperature in (1, OFF):
            settings = {"penalty.by_steps": by_steps, "penalty.temperature": temperature}
            name = f"{by_steps}-{temperature:g}"
            even = lab.learn(f"E8/even-{name}", "a-edit", 1, rate, settings)
            uneven = lab.learn(f"E8/uneven-{name}", "a-edit", 1, rate, settings, others=unequal)
            rows.append((by_steps, f"{temperature:g}", f"{even:.4f}", f"{uneven:.4f}"))
    table("E8: a-edit, weights by steps and by norm; held-out loss at equal tokens, one seed",
          ("penalty.by_steps", "penalty.temperature", "8 equal nodes", "speeds 1 1 1 1 2 2 4 4"), rows)


EXPERIMENTS = {"E1": e1, "E2": e2, "E3": e3, "E4": e4, "E8": e8}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="usual", help="how large the runs are (default: usual)")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"), help="folder of edit-sim")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/experiments"), help="folder of the runs")
    parser.add_argument("--dictionaries", type=pathlib.Path, default=pathlib.Path("/usr/share/dictd"), help="folder of the texts")
    parser.add_argument("experiments", nargs="*", metavar="E", choices=[[], *EXPERIMENTS],
                        help=f"which ones: {' '.join(EXPERIMENTS)} (default: all)")
    arguments = parser.parse_args()
    lab = Lab(arguments)
    for name in arguments.experiments or EXPERIMENTS:
        EXPERIMENTS[name](lab)
    print(f"\nexperiments: ok ({lab.count} runs made, {time.monotonic() - lab.begin:.0f} s)")


if __name__ == "__main__":
    main()

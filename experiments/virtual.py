#!/usr/bin/env python3
"""The experiments in virtual time: which method learns how much from the same tokens, and what stragglers, links and damaged
data cost it. Every run is a scenario of `edit-sim run`, kept with its lines in OUT/SIZE/runs, so a second call goes on where the
first one stopped.

    experiments/virtual.py [--size small|usual|full|bpe] [--build build] [--out build/experiments] [E1 E2 E3 E4 ...]

Prints the tables of docs/experiments.md. Text: Debian's dict-gcide and dict-foldoc, 2 % of each held out. Size bpe, part of
full, is E1 again with a larger model whose tokens are pieces of words, by Debian's sentencepiece.
"""

import argparse
import array
import concurrent.futures
import gzip
import hashlib
import json
import math
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import time

METHODS = ("ddp", "edit", "a-edit", "diloco", "co2", "local-sgd")
DICTIONARIES = ("gcide", "foldoc")
HELD_OUT = 0.02
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # Student's t, two-sided, by the number of values

# vocabulary, hidden, feed-forward, layers, heads of a Llama; 256: its tokens are bytes
MODELS = {"small": (256, 32, 64, 2, 2), "usual": (256, 128, 352, 4, 4), "full": (256, 128, 352, 4, 4), "bpe": (2048, 192, 512, 5, 6)}
# tokens of a run, sequences of a node's step, bytes of a sequence, interval, learning rates to choose from, seeds, intervals of E4
SIZES = {
    "small": {"tokens": 24576, "batch": 1, "context": 64, "interval": 8, "rates": (2e-3, 4e-3), "seeds": (1,),
              "intervals": (4, 8)},
    "usual": {"tokens": 131072, "batch": 1, "context": 128, "interval": 8, "rates": (1e-3, 2e-3, 4e-3), "seeds": (1, 2, 3),
              "intervals": (4, 8, 16, 32)},
    "full": {"tokens": 16777216, "batch": 4, "context": 128, "interval": 32, "rates": (1e-3, 2e-3, 4e-3), "seeds": (1, 2, 3),
             "intervals": (8, 16, 32, 64, 128, 256, 512)},
    "bpe": {"tokens": 131072, "batch": 1, "context": 128, "interval": 8, "rates": (1e-3, 2e-3, 4e-3), "seeds": (1, 2, 3),
            "intervals": ()},
}
SAMPLES = 64  # of the held-out part that losses are measured on


class Pieces:
    """The text as tokens of a byte-pair encoding, learnt from what is not held out. Every byte of the text is in exactly one
    token, so a loss per token is one per byte too."""

    def __init__(self, folder, train, rest, vocabulary, context):
        self.folder, self.vocabulary = folder, vocabulary
        told = folder / "pieces.json"
        if not told.exists():
            told.write_text(json.dumps(self.make(train, rest, context)))
        self.told = json.loads(told.read_text())

    def call(self, *arguments, **more):
        done = subprocess.run(arguments, stderr=subprocess.PIPE, **more)
        if done.returncode != 0:
            sys.exit(f"{arguments[0]}: exits with {done.returncode}\n{done.stderr.decode(errors='replace')}")

    def make(self, train, rest, context):
        text, model = self.folder / "train.txt", self.folder / "pieces"
        text.write_bytes(train)
        self.call("spm_train", "--model_type=bpe", "--byte_fallback=true", f"--vocab_size={self.vocabulary}", f"--input={text}",
                  f"--model_prefix={model}", "--normalization_rule_name=identity", "--remove_extra_whitespaces=false",
                  "--add_dummy_prefix=false", "--bos_id=-1", "--eos_id=-1", "--num_threads=2", stdout=subprocess.DEVNULL)
        names = [line.split("\t")[0] for line in model.with_suffix(".vocab").read_bytes().decode().split("\n") if line]
        parts = [self.encode(model.with_suffix(".model"), part, names.index("<0x0A>")) for part in (train, rest)]
        sizes = [1 if re.fullmatch("<0x..>", name) else len(name.replace("\u2581", " ").encode()) for name in names]
        for part, tokens in zip((train, rest), parts):
            if sum(sizes[token] for token in tokens) != len(part):
                sys.exit(f"{model}.model: {len(part)} bytes of text are not those of its {len(tokens)} tokens")
        with open(self.folder / "text.bin", "wb") as file:
            for tokens in parts:
                file.write(b"".join(struct.pack(f"<{len(block)}H", *block)
                                    for block in (tokens[at:at + 65536] for at in range(0, len(tokens), 65536))))
        samples = min((len(parts[1]) - 1) // context, SAMPLES)
        targets = parts[1][1:samples * context + 1]
        return {"held_out": len(parts[1]) / (len(parts[0]) + len(parts[1])),
                "bytes_per_token": sum(sizes[token] for token in targets) / max(1, len(targets))}

    def encode(self, model, part, newline):
        """The tokens of a part. spm_encode reads lines and loses their ends, which are put back as a byte's token."""
        text, lines = self.folder / "part.txt", self.folder / "part.ids"
        text.write_bytes(part)
        self.call("spm_encode", f"--model={model}", "--output_format=id", f"--input={text}", f"--output={lines}")
        tokens = array.array("H")
        with open(lines, encoding="ascii") as file:
            for line in file:
                tokens.extend(map(int, line.split()))
                tokens.append(newline)
        if not part.endswith(b"\n"):
            tokens.pop()
        return tokens


class Lab:
    """Runs scenarios and remembers what came of them."""

    def __init__(self, arguments, size):
        self.build, self.out, self.size = arguments.build.resolve(), arguments.out.resolve() / size, size
        self.plan = {**SIZES[size], **({"tokens": arguments.tokens} if arguments.tokens else {})}
        self.text = {"file": "../../text.txt", "type": "text", "holdout": HELD_OUT}
        self.bytes_per_token = 1
        self.begin, self.count = time.monotonic(), 0
        self.out.mkdir(parents=True, exist_ok=True)
        self.write_model()
        self.write_text(arguments.dictionaries)

    def write_model(self):
        vocabulary, hidden, feed, layers, heads = MODELS[self.size]
        (self.out / "config.json").write_text(json.dumps({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "vocab_size": vocabulary,
            "hidden_size": hidden, "intermediate_size": feed, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": heads, "max_position_embeddings": self.plan["context"], "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "tie_word_embeddings": False}))

    def write_text(self, folder):
        """What is held out stands at the end: of every dictionary its last part."""
        path = self.out / "text.txt"
        is_bytes = MODELS[self.size][0] == 256
        if is_bytes and path.exists():
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
        if is_bytes:
            path.write_bytes(train + rest)
            return
        pieces = Pieces(self.out, *(part.decode(errors="replace").encode() for part in (train, rest)), MODELS[self.size][0],
                        self.plan["context"])
        self.text = {"file": "../../text.bin", "type": "u16", "holdout": pieces.told["held_out"]}
        self.bytes_per_token = pieces.told["bytes_per_token"]

    def run(self, name, run, data=None, nodes=None, others=None, model=None):
        """Runs a scenario, unless the same one has been run before; returns its last line, with the folder of its model from
        that of another run."""
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
        return {**json.loads(lines.read_text().splitlines()[-1]), "model": f"../{folder.name}/model"}

    def learn(self, *arguments, **more):
        """A run of the model; returns its held-out loss at the end, nats per token."""
        return self.train(*arguments, **more)["loss"]

    def train(self, name, method, seed, rate, settings=None, nodes=None, others=None, data=None, part=1, start=None):
        """A run of the model, or of that in the folder start, on a part (1 / part) of the tokens; returns its last line."""
        plan = self.plan
        tokens = plan["tokens"] // part
        run = {"seed": seed, "method": method, "tokens": tokens, "eval.tokens": tokens // 2, "eval.samples": SAMPLES,
               "sync.interval": plan["interval"], **({"sync.period": plan["interval"]} if method == "a-edit" else {}),
               **(settings or {})}
        data = {**self.text, "context": plan["context"], "batch": plan["batch"], "lr": rate, **(data or {})}
        model = {"config": "../../config.json", "start": start} if start else None
        return self.run(name, run, data, nodes or {"count": 8, "speed.spread": 0.05}, others, model)

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
    is_bytes = lab.bytes_per_token == 1
    bits = 1 / math.log(2) / lab.bytes_per_token
    name = "" if is_bytes else f" ({lab.size}: {lab.bytes_per_token:.3f} bytes per token)"
    table(f"E1: held-out loss after {lab.plan['tokens']} tokens{name}, 8 nodes, interval {lab.plan['interval']}",
          ("method", "learning rate", f"loss, nats per {'byte' if is_bytes else 'token'}", "against ddp", "bits per byte"),
          [(method, f"{rates[method]:g}", with_spread(losses[method]), compared(losses[method], losses["ddp"]),
            with_spread([bits * loss for loss in losses[method]])) for method in order])


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


STAGES = ((1, 2, 4, 8), (8, 4, 2, 1))


def e5(lab):
    """The number of nodes changes: from the model that the run before has left, a quarter of the tokens at a time, at a steady
    learning rate, after which a stage does not show. The seed is the stage's, for the order of the text."""
    tokens = lab.plan["tokens"] // 4
    for counts in STAGES:
        rows = []
        for method in ("edit", "ddp", "local-sgd"):
            rate, start, losses = lab.best_rate(method, method), None, []
            for stage, count in enumerate(counts, 1):
                end = lab.train(f"E5/{method}-{'-'.join(map(str, counts[:stage]))}", method, stage, rate,
                                nodes={"count": count, "speed.spread": 0.05}, data={"min_lr": rate}, part=4, start=start)
                start = end["model"]
                losses.append(end["loss"])
            rows.append((method, f"{rate:g}", *(f"{loss:.4f}" for loss in losses)))
        table(f"E5: held-out loss after each stage of {tokens} tokens, {lab.plan['batch']} sequences per node and step",
              ("method", "learning rate", *(f"{count} node{'s' if count > 1 else ''}" for count in counts)), rows)


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


EXPERIMENTS = {"E1": e1, "E2": e2, "E3": e3, "E4": e4, "E5": e5, "E8": e8}


def plan_of(parser, arguments):
    """(size, experiment) of all that is to be done; nothing is begun that must end for want of a program."""
    chosen = arguments.experiments or (["E1"] if arguments.size == "bpe" else list(EXPERIMENTS))
    if arguments.size == "bpe" and chosen != ["E1"]:
        parser.error("--size bpe: has E1 only")
    plan = [(arguments.size, name) for name in chosen]
    if arguments.size == "full" and "E1" in chosen:
        plan.append(("bpe", "E1"))
    for program in ("spm_train", "spm_encode"):
        if any(size == "bpe" for size, _ in plan) and not shutil.which(program):
            sys.exit(f"{program}: not there; install sentencepiece")
    return plan


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="usual", help="how large the runs are (default: usual); bpe, and full with "
                        "E1, which includes it, need the package sentencepiece")
    parser.add_argument("--tokens", type=int, metavar="N", help="of a run that learns, instead of what the size says")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"), help="folder of edit-sim")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/experiments"), help="folder of the runs")
    parser.add_argument("--dictionaries", type=pathlib.Path, default=pathlib.Path("/usr/share/dictd"), help="folder of the texts")
    parser.add_argument("experiments", nargs="*", metavar="E", choices=[[], *EXPERIMENTS],
                        help=f"which ones: {' '.join(EXPERIMENTS)} (default: all)")
    arguments = parser.parse_args()
    if arguments.tokens is not None and arguments.tokens < 1:
        parser.error(f"--tokens {arguments.tokens}: expected at least 1")
    begin, labs = time.monotonic(), {}
    for size, name in plan_of(parser, arguments):
        if size not in labs:
            labs[size] = Lab(arguments, size)
        EXPERIMENTS[name](labs[size])
    print(f"\nexperiments: ok ({sum(lab.count for lab in labs.values())} runs made, {time.monotonic() - begin:.0f} s)")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""How much of a round hides behind the forward pass, by prefetch depth, on a link of a given rate.

    bench/overlap.py [--build build] [--rate 200mbit] [--prefetch 0 1 2] [--rounds 5] [--repeats 4] [--json FILE]

Two nodes, each in a network namespace and pinned to a core of its own, joined by a veth pair that tbf limits both ways, train
the same Llama. `sync.prefetch` is changed on the running ring, depth after depth, again and again, so that all depths see the
same machine. Printed for each depth: medians over its rounds and both nodes of the time that a round took (sync), of that part
of it for which a worker stood still (exposed), and what the link's rate alone would need. Needs root, ip and tc.
"""

import argparse
import json
import os
import re
import statistics
import sys

import namespaces

NODES = ("a", "b")
MODEL = {"model_type": "llama", "hidden_act": "silu", "vocab_size": 256, "hidden_size": 128, "intermediate_size": 352,
         "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 256,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}
INTERVAL = 2       # steps
SETTLE_ROUNDS = 1  # after a change, not counted
ROUND_LINE = re.compile(r"round (\d+): .* sync ([\d.]+) ms, exposed ([\d.]+) ms, (\d+) bytes sent")


class Bench:
    """The two nodes and what is measured of them."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.ring = namespaces.Ring(NODES, arguments.build)
        self.cores = dict(zip(NODES, sorted(os.sched_getaffinity(0))))

    def start_nodes(self):
        ring = self.ring
        ring.join(self.arguments.rate)
        (ring.folder / "config.json").write_text(json.dumps(MODEL))
        (ring.folder / "text").write_text("what is measured is time; any text will do. " * 20000)
        ring.start_daemons({"sync.interval": INTERVAL}, self.cores)
        for name in NODES:
            ring.start_worker(name, "--model", ring.folder, "--data", ring.folder / "text", "--steps=1000000", "--batch=16",
                              "--context=256", "--lr=1e-5", "--threads=1", core=self.cores[name])

    def measure(self):
        """Rounds of each depth: {prefetch: [numbers]}."""
        ring = self.ring
        ring.await_round(2)
        rounds = {prefetch: [] for prefetch in self.arguments.prefetch}
        for _ in range(self.arguments.repeats):
            for prefetch in self.arguments.prefetch:
                ring.ask("a", "set", "sync.prefetch", prefetch, "--wait", "--timeout", namespaces.PATIENCE_S)
                first = ring.ask("a", "status")["round"] + 1 + SETTLE_ROUNDS
                rounds[prefetch] += range(first, first + self.arguments.rounds)
                ring.await_round(first + self.arguments.rounds)  # one more: a round is told in full at the next one's offer
        return rounds

    def lines(self):
        """Of both nodes: {round: (sync ms, exposed ms, bytes)}, as their logs tell."""
        told = []
        for name in NODES:
            with open(self.ring.folder / f"{name}.editd.log", encoding="utf-8") as file:
                found = (ROUND_LINE.search(line) for line in file)
                told.append({int(one[1]): (float(one[2]), float(one[3]), int(one[4])) for one in found if one})
        return told


def report(rounds, told, rate):
    """Prints the table; returns it."""
    print(f"two nodes, {rate} each way, one core each, {INTERVAL} steps an interval, Llama of 0.87 M parameters")
    print(f"  {'prefetch':>8} {'rounds':>7} {'sync ms':>9} {'exposed ms':>11} {'hidden':>7} {'link alone ms':>14}")
    table = []
    for prefetch, numbers in rounds.items():
        rows = [node[number] for node in told for number in numbers if number in node]
        sync, exposed, sent = (statistics.median(column) for column in zip(*rows))
        quartiles = statistics.quantiles([row[1] for row in rows], n=4)
        link = 1000 * sent * 8 / namespaces.bits_per_second(rate)
        table.append({"prefetch": prefetch, "rounds": len(numbers), "sync_ms": sync, "exposed_ms": exposed,
                      "exposed_quartiles_ms": quartiles[::2], "link_ms": link})
        print(f"  {prefetch:8} {len(numbers):7} {sync:9.1f} {exposed:11.1f} {100 * (1 - exposed / sync):5.0f} % {link:14.1f}"
              f"   (half of the exposed times: {quartiles[0]:.1f} to {quartiles[2]:.1f})")
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--rate", default="200mbit", help="of the link, as tc takes it")
    parser.add_argument("--prefetch", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=5, help="of one depth, before the next one's turn")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--json", help="also write the numbers to this file")
    arguments = parser.parse_args()
    lacks = namespaces.missing("taskset")
    if lacks or len(os.sched_getaffinity(0)) < 2:
        print(f"overlap: left out, needs {lacks or 'two cores'} (ip and tc: apt install iproute2)")
        return
    namespaces.trap_signals()
    bench = Bench(arguments)
    try:
        bench.start_nodes()
        rounds = bench.measure()
        told = bench.lines()
    except namespaces.Trouble as trouble:
        sys.exit(f"overlap: {trouble}")
    finally:
        bench.ring.close()
    table = report(rounds, told, arguments.rate)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(table, file, indent=1)


if __name__ == "__main__":
    main()

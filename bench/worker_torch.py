#!/usr/bin/env python3
"""Times training steps of the same model in PyTorch eager and prints one JSON object, with [elapsed, CPU time] in ms of each
step; run by bench/worker.py.

    worker_torch.py VOCAB HIDDEN LAYERS HEADS INTERMEDIATE BATCH TIME STEPS

Written as one would for speed: joined projections, AdamW over lists of tensors, angles computed once. Exits with 3 if there
is no PyTorch.
"""

import json
import resource
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(3)

WARMUP_STEPS = 2


class Norm(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Block(torch.nn.Module):
    def __init__(self, hidden, heads, intermediate):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = Norm(hidden), Norm(hidden)
        self.qkv = torch.nn.Linear(hidden, 3 * hidden, bias=False)
        self.o = torch.nn.Linear(hidden, hidden, bias=False)
        self.gate_up = torch.nn.Linear(hidden, 2 * intermediate, bias=False)
        self.down = torch.nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x, cosines, sines, mask):
        batch, length, hidden = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cosines, sines), rotate(k, cosines, sines)
        scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5) + mask
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, hidden))
        gate, up = self.gate_up(self.norm_2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def rotate(x, cosines, sines):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cosines - b * sines, b * cosines + a * sines], -1)


class Llama(torch.nn.Module):
    def __init__(self, vocab, hidden, layers, heads, intermediate, length):
        super().__init__()
        half = hidden // heads // 2
        angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(half) / half))
        self.cosines, self.sines = angles.cos(), angles.sin()
        self.mask = torch.full((length, length), float("-inf")).triu(1)
        self.embedding = torch.nn.Embedding(vocab, hidden)
        self.blocks = torch.nn.ModuleList(Block(hidden, heads, intermediate) for _ in range(layers))
        self.norm = Norm(hidden)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cosines, self.sines, self.mask)
        return F.linear(self.norm(x), self.embedding.weight)


def main():
    vocab, hidden, layers, heads, intermediate, batch, length, steps = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = Llama(vocab, hidden, layers, heads, intermediate, length)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), foreach=True)
    tokens = torch.randint(0, vocab, (batch, length + 1))
    took = []
    for _ in range(steps + WARMUP_STEPS):
        begin, cpu = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(tokens[:, :-1]).view(-1, vocab), tokens[:, 1:].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        took.append([1e3 * (time.perf_counter() - begin), 1e3 * (time.process_time() - cpu)])
    print(json.dumps({"parameters": sum(p.numel() for p in model.parameters()), "steps": took[WARMUP_STEPS:],
                      "loss": loss.item(), "version": torch.__version__,
                      "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))


if __name__ == "__main__":
    main()

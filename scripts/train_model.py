#!/usr/bin/env python3
"""Trains the small Llama model that is built into quill, from nothing, and writes it as GGUF.

    pip install torch==2.15.0 numpy tokenizers==0.23.3 gguf
    scripts/make_corpus.py --seed 1 --bytes 400M -o stories.txt
    scripts/train_model.py --data stories.txt --steps 6000
    scripts/train_model.py --export run/ckpt.pt --gguf models/quill-stories.gguf
    scripts/train_model.py --export run/ckpt.pt --gguf stories.f32.gguf --out-type f32

models/README.md has the commands that made the shipped model: first the language, then what answers need, then longer
texts and other tasks. `--procs` is the number of processes, `--threads` the threads of each; kernels of train_amx.cpp serve
AMX and AVX-512 BF16. A CPU without BF16 computes in f32: bf16 products are emulated there. A GPU is used when there is one.

    --start GGUF         begins with the weights of a model that --export wrote
    --start-layers 0,5   ... with these of its layers only; --shape says how many and how wide their FFN stays
    --teacher GGUF       learns from that model's logits too: a small model of the same vocabulary, for speculation
    --resume             goes on from RUN/ckpt.pt: same data order, same schedule. --steps may change, and the schedule
                         follows; with another --data, its rows are read from the first. SIGINT and SIGTERM save and stop
    --export CKPT        works at any time, also while another process trains; --mean-with GGUF gives back some of what
                         the training from that model forgot
    --bench N            N steps on random documents, then tokens a second; needs no data

The input is text. Each document begins with <|endoftext|>; a chat is ChatML with its marks written out. Answers weigh
more than stories in the loss, and what users say less (--w-answer, --w-story, --w-prompt).

Order of reading: tokenizer, corpus, packing, attention, model, optimiser, training, GGUF.
"""
import argparse
import ctypes
import hashlib
import json
import math
import os
import shlex
import signal
import sys
import time

import numpy as np

# The model. 5.8 M weights: dim * vocab + layers * (dim * (2 * dim + 2 * kv) + 3 * dim * ffn).
SHAPE = dict(vocab=4096, dim=256, layers=6, heads=4, kv_heads=2, ffn=768, context=2048, eps=1e-5, theta=10000.0)

BOS, START, END = 0, 1, 2  # ids of the control tokens
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
STORY, PROMPT, ANSWER, PAD = 0, 1, 2, 3  # what a token is; kept in the two bits above its id
CLASS_SHIFT, ID_MASK = 12, 0xFFF

# What `llama-bpe` splits text with before it merges.
LLAMA_BPE = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+")
# ChatML; where a conversation has no system message, the first one of facts.txt: it was trained with one mostly.
CHATML = ("{% if messages[0]['role'] != 'system' %}{{'<|im_start|>system\\nYou are quill, a small model that lives in a shell."
          "<|im_end|>\\n'}}{% endif %}"
          "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>'"
          " + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def parse_args():
    p = argparse.ArgumentParser(description="train a small Llama and write GGUF")
    p.add_argument("--data", help="corpus, text")
    p.add_argument("--out", default="run", help="folder of tokenizer, tokens and checkpoint")
    p.add_argument("--steps", type=int, default=6000, help="the schedule ends here")
    p.add_argument("--stop-at", type=int, default=1 << 30, help="stop after this step, to go on with --resume")
    p.add_argument("--seq", type=int, default=2048, help="tokens a row: whole documents, several in one")
    p.add_argument("--batch-tokens", type=int, default=16384)
    p.add_argument("--micro-tokens", type=int, default=4096, help="tokens a process handles at once")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--lr-muon", type=float, default=0.02)
    p.add_argument("--lr-adam", type=float, default=0.004)
    p.add_argument("--warmup", type=int, default=100)
    p.add_argument("--decay", type=float, default=0.6, help="share of the steps over which the rate falls to 0")
    p.add_argument("--w-answer", type=float, default=4.0)
    p.add_argument("--even", type=float, default=0.0, help="0: every token of an answer weighs --w-answer; 1: every answer weighs as much as one "
                   "of 16 tokens; between: between")
    p.add_argument("--w-story", type=float, default=1.0)
    p.add_argument("--w-prompt", type=float, default=0.5)
    p.add_argument("--procs", type=int, default=0, help="0: a process a core, one with a GPU")
    p.add_argument("--threads", type=int, default=0, help="of a process; 0: its share of the cores")
    p.add_argument("--device", default="", help="cpu or cuda; the default is what there is")
    p.add_argument("--save-minutes", type=float, default=5.0)
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--resume", action="store_true")
    p.add_argument("--start", metavar="GGUF", help="weights and tokenizer of a model that --export wrote, not from nothing")
    p.add_argument("--start-layers", metavar="LIST", help="... with these of its layers, counted from 0, as 0,5")
    p.add_argument("--teacher", metavar="GGUF", help="learn from this model's logits too: same vocabulary, the default shape")
    p.add_argument("--soft", type=float, default=0.9, help="the teacher's share of what is learnt; the text has the rest")
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--no-amx", action="store_true", help="torch's functions in place of train_amx.cpp's")
    p.add_argument("--export", metavar="CKPT")
    p.add_argument("--gguf", default="model.gguf")
    p.add_argument("--out-type", choices=["f32", "q8_0"], default="q8_0")
    p.add_argument("--mean-with", metavar="GGUF", help="with --export: the mean of the weights and those of this model ...")
    p.add_argument("--share", type=float, default=0.75, help="... of which the checkpoint has this share")
    p.add_argument("--corpus-script", default="scripts/make_corpus.py", help="for the GGUF's metadata")
    p.add_argument("--corpus-seed", default="1", help="likewise")
    p.add_argument("--bench", type=int, default=0, metavar="N")
    p.add_argument("--shape", default="", help="other sizes, as layers=4,ffn=512")
    args = p.parse_args()
    if args.start_layers and not args.start:
        p.error("--start-layers: --start GGUF expected with it, found none")
    args.shape = SHAPE | {k: int(v) for k, v in (s.split("=") for s in args.shape.split(",") if s)}
    return args


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def write_whole(path, write):
    """A reader sees the old file or the new one, never half of one."""
    write(path + ".tmp")
    os.replace(path + ".tmp", path)


# ---- Tokenizer ----

def bpe_tokenizer(model, split):
    from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
    t = Tokenizer(model)
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(split), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    return t


def train_tokenizer(documents, vocab):
    """Byte-level BPE. It learns from text in which each digit stands alone, so no merge holds a digit."""
    from tokenizers import models, pre_tokenizers, trainers
    t = bpe_tokenizer(models.BPE(), LLAMA_BPE.replace(r"\p{N}{1,3}", r"\p{N}"))
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=SPECIALS, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    # Marks are control tokens: the merges must not learn their letters.
    plain = (d.replace(m, "\n") for d in documents for m in [SPECIALS[1]])
    t.train_from_iterator((d.replace(SPECIALS[2], "\n") for d in plain), trainer)
    return load_tokenizer(json.loads(t.to_str())["model"])


def load_tokenizer(bpe):
    """The tokenizer that llama-bpe makes of these merges: a split that is a token as a whole is never taken apart."""
    from tokenizers import AddedToken, models
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in bpe["merges"]]
    t = bpe_tokenizer(models.BPE(vocab=bpe["vocab"], merges=merges, ignore_merges=True), LLAMA_BPE)
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIALS])
    return t


def get_tokenizer(args):
    """The run's own, or one learnt from 30 MB spread over the corpus."""
    path, model = os.path.join(args.out, "tokenizer.json"), args.start or args.teacher
    if model and not args.resume:
        write_whole(path, lambda tmp: load_tokenizer(read_bpe(model)).save(tmp))
    if not os.path.exists(path):
        say("learning the tokenizer")
        documents = read_documents(args.data)
        every = max(1, sum(map(len, documents)) // 30_000_000)
        t = train_tokenizer(documents[::every], args.shape["vocab"])
        write_whole(path, t.save)
    with open(path, encoding="utf-8") as f:
        return load_tokenizer(json.load(f)["model"])


# ---- Corpus: text to tokens with classes ----

def read_documents(path):
    with open(path, encoding="utf-8", newline="") as f:
        return [d for d in f.read().split(SPECIALS[BOS]) if d]


def classify(ids, header):
    """Class of each token of some documents. header: the ids of 'assistant' and the line feed."""
    n = len(ids)
    doc = np.cumsum(ids == BOS)
    is_chat = np.zeros(doc[-1] + 1, bool)
    is_chat[doc[ids == START]] = True
    classes = np.where(is_chat[doc], PROMPT, STORY).astype(np.uint16)
    classes[ids == BOS] = STORY
    starts, ends = np.flatnonzero(ids == START), np.flatnonzero(ids == END)
    answer = np.ones(len(starts), bool)
    for i, h in enumerate(header):
        answer &= ids[np.minimum(starts + 1 + i, n - 1)] == h
    for s in starts[answer]:
        e = np.searchsorted(ends, s)
        classes[s + 1 + len(header):(ends[e] + 1 if e < len(ends) else n)] = ANSWER
    return classes


def encode(args, tokenizer):
    """Path of the corpus as uint16: id in the low 12 bits, class above. Made once for a corpus and tokenizer."""
    stat = os.stat(args.data)
    key = f"{stat.st_size} {stat.st_mtime_ns} {os.path.basename(args.data)} {tokenizer.to_str()}"
    path = os.path.join(args.out, f"tokens-{hashlib.sha256(key.encode()).hexdigest()[:16]}.bin")
    if not os.path.exists(path):
        started = time.time()
        header = tokenizer.encode("assistant\n").ids
        write_whole(path, lambda tmp: encode_to(tmp, read_documents(args.data), tokenizer, header))
        say(f"encoded {os.path.getsize(path) // 2} tokens in {time.time() - started:.0f} s")
    return path


def encode_to(path, documents, tokenizer, header):
    with open(path, "wb") as f:
        for i in range(0, len(documents), 4096):
            batch = tokenizer.encode_batch_fast(documents[i:i + 4096])
            ids = np.concatenate([np.array([BOS] + e.ids, np.uint16) for e in batch])
            (ids | classify(ids, header) << CLASS_SHIFT).tofile(f)


# ---- Packing: documents to rows ----

def pack(lengths, room):
    """Best fit: each piece goes to the fullest row that still holds it. Returns lists of piece numbers."""
    rows, by_room, mask = [], [[] for _ in range(room + 1)], 0  # bit r of mask: by_room[r] is not empty
    for piece, n in enumerate(lengths.tolist()):
        fit = mask >> n
        left = n + (fit & -fit).bit_length() - 1 if fit else room
        if fit:
            row = by_room[left].pop()
            if not by_room[left]:
                mask ^= 1 << left
            rows[row].append(piece)
        else:
            row = len(rows)
            rows.append([piece])
        if left > n:
            by_room[left - n].append(row)
            mask |= 1 << (left - n)
    return rows


class Rows:
    """The rows of one pass over the corpus, seq + 1 tokens each, in an order that (seed, seq, epoch) decides."""

    def __init__(self, tokens, seed, seq):
        self.tokens, self.seed, self.seq, self.epoch = tokens, seed, seq, -1
        starts = np.flatnonzero(tokens & ID_MASK == BOS)
        ends = np.append(starts[1:], len(tokens))
        pieces = -(-(ends - starts) // (seq + 1))  # a longer document is cut
        part = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        self.starts = np.repeat(starts, pieces) + part * (seq + 1)
        self.lengths = np.minimum(np.repeat(ends, pieces) - self.starts, seq + 1)

    def set_epoch(self, epoch):
        rng = np.random.default_rng([self.seed, self.seq, epoch])
        order = rng.permutation(len(self.lengths))
        rows = pack(self.lengths[order], self.seq + 1)
        self.rows = [order[rows[i]] for i in rng.permutation(len(rows))]
        self.epoch = epoch
        say(f"epoch {epoch}: {len(rows)} rows of {self.seq}, "
            f"{1 - self.lengths.sum() / (len(rows) * (self.seq + 1)):.2%} padding")

    def take(self, epoch, row, count):
        """(count, seq + 1) tokens, where each piece begins in its row, and the position after them."""
        out = np.full((count, self.seq + 1), PAD << CLASS_SHIFT | BOS, np.uint16)
        begins = []
        for i in range(count):
            if epoch != self.epoch:
                self.set_epoch(epoch)
            begins.append(self.fill(out[i], self.rows[row]))
            epoch, row = (epoch, row + 1) if row + 1 < len(self.rows) else (epoch + 1, 0)
        return out, begins, (epoch, row)

    def fill(self, out, pieces):
        at, begins = 0, []
        for p in pieces:
            n = self.lengths[p]
            out[at:at + n] = self.tokens[self.starts[p]:self.starts[p] + n]
            begins.append(at)
            at += n
        if at < len(out):  # the first pad ends the last document, as the next document's mark would
            out[at] = BOS
            begins.append(at)
        return [b for b in begins if b < self.seq]


class RandomRows:
    """Stands in for Rows when speed alone is measured: documents of 250 tokens."""

    def __init__(self, vocab, seq):
        self.vocab, self.seq = vocab, seq

    def take(self, epoch, row, count):
        rng = np.random.default_rng(row)
        tokens = rng.integers(3, self.vocab, (count, self.seq + 1)).astype(np.uint16)
        return tokens, [list(range(0, self.seq, 250))] * count, (epoch, row + count)


def token_weights(classes, weights, even):
    """The weight of each token of some rows, by its class; in an answer of n tokens times (16 / n) ** even."""
    found = weights[classes]
    if even:
        edge = np.diff(np.pad(classes == ANSWER, ((0, 0), (1, 1))).astype(np.int8), axis=1)
        for (r, a), (_, e) in zip(np.argwhere(edge == 1), np.argwhere(edge == -1)):
            found[r, a:e] *= (16 / (e - a)) ** even
    return found


def micro_batches(tokens, begins, weights, args, rank):
    """This process's share of a batch, in parts: ids, targets, classes, weights, and where documents begin."""
    classes = tokens >> CLASS_SHIFT
    ids = (tokens & ID_MASK).astype(np.int64)
    every = token_weights(classes[:, 1:], weights, args.even)
    total = every.sum()
    seq = tokens.shape[1] - 1
    mine = np.arange(rank, len(tokens), args.procs)
    count = max(1, args.micro_tokens // seq)
    for rows in (mine[i:i + count] for i in range(0, len(mine), count)):
        targets, weight = classes[rows, 1:].ravel(), every[rows].ravel()
        cuts = [i * seq + b for i, r in enumerate(rows) for b in begins[r]] + [len(rows) * seq]
        yield (ids[rows, :-1].ravel(), ids[rows, 1:].ravel(), targets,
               (weight / total).astype(np.float32), np.array(cuts, np.int32))


# ---- Attention: causal, within a document ----

def plain_attention(q, k, v, cuts):
    """q (n, heads, 64), k and v (n, kv_heads, 64), documents at cuts. The meaning; also what a GPU runs."""
    import torch
    import torch.nn.functional as F
    n, group = q.shape[0], q.shape[1] // k.shape[1]
    at = torch.arange(n, device=q.device)
    doc = torch.bucketize(at, cuts.to(at.device), right=True)
    mask = (doc[:, None] == doc[None]) & (at[:, None] >= at[None])
    q, k, v = (t.transpose(0, 1)[None] for t in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)[0].transpose(0, 1)


# ---- Model ----

def document_attention(q, k, v, cuts):
    """The same on a CPU: document after document, so that no pair of tokens of two documents costs anything."""
    import torch
    import torch.nn.functional as F
    parts = []
    for a, b in zip(cuts[:-1].tolist(), cuts[1:].tolist()):
        one = (t[a:b].transpose(0, 1)[None] for t in (q, k, v))
        parts.append(F.scaled_dot_product_attention(*one, is_causal=True, enable_gqa=True)[0].transpose(0, 1))
    return torch.cat(parts)


def layer_shapes(s):
    kv = s["dim"] // s["heads"] * s["kv_heads"]
    return [("qkv", (s["dim"] + 2 * kv, s["dim"])), ("out", (s["dim"], s["dim"])),
            ("gate_up", (2 * s["ffn"], s["dim"])), ("down", (s["dim"], s["ffn"]))]


class Layout:
    """Where each weight lies in one flat vector: embedding and norms (for AdamW), then the layers' matrices (for Muon)."""

    def __init__(self, s):
        self.at, self.size = {}, 0
        self.add("embed", (s["vocab"], s["dim"]))
        self.add("norm", (s["dim"],))
        for i in range(s["layers"]):
            self.add(f"{i}.attn_norm", (s["dim"],))
            self.add(f"{i}.ffn_norm", (s["dim"],))
        self.n_adam = self.size
        for i in range(s["layers"]):
            for name, shape in layer_shapes(s):
                self.add(f"{i}.{name}", shape)

    def add(self, name, shape):
        self.at[name] = (self.size, shape)
        self.size += math.prod(shape)

    def view(self, flat, name):
        start, shape = self.at[name]
        return flat[start:start + math.prod(shape)].view(shape)


def init_weights(layout, flat, s, seed):
    import torch
    g = torch.Generator().manual_seed(seed)
    for name, (_, shape) in layout.at.items():
        w = layout.view(flat, name)
        if name.endswith("norm"):
            w.fill_(1)
        elif name == "embed":
            w.normal_(0, 0.02, generator=g)
        else:  # what a layer adds starts small, so that the stream starts as the embedding
            late = 0.1 if name.endswith((".out", ".down")) else 1
            w.normal_(0, 0.6 * late * shape[1] ** -0.5, generator=g)


def make_layer_parts(s):
    """What a layer does between its matrix products, as functions that torch.compile takes."""
    import torch
    import torch.nn.functional as F
    heads, kv, hd = s["heads"], s["kv_heads"], s["dim"] // s["heads"]

    def norm(x, w):
        f = x.float()
        return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + s["eps"]) * w).to(x.dtype)

    def rope(x, cos, sin):  # halves, as Hugging Face has it; the export turns them into GGUF's adjacent pairs
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1).to(x.dtype)

    def turn(qkv, cos, sin):
        q, k, v = qkv.view(len(qkv), -1, hd).split((heads, kv, kv), 1)
        return rope(q, cos, sin), rope(k, cos, sin), v.contiguous()

    def add_norm(x, y, w):
        x = x + y
        return x, norm(x, w)

    def swiglu(gate_up):
        gate, up = gate_up.float().chunk(2, -1)
        return (F.silu(gate) * up).to(gate_up.dtype)

    return norm, turn, add_norm, swiglu


def make_linear(add_outer):
    """x (n, ins) by w (outs, ins). The gradient of w goes straight to the f32 sum of all micro-batches."""
    import torch

    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, grad_w):
            ctx.save_for_backward(x, w)
            ctx.grad_w = grad_w
            return x @ w.t()

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            add_outer(ctx.grad_w, grad.contiguous(), x)
            return grad @ w, None, None

    return Linear.apply


def plain_add_outer(sum_, g, x):
    sum_ += g.t() @ x


def loss_with_gradient(logits, targets, weights):
    """Cross-entropy of a few rows of logits: losses, and the gradient of their weighted sum by the logits."""
    import torch
    dtype, logits = logits.dtype, logits.float()
    top = logits.amax(-1, keepdim=True)
    e = torch.exp(logits - top)
    total = e.sum(-1, keepdim=True)
    losses = (top + total.log()).squeeze(-1) - logits.gather(1, targets[:, None]).squeeze(-1)
    d = e * (weights[:, None] / total)
    hit = torch.arange(logits.shape[1], device=logits.device)[None] == targets[:, None]
    return losses, torch.where(hit, d - weights[:, None], d).to(dtype)


def distilling_loss(logits, targets, weights, taught, soft):
    """loss_with_gradient where a share `soft` of each target is the distribution that the teacher's logits say; the
    losses are those of the text alone, so that runs with and without a teacher compare."""
    import torch
    losses, d = loss_with_gradient(logits.float(), targets, weights)
    away = soft * weights[:, None]
    d = d - away * torch.softmax(taught.float(), -1)
    hit = torch.arange(logits.shape[1], device=logits.device)[None] == targets[:, None]
    return losses, torch.where(hit, d + away, d).to(logits.dtype)


class Model:
    """Forward and backward of micro-batches; gradients add up in the flat vector grads."""

    PART = 256  # rows of logits are a multiple of it, so that few shapes are compiled

    def __init__(self, args, layout, work, grads, device):
        import torch
        self.s, self.layout, self.grads, self.device = args.shape, layout, grads, device
        self.params = {n: layout.view(work, n).detach().requires_grad_() for n in layout.at}
        self.embed_grad = layout.view(grads, "embed")
        self.norm, self.turn, self.add_norm, self.swiglu = make_layer_parts(self.s)
        self.loss, self.distil, self.teacher, self.soft = loss_with_gradient, distilling_loss, None, args.soft
        self.attend = document_attention if device == "cpu" else plain_attention
        self.add_outer = plain_add_outer
        self.chunk = 1024 if work.dtype == torch.bfloat16 else 256  # rows of logits at once: 8 or 4 MB
        if not args.no_compile:
            for part in ("norm", "turn", "add_norm", "swiglu", "loss", "distil"):
                setattr(self, part, torch.compile(getattr(self, part), dynamic=False))
        self.use_amx(args)
        self.linear = make_linear(self.add_outer)
        self.rotation = {}

    def use_amx(self, args):
        if args.no_amx or self.device != "cpu":
            return
        import train_amx
        lib = train_amx.library(args.out)
        if lib:
            self.attend, self.add_outer = train_amx.attention(lib), train_amx.add_outer(lib, plain_add_outer)
            self.swiglu, self.loss = train_amx.swiglu(lib), train_amx.loss(lib)

    def rope_tables(self, n, seq):
        import torch
        if (n, seq) not in self.rotation:
            hd = self.s["dim"] // self.s["heads"]
            angle = torch.outer(torch.arange(seq).float(), self.s["theta"] ** (-torch.arange(0, hd, 2).float() / hd))
            angle = angle.repeat(n // seq, 1)[:, None]
            self.rotation[n, seq] = angle.cos().to(self.device), angle.sin().to(self.device)
        return self.rotation[n, seq]

    def product(self, x, name):
        return self.linear(x, self.params[name].detach(), self.layout.view(self.grads, name))

    def hidden(self, x, cuts, seq):
        p, (cos, sin) = self.params, self.rope_tables(len(x), seq)
        norms = [p[f"{i}.attn_norm"] for i in range(1, self.s["layers"])] + [p["norm"]]
        h = self.norm(x, p["0.attn_norm"])
        for i, next_norm in enumerate(norms):
            q, k, v = self.turn(self.product(h, f"{i}.qkv"), cos, sin)
            y = self.product(self.attend(q, k, v, cuts).reshape(len(x), -1), f"{i}.out")
            x, h = self.add_norm(x, y, p[f"{i}.ffn_norm"])
            y = self.product(self.swiglu(self.product(h, f"{i}.gate_up")), f"{i}.down")
            x, h = self.add_norm(x, y, next_norm)
        return h

    def learn_from(self, path, args):
        """Takes a GGUF of the default shape as its teacher."""
        import copy
        import torch
        layout = Layout(SHAPE)
        flat = torch.zeros(layout.size)
        read_weights(path, layout, flat, SHAPE)
        args = copy.copy(args)
        args.shape = SHAPE
        work = flat.to(self.device, args.dtype)
        self.teacher = Model(args, layout, work, work, self.device)

    def taught(self, ids, cuts, seq):
        """The teacher's last hidden rows and its output matrix."""
        import torch
        with torch.no_grad():
            embed = self.teacher.params["embed"].detach()
            return self.teacher.hidden(embed[ids], cuts, seq), embed

    def head(self, h, targets, weights, taught=None):
        """Losses and their gradient by h, a few rows at a time, so that the logits never outlive the caches."""
        import torch
        embed = self.params["embed"].detach()
        losses, d_h = [], []
        theirs = taught[0].split(self.chunk) if taught else [None] * len(h)
        for rows, t, w, their in zip(h.split(self.chunk), targets.split(self.chunk), weights.split(self.chunk), theirs):
            if taught:
                loss, d = self.distil(rows @ embed.t(), t, w, their @ taught[1].t(), self.soft)
            else:
                loss, d = self.loss(rows @ embed.t(), t, w)
            losses.append(loss)
            d_h.append(d @ embed)
            self.add_outer(self.embed_grad, d, rows)
        return torch.cat(losses), torch.cat(d_h)

    def head_where(self, counts, h, targets, weights, taught):
        """The head on the rows that count, and on a few more so that their number is a multiple of PART; the rest lose 0."""
        import torch
        order = torch.argsort(counts.byte(), descending=True, stable=True)
        n = min(len(h), -(-int(counts.sum()) // self.PART) * self.PART)
        rows = order[:n]
        taught = (taught[0][rows], taught[1]) if taught else None
        losses, d_h = self.head(h[rows], targets[rows], weights[rows], taught)
        return losses.new_zeros(len(h)).index_copy(0, rows, losses), torch.zeros_like(h).index_copy(0, rows, d_h)

    def step(self, ids, targets, weights, cuts, seq):
        """Adds the gradients of one micro-batch; returns its losses a token."""
        import torch
        x = self.params["embed"].detach()[ids].requires_grad_()
        h = self.hidden(x, cuts, seq)
        losses, d_h = self.head_where(weights > 0, h.detach(), targets, weights, self.taught(ids, cuts, seq) if self.teacher else None)
        names = [n for n in self.layout.at if n.endswith("norm")]
        d_x, *grads = torch.autograd.grad(h, [x] + [self.params[n] for n in names], d_h)
        self.embed_grad.index_add_(0, ids, d_x.float())
        for name, g in zip(names, grads):
            self.layout.view(self.grads, name).add_(g)
        return losses


# ---- Optimiser: Muon for the layers' matrices, AdamW for the rest ----

def orthogonal(g, dtype):
    """(rows <= cols) to about the nearest half-orthogonal matrix: five Newton-Schulz steps. One matrix at a time,
    since torch's batched product in bf16 does not run on AMX."""
    x = (g / (g.norm() + 1e-7)).to(dtype)
    for _ in range(5):
        a = x @ x.t()
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.float()


class Optimiser:
    """Each process updates its own part of the shared weights and state, from all processes' gradients."""

    def __init__(self, args, layout, shared, rank):
        self.args, self.layout, self.shared, self.rank = args, layout, shared, rank
        self.groups = self.matrix_groups()
        each = -(-layout.n_adam // args.procs)
        self.adam = slice(min(rank * each, layout.n_adam), min((rank + 1) * each, layout.n_adam))

    def matrix_groups(self):
        """This process's matrices by shape, as (view maker, wide): fused matrices are taken apart, since each part
        is a map of its own."""
        s, groups = self.args.shape, {}
        kv = s["dim"] // s["heads"] * s["kv_heads"]
        parts = {"qkv": (s["dim"], kv, kv), "out": (s["dim"],), "gate_up": (s["ffn"],) * 2, "down": (s["dim"],)}
        for i in range(self.rank, s["layers"], self.args.procs):
            for name, (_, cols) in layer_shapes(s):
                row = 0
                for rows in parts[name]:
                    key = (min(rows, cols), max(rows, cols))
                    groups.setdefault(key, []).append((f"{i}.{name}", slice(row, row + rows)))
                    row += rows
        return groups

    def step(self, number, rate):
        self.adam_step(number, rate * self.args.lr_adam)
        for part in self.groups.values():
            self.muon_step(part, rate * self.args.lr_muon)

    def adam_step(self, number, lr):
        sh, at = self.shared, self.adam
        g = sh["grads"][:, at].sum(0)
        m, v = sh["adam_m"][at], sh["adam_v"][at]
        m.lerp_(g, 0.1)
        v.lerp_(g * g, 0.05)
        unbiased = m / (1 - 0.9 ** number)
        sh["master"][at].addcdiv_(unbiased, (v / (1 - 0.95 ** number)).sqrt_().add_(1e-10), value=-lr)
        sh["work"][at] = sh["master"][at]

    def muon_step(self, part, lr):
        view = lambda flat, name, rows: self.layout.view(flat, name)[rows]
        updates = []
        for name, rows in part:
            g = sum(view(flat, name, rows) for flat in self.shared["grads"])
            m = view(self.shared["momentum"], name, rows)
            m.lerp_(g, 0.05)
            g = g.lerp(m, 0.95)
            updates.append(g.t().contiguous() if g.shape[0] > g.shape[1] else g)
        for (name, rows), u in zip(part, (orthogonal(u, self.args.dtype) for u in updates)):
            w = view(self.shared["master"], name, rows)
            u = u if u.shape == w.shape else u.t()
            w.add_(u, alpha=-lr * max(1, w.shape[0] / w.shape[1]) ** 0.5)
            view(self.shared["work"], name, rows).copy_(w)


def rate_at(step, args):
    """Trapezoid: a short rise, a plateau, a straight fall to 0 at --steps."""
    rise = (step + 1) / max(1, args.warmup)
    fall = (args.steps - step) / max(1, args.decay * args.steps)
    return max(0.0, min(1.0, rise, fall))


# ---- Training ----

def working_type(device):
    """bf16 where the products of bf16 are fast; a CPU without such a unit emulates them, 7 to 12 times slower than f32 on a Zen 3."""
    import torch
    if device != "cpu":
        return torch.bfloat16
    try:
        with open("/proc/cpuinfo") as f:
            return torch.bfloat16 if "avx512_bf16" in f.read() else torch.float32
    except OSError:
        return torch.float32


def shared_state(layout, procs, device, dtype):
    """All that training changes. On the CPU the processes share it; gradients have a row a process."""
    import torch
    sizes = dict(master=layout.size, work=layout.size, grads=(procs, layout.size), adam_m=layout.n_adam,
                 adam_v=layout.n_adam, momentum=layout.size)
    state = {n: torch.zeros(size, dtype=dtype if n == "work" else torch.float32, device=device)
             for n, size in sizes.items()}
    state["stop"] = torch.zeros(1, dtype=torch.int32)
    state["sums"] = torch.zeros(procs, 4, 2)  # a process, a class: sum of losses and number of tokens
    return {n: t.share_memory_() for n, t in state.items()} if device == "cpu" else state


KEPT = ("master", "adam_m", "adam_v", "momentum")


def save(args, shared, progress, tokenizer):
    import torch
    state = {n: shared[n].cpu() for n in KEPT} | progress | dict(
        shape=args.shape, seed=args.seed, data=os.path.basename(args.data or ""), tokenizer=tokenizer.to_str())
    write_whole(os.path.join(args.out, "ckpt.pt"), lambda path: torch.save(state, path))


def load(args, shared):
    """Fills the shared state from the checkpoint; returns how far it had come."""
    import torch
    state = torch.load(os.path.join(args.out, "ckpt.pt"), weights_only=True)
    for name in KEPT:
        shared[name].copy_(state[name])
    shared["work"].copy_(shared["master"])
    progress = {k: state[k] for k in ("step", "tokens_seen", "place", "corpus", "commands")}
    if progress["corpus"] != args.corpus:
        say("another corpus: its rows are read from the first")
        progress |= dict(place=(0, 0), corpus=args.corpus)
    return progress


class Trainer:
    """One process of the training. Process 0 also reports and saves."""

    def __init__(self, args, rank, shared, layout, barrier, tokenizer, tokens, progress):
        self.args, self.rank, self.shared, self.barrier, self.tokenizer = args, rank, shared, barrier, tokenizer
        self.progress, self.device = progress, args.device
        self.weights = np.array([args.w_story, args.w_prompt, args.w_answer, 0])
        self.rows = RandomRows(args.shape["vocab"], args.seq) if args.bench else Rows(tokens, args.seed, args.seq)
        self.model = Model(args, layout, shared["work"], shared["grads"][rank], args.device)
        if args.teacher:
            self.model.learn_from(args.teacher, args)
        self.optimiser = Optimiser(args, layout, shared, rank)

    def wait(self):
        if self.barrier:
            self.barrier.wait(timeout=1800)

    def train(self):
        said = saved = time.time()
        seen = self.progress["tokens_seen"]
        last = min(self.args.steps, self.args.stop_at)
        while self.progress["step"] < last:
            self.step()
            stop, now = bool(self.shared["stop"]), time.time()
            done = self.progress["step"] >= last
            if self.rank == 0 and (done or stop or self.progress["step"] % self.args.log_every == 0):
                self.report((self.progress["tokens_seen"] - seen) / (now - said), now - said)
                said, seen = now, self.progress["tokens_seen"]
            if self.rank == 0 and not self.args.bench and (
                    done or stop or now - saved > 60 * self.args.save_minutes):
                save(self.args, self.shared, self.progress, self.tokenizer)
                saved = now
            if stop:
                break

    def step(self):
        import torch
        number, progress = self.progress["step"], self.progress
        seq = self.args.seq
        epoch, row = progress["place"]
        batch, begins, place = self.rows.take(epoch, row, self.args.batch_tokens // seq)
        self.shared["grads"][self.rank].zero_()
        for ids, targets, classes, weights, cuts in micro_batches(batch, begins, self.weights, self.args, self.rank):
            move = lambda a: torch.from_numpy(a).to(self.device)
            losses = self.model.step(move(ids), move(targets), move(weights), torch.from_numpy(cuts), seq)
            self.count(losses, classes)
        if self.rank == 0:
            self.shared["stop"][0] = STOP
        self.wait()  # all gradients are there
        self.optimiser.step(number + 1, rate_at(number, self.args))
        progress["place"] = place
        progress["step"] += 1
        progress["tokens_seen"] += self.args.batch_tokens // seq * seq
        self.wait()  # all weights are there

    def count(self, losses, classes):
        losses = losses.float().cpu().numpy()
        for c in np.flatnonzero(self.weights):
            of = losses[classes == c]
            self.shared["sums"][self.rank, c, 0] += float(of.sum())
            self.shared["sums"][self.rank, c, 1] += len(of)

    def report(self, speed, seconds):
        sums = self.shared["sums"].sum(0)
        self.shared["sums"].zero_()
        all_tokens, answers = sums[:PAD].sum(0), sums[ANSWER]
        step = self.progress["step"]
        left = (self.args.steps - step) * self.args.batch_tokens / max(speed, 1)
        say(f"step {step}/{self.args.steps}  loss {all_tokens[0] / all_tokens[1].clamp(min=1):.4f}"
            f"  answers {answers[0] / answers[1].clamp(min=1):.4f}  {speed:.0f} tokens/s"
            f"  {self.progress['tokens_seen'] / 1e6:.1f} M tokens  ETA {left / 60:.1f} min")


STOP = 0


def ask_to_stop(number, frame):
    global STOP
    STOP = 1


def keep_freed_memory():
    """Large blocks stay in the heap: page faults on fresh ones cost more than the arithmetic in them."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.mallopt(-4, 0)  # M_MMAP_MAX: no block of its own for large requests
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def run_process(rank, args, *rest):
    import torch
    torch.set_num_threads(args.threads or max(1, len(os.sched_getaffinity(0)) // args.procs))
    if rank:  # process 0 says when to stop; the others go with it
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    else:
        signal.signal(signal.SIGINT, ask_to_stop)
        signal.signal(signal.SIGTERM, ask_to_stop)
    Trainer(args, rank, *rest).train()


def this_command():
    return shlex.join(["scripts/train_model.py"] + [os.path.basename(a) if "/" in a else a for a in sys.argv[1:]])


def prepare(args):
    """Tokenizer and tokens; none in a bench."""
    if args.bench:
        args.steps, args.corpus = args.bench, ""
        return None, None
    if not args.data:
        sys.exit("train_model.py: --data FILE is missing (the corpus that make_corpus.py writes)")
    os.makedirs(args.out, exist_ok=True)
    tokenizer = get_tokenizer(args)
    path = encode(args, tokenizer)
    args.corpus = os.path.basename(path)
    return tokenizer, np.memmap(path, np.uint16, "r")


def main():
    args = parse_args()
    if args.export:
        return export(args)
    keep_freed_memory()
    tokenizer, tokens = prepare(args)
    import torch
    args.device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    args.procs = (args.procs or len(os.sched_getaffinity(0))) if args.device == "cpu" else 1
    layout = Layout(args.shape)
    args.dtype = working_type(args.device)
    shared = shared_state(layout, args.procs, args.device, args.dtype)
    progress = dict(step=0, tokens_seen=0, place=(0, 0), corpus=args.corpus, commands=[])
    if args.resume:
        progress = load(args, shared)
    else:
        init_weights(layout, shared["master"], args.shape, args.seed)
        if args.start:
            read_weights(args.start, layout, shared["master"], args.shape, args.start_layers)
        shared["work"].copy_(shared["master"])
    progress["commands"] = progress["commands"] + [this_command()]
    context = torch.multiprocessing.get_context("fork")
    barrier = context.Barrier(args.procs) if args.procs > 1 else None
    rest = (args, shared, layout, barrier, tokenizer, tokens, progress)
    others = [context.Process(target=run_process, args=(r, *rest), daemon=True) for r in range(1, args.procs)]
    for p in others:
        p.start()
    run_process(0, *rest)
    for p in others:
        p.join()


# ---- GGUF ----

def permuted(w, heads):
    """Rows of q or k from halves to adjacent pairs."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def unpermuted(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def gguf_tensors(state):
    """(name, float32 array) of all weights."""
    s, layout = state["shape"], Layout(state["shape"])
    kv = s["dim"] // s["heads"] * s["kv_heads"]
    get = lambda name: layout.view(state["master"], name).numpy()
    yield "token_embd.weight", get("embed")
    for i in range(s["layers"]):
        q, k, v = np.split(get(f"{i}.qkv"), [s["dim"], s["dim"] + kv])
        gate, up = np.split(get(f"{i}.gate_up"), 2)
        yield from ((f"blk.{i}.{name}.weight", w) for name, w in (
            ("attn_norm", get(f"{i}.attn_norm")), ("attn_q", permuted(q, s["heads"])),
            ("attn_k", permuted(k, s["kv_heads"])), ("attn_v", v), ("attn_output", get(f"{i}.out")),
            ("ffn_norm", get(f"{i}.ffn_norm")), ("ffn_gate", gate), ("ffn_up", up), ("ffn_down", get(f"{i}.down"))))
    yield "output_norm.weight", get("norm")


def read_bpe(path):
    """The tokenizer of a GGUF as tokenizer.json's model has it."""
    import gguf
    fields = gguf.GGUFReader(path).fields
    listed = lambda name: [str(bytes(fields[name].parts[i]), "utf-8") for i in fields[name].data]
    return dict(vocab={t: i for i, t in enumerate(listed("tokenizer.ggml.tokens"))}, merges=listed("tokenizer.ggml.merges"))


def strongest(gate, up, down, n):
    """The n channels of an FFN whose three vectors have the largest product of norms, in order."""
    strength = np.linalg.norm(gate, axis=1) * np.linalg.norm(up, axis=1) * np.linalg.norm(down, axis=0)
    return np.sort(np.argsort(-strength, kind="stable")[:n])


def read_weights(path, layout, flat, s, chosen=None):
    """Fills the flat vector from a GGUF of the same shape: what gguf_tensors takes apart comes together again. chosen:
    "0,5" takes these layers of a deeper model, and of a wider FFN the strongest channels."""
    import gguf
    import torch
    kv = s["dim"] // s["heads"] * s["kv_heads"]
    found = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32) for t in gguf.GGUFReader(path).tensors}

    def put(name, *parts):
        a = torch.from_numpy(np.concatenate(parts))
        if a.shape != layout.view(flat, name).shape:
            sys.exit(f"train_model.py: {path}: {name} has shape {tuple(a.shape)}, {tuple(layout.view(flat, name).shape)} expected")
        layout.view(flat, name).copy_(a)

    put("embed", found["token_embd.weight"])
    put("norm", found["output_norm.weight"])
    source = [int(i) for i in chosen.split(",")] if chosen else list(range(s["layers"]))
    if len(source) != s["layers"] or any(f"blk.{i}.attn_norm.weight" not in found for i in source):
        sys.exit(f"train_model.py: {path}: {s['layers']} of its layers expected, found {source} (--start-layers, --shape layers=N)")
    for i, at in enumerate(source):
        get = lambda name: found[f"blk.{at}.{name}.weight"]
        gate, up, down = get("ffn_gate"), get("ffn_up"), get("ffn_down")
        if chosen and s["ffn"] < len(gate):
            keep = strongest(gate, up, down, s["ffn"])
            gate, up, down = gate[keep], up[keep], down[:, keep]
        put(f"{i}.attn_norm", get("attn_norm"))
        put(f"{i}.ffn_norm", get("ffn_norm"))
        put(f"{i}.qkv", unpermuted(get("attn_q"), s["heads"]), unpermuted(get("attn_k"), s["kv_heads"]), get("attn_v"))
        put(f"{i}.out", get("attn_output"))
        put(f"{i}.gate_up", gate, up)
        put(f"{i}.down", down)


def add_shape(w, s, file_type):
    w.add_context_length(s["context"])
    w.add_embedding_length(s["dim"])
    w.add_block_count(s["layers"])
    w.add_feed_forward_length(s["ffn"])
    w.add_head_count(s["heads"])
    w.add_head_count_kv(s["kv_heads"])
    w.add_rope_dimension_count(s["dim"] // s["heads"])
    w.add_rope_freq_base(s["theta"])
    w.add_layer_norm_rms_eps(s["eps"])
    w.add_vocab_size(s["vocab"])
    w.add_file_type(file_type)


def add_tokenizer(w, bpe):
    import gguf
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].get)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("llama-bpe")
    w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.CONTROL if t in SPECIALS else gguf.TokenType.NORMAL for t in tokens])
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in bpe["merges"]])
    w.add_bos_token_id(BOS)
    w.add_eos_token_id(END)
    w.add_eot_token_id(END)
    w.add_add_bos_token(True)
    w.add_chat_template(CHATML)


def add_provenance(w, state, args, n_weights):
    w.add_name("quill stories")
    w.add_license("MIT")
    w.add_description("A small model for short stories and small talk, trained from nothing on text that a script makes")
    w.add_size_label(f"{n_weights / 1e6:.1f}M")
    w.add_languages(["en"])
    w.add_string("general.dataset.0.name", state["data"])
    w.add_string("general.dataset.0.script", args.corpus_script)
    w.add_string("general.dataset.0.seed", str(args.corpus_seed))
    w.add_string("general.source.commands", "\n".join(state["commands"]))
    w.add_uint64("general.source.seed", state["seed"])
    w.add_uint64("general.source.steps", state["step"])
    w.add_uint64("general.source.tokens", state["tokens_seen"])


def export(args):
    import gguf
    import torch
    state = torch.load(args.export, weights_only=True, map_location="cpu")
    if args.mean_with:
        older = torch.zeros_like(state["master"])
        read_weights(args.mean_with, Layout(state["shape"]), older, state["shape"])
        state["master"] = older.lerp(state["master"], args.share)
    q8 = args.out_type == "q8_0"
    w = gguf.GGUFWriter(args.gguf + ".tmp", "llama")
    add_provenance(w, state, args, len(state["master"]))
    add_shape(w, state["shape"], gguf.LlamaFileType.MOSTLY_Q8_0 if q8 else gguf.LlamaFileType.ALL_F32)
    add_tokenizer(w, json.loads(state["tokenizer"])["model"])
    for name, a in gguf_tensors(state):
        kind = gguf.GGMLQuantizationType.Q8_0 if q8 and a.ndim == 2 else gguf.GGMLQuantizationType.F32
        w.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(a), kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    os.replace(args.gguf + ".tmp", args.gguf)


if __name__ == "__main__":
    main()

"""The trainer against its own plain functions, and its GGUF against quill. Run by tests/training.bats, which skips
where PyTorch is not installed: python3 tests/check_training.py QUILL FOLDER"""

import argparse
import json
import os
import random
import subprocess
import sys

import numpy as np
import torch

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scripts")
sys.path.insert(0, SCRIPTS)
import train_amx
import train_model


def distance(found, expected):
    found, expected = found.detach().float(), expected.detach().float()
    return float((found - expected).norm() / expected.norm())


def near(what, found, expected, limit):
    d = distance(found, expected)
    print(f"{what}: {d:.1e}")
    assert d < limit, f"{what}: a distance below {limit} expected, {d} found"


def check_attention(lib):
    cuts = torch.tensor([0, 1, 34, 250, 513, 514, 577, 800], dtype=torch.int32)
    q, k, v, g = [torch.randn(800, heads, 64).bfloat16() for heads in (4, 2, 2, 4)]
    plain = [x.float().requires_grad_() for x in (q, k, v)]
    expected = train_model.plain_attention(*plain, cuts)
    expected_grads = torch.autograd.grad(expected, plain, g.float())
    fast = [x.requires_grad_() for x in (q, k, v)]
    found = train_amx.attention(lib)(*fast, cuts)
    near("attention", found, expected, 1e-2)
    for name, a, b in zip("qkv", torch.autograd.grad(found, fast, g), expected_grads):
        near(f"attention, gradient of {name}", a, b, 1e-2)


def check_document_attention():
    """Document after document is the same as all at once under a mask: also where a document is one token."""
    cuts = torch.tensor([0, 1, 34, 250, 251], dtype=torch.int32)
    inputs = [torch.randn(251, heads, 32, requires_grad=True) for heads in (6, 2, 2)]
    g = torch.randn(251, 6, 32)
    found, expected = (attend(*inputs, cuts) for attend in (train_model.document_attention, train_model.plain_attention))
    near("attention of documents", found, expected, 1e-5)
    for name, a, b in zip("qkv", *(torch.autograd.grad(y, inputs, g) for y in (found, expected))):
        near(f"attention of documents, gradient of {name}", a, b, 1e-5)


def check_rows(lib):
    """Weight gradients, loss and SwiGLU."""
    for n, outs, ins in ((32, 32, 32), (96, 512, 256), (416, 256, 768)):
        g, x, start = torch.randn(n, outs).bfloat16(), torch.randn(n, ins).bfloat16(), torch.randn(outs, ins)
        found = start.clone()
        train_amx.add_outer(lib, train_model.plain_add_outer)(found, g, x)
        near(f"weight gradient {n} {outs} {ins}", found, start + g.float().t() @ x.float(), 1e-5)
    logits, targets, weights = 3 * torch.randn(37, 4096).bfloat16(), torch.randint(4096, (37,)), torch.rand(37)
    losses, d = train_model.loss_with_gradient(logits.float(), targets, weights)
    found, found_d = train_amx.loss(lib)(logits.clone(), targets, weights)
    near("loss", found, losses, 1e-5)
    near("gradient of the loss", found_d, d, 1e-2)
    swiglu = train_model.make_layer_parts(train_model.SHAPE)[3]
    x, g = torch.randn(29, 1536), torch.randn(29, 768)
    plain, fast = x.clone().requires_grad_(), x.bfloat16().requires_grad_()
    expected, found = swiglu(plain), train_amx.swiglu(lib)(fast)
    near("SwiGLU", found, expected, 1e-2)
    near("SwiGLU, gradient", *(torch.autograd.grad(y, t, g.to(y.dtype))[0] for y, t in ((found, fast), (expected, plain))), 1e-2)


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, **options).stdout


def train(folder, out, *more):
    run(sys.executable, os.path.join(SCRIPTS, "train_model.py"), "--data", os.path.join(folder, "corpus.txt"), "--out",
        out, "--seq", "512", "--batch-tokens", "2048", "--micro-tokens", "1024", "--no-compile", *more)
    return torch.load(os.path.join(out, "ckpt.pt"), weights_only=True)


def check_resume(folder):
    """A run that was stopped and went on is the run that was not."""
    whole, parts = (os.path.join(folder, name) for name in ("whole", "parts"))
    expected = train(folder, whole, "--steps", "4")  # so short that the rate only rises: --steps does not change it
    train(folder, parts, "--steps", "2")
    found = train(folder, parts, "--steps", "4", "--resume")
    assert found["step"] == expected["step"] == 4 and torch.equal(found["master"], expected["master"])
    return expected


def check_gguf(quill, folder, state):
    """quill reads the tokenizer as it was trained, and gets the logits that PyTorch gets."""
    gguf = os.path.join(folder, "model.gguf")
    run(sys.executable, os.path.join(SCRIPTS, "train_model.py"), "--export", os.path.join(folder, "whole", "ckpt.pt"),
        "--gguf", gguf, "--out-type", "f32")
    tokenizer = train_model.load_tokenizer(json.loads(state["tokenizer"])["model"])
    rng = random.Random(2)
    alphabet = [chr(c) for c in (*range(9, 14), *range(32, 127), *range(0xA0, 0x24F), *range(0x4E00, 0x4E20), 0x1F642)]
    texts = ["It's 12345 + 6789 = 19134.\n\n  def f(x):\n\treturn x\r\n", "a" * 300, "Where is the blue cup?"]
    for text in texts + ["".join(rng.choices(alphabet, k=80)) for _ in range(20)]:
        ids = run(quill, "tokenize", "-m", gguf, "--ids", "--no-bos", "-f", "-", input=text.encode())
        assert [int(i) for i in ids.split()] == tokenizer.encode(text).ids, text
    ids = [0] + tokenizer.encode("Once upon a time there was a girl called Anna. 12 plus 30 is 42.").ids
    args = argparse.Namespace(shape=state["shape"], no_amx=True, no_compile=True, soft=0)
    layout = train_model.Layout(state["shape"])
    model = train_model.Model(args, layout, state["master"], torch.zeros_like(state["master"]), "cpu")
    with torch.no_grad():
        embed = layout.view(state["master"], "embed")
        hidden = model.hidden(embed[torch.tensor(ids)], torch.tensor([0, len(ids)], dtype=torch.int32), len(ids))
    found = run(quill, "logits", "-m", gguf, "--isa", "scalar", "-ctk", "f32", "-ctv", "f32", "--tokens", ",".join(map(str, ids)))
    found = np.frombuffer(found, np.float32).reshape(len(ids), -1)
    near("logits", torch.from_numpy(found.copy()), hidden @ embed.t(), 1e-5)


def check_start(folder, state):
    """A run that starts from the written model has its weights and its tokenizer; one may learn from it."""
    gguf, out = os.path.join(folder, "model.gguf"), os.path.join(folder, "again")
    again = train(folder, out, "--start", gguf, "--steps", "1", "--lr-muon", "0", "--lr-adam", "0")
    assert torch.equal(again["master"], state["master"])
    ours, theirs = (train_model.load_tokenizer(json.loads(s["tokenizer"])["model"]) for s in (state, again))
    text = "Anna's 12 blue cups,\n\nand Tom \u4e00."
    assert ours.encode(text).ids == theirs.encode(text).ids
    mean = os.path.join(folder, "mean.gguf")
    for share in (0.5, 1.0):  # the mean with itself is itself
        run(sys.executable, os.path.join(SCRIPTS, "train_model.py"), "--export", os.path.join(out, "ckpt.pt"), "--gguf", mean,
            "--out-type", "f32", "--mean-with", gguf, "--share", str(share))
        read = torch.zeros_like(state["master"])
        train_model.read_weights(mean, train_model.Layout(state["shape"]), read, state["shape"])
        near("mean of two models", read, state["master"], 1e-6)
    shape = "dim=128,heads=2,kv_heads=1,ffn=256,layers=2"
    pupil = train(folder, os.path.join(folder, "pupil"), "--teacher", gguf, "--shape", shape, "--steps", "2")
    assert pupil["step"] == 2 and torch.isfinite(pupil["master"]).all()
    check_chosen_layers(folder, state, gguf)


def check_chosen_layers(folder, state, gguf):
    """A start from some layers has these layers, and the channels of their FFN whose removal would take most."""
    cut = train(folder, os.path.join(folder, "cut"), "--start", gguf, "--start-layers", "1,4", "--shape", "layers=2,ffn=512",
                "--steps", "1", "--lr-muon", "0", "--lr-adam", "0")
    at = lambda s, name: train_model.Layout(s["shape"]).view(s["master"], name)
    for i, source in enumerate((1, 4)):
        for name in ("attn_norm", "ffn_norm", "qkv", "out"):
            near(f"layer {source} as layer {i}, {name}", at(cut, f"{i}.{name}"), at(state, f"{source}.{name}"), 1e-6)
        gate, up = at(state, f"{source}.gate_up").chunk(2)
        down = at(state, f"{source}.down")
        keep = (gate.norm(dim=1) * up.norm(dim=1) * down.norm(dim=0)).topk(512).indices.sort().values
        near(f"FFN of layer {source}", at(cut, f"{i}.gate_up"), torch.cat((gate[keep], up[keep])), 1e-6)
        near(f"FFN of layer {source}, down", at(cut, f"{i}.down"), down[:, keep], 1e-6)
    near("embedding", at(cut, "embed"), at(state, "embed"), 1e-6)
    refused = subprocess.run([sys.executable, os.path.join(SCRIPTS, "train_model.py"), "--data", os.path.join(folder, "corpus.txt"), "--out",
                              os.path.join(folder, "cut"), "--start", gguf, "--start-layers", "1,9", "--shape", "layers=2"],
                             capture_output=True, text=True)
    assert refused.returncode == 1 and "--start-layers" in refused.stderr, refused.stderr


def check_distillation():
    """The gradient is that of the mixed cross-entropy."""
    logits, taught = torch.randn(5, 40, requires_grad=True), torch.randn(5, 40)
    targets, weights = torch.randint(40, (5,)), torch.rand(5)
    for soft in (0.0, 0.7, 1.0):
        logs = torch.log_softmax(logits, -1)
        text = -logs.gather(1, targets[:, None]).squeeze(-1)
        mixed = (1 - soft) * text - soft * (torch.softmax(taught, -1) * logs).sum(-1)
        expected, = torch.autograd.grad((weights * mixed).sum(), logits)
        losses, found = train_model.distilling_loss(logits.detach(), targets, weights, taught, soft)
        near("loss of distillation", losses, text, 1e-5)
        near("gradient of distillation", found, expected, 1e-5)


def check_rows_that_count():
    """Rows of no weight change nothing: the gradients are those of the head on all rows."""
    args = argparse.Namespace(shape=train_model.SHAPE, no_amx=True, no_compile=True, soft=0)
    layout, n = train_model.Layout(args.shape), 400
    flat = torch.zeros(layout.size)
    train_model.init_weights(layout, flat, args.shape, 1)
    ids, targets = torch.randint(4096, (n,)), torch.randint(4096, (n,))
    weights = torch.rand(n) * (torch.rand(n) < 0.3)
    grads, losses = [torch.zeros(layout.size) for _ in range(2)], []
    for i, sum_ in enumerate(grads):
        model = train_model.Model(args, layout, flat, sum_, "cpu")
        if i:
            model.head_where = lambda counts, *rest, head=model.head: head(*rest)
        losses.append(model.step(ids, targets, weights, torch.tensor([0, 150, n], dtype=torch.int32), n))
    near("gradients where few rows count", *grads, 1e-6)
    assert torch.equal(losses[0][weights > 0], losses[1][weights > 0]) and torch.all(losses[1] > 0)


def main():
    quill, folder = sys.argv[1:]
    torch.manual_seed(1)
    lib = train_amx.library(folder)
    if lib:
        check_attention(lib)
        check_rows(lib)
    else:
        print("skipped: neither AMX nor AVX-512 BF16 on this machine")
    check_document_attention()
    check_distillation()
    check_rows_that_count()
    run(sys.executable, os.path.join(SCRIPTS, "make_corpus.py"), "--bytes", "2M", "-o", os.path.join(folder, "corpus.txt"))
    state = check_resume(folder)
    check_gguf(quill, folder, state)
    check_start(folder, state)


if __name__ == "__main__":
    main()

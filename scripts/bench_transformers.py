#!/usr/bin/env python3
"""Benchmarks the shapes of gpu_check.sh in Hugging Face transformers, with random weights in bf16: eager, and with a static
cache and a compiled step. Prints one JSON object, also if a part fails or SIGTERM comes; "failed" lists missing figures.
`bench_transformers.py tiny cpu` runs a small test on any machine."""
import inspect
import json
import signal
import statistics
import sys
import time

try:
    import torch
    import transformers
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache
except ImportError as reason:
    sys.exit(f"bench_transformers: torch and transformers expected (pip install torch transformers): {reason}")

SHAPES = {  # hidden, layers, heads, KV heads, intermediate, vocabulary, tied
    "1b": (2048, 16, 32, 8, 8192, 128256, True),
    "8b": (4096, 32, 32, 8, 14336, 128256, False),
    "tiny": (64, 2, 4, 2, 128, 320, True),
}


def build(name, device):
    hidden, layers, heads, kv_heads, ffn, vocab, tied = SHAPES[name]
    config = LlamaConfig(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                         num_key_value_heads=kv_heads, intermediate_size=ffn, vocab_size=vocab, tie_word_embeddings=tied,
                         max_position_embeddings=8192)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        return LlamaForCausalLM(config).eval()


def seconds(device, work, repeats=5):
    """The median time of work(), after one run that warms up."""
    times = []
    for _ in range(repeats + 1):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def decode(model, step, cache, n, device):
    """n greedy steps of one token, from an empty cache."""
    cache.reset()
    token = torch.ones((1, 1), dtype=torch.long, device=device)
    takes_position = "cache_position" in inspect.signature(model.model.forward).parameters  # until transformers 5
    for i in range(n):
        at = torch.tensor([i], device=device)
        more = {"cache_position": at} if takes_position else {}
        logits = step(input_ids=token, position_ids=at[None], past_key_values=cache, use_cache=True, **more).logits
        token = logits[:, -1:].argmax(-1)


def measure(name, device, note):
    n_prompt, n_gen = (512, 64) if device == "cuda" else (16, 4)
    model = build(name, device)
    prompt = torch.randint(1, 300, (1, n_prompt), device=device)
    cache = StaticCache(config=model.config, max_cache_len=n_prompt + n_gen)

    def compiled():
        step = torch.compile(model, mode="reduce-overhead", fullgraph=True)
        return seconds(device, lambda: decode(model, step, cache, n_gen, device), 3)

    with torch.no_grad():
        note(name, "eager", f"pp{n_prompt}", n_prompt,
             lambda: seconds(device, lambda: model(input_ids=prompt, use_cache=False, logits_to_keep=1)))
        note(name, "eager", f"tg{n_gen}", n_gen,
             lambda: seconds(device, lambda: decode(model, model, cache, n_gen, device), 3))
        note(name, "static cache, compiled", f"tg{n_gen}", n_gen, compiled)


def main():
    names = [n for n in sys.argv[1:] if n in SHAPES] or ["1b", "8b"]
    device = "cpu" if "cpu" in sys.argv else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("bench_transformers: a GPU that torch can use expected, none found; `tiny cpu` runs without")
    report = {"torch": torch.__version__, "transformers": transformers.__version__, "results": [], "failed": []}

    def note(name, how, test, tokens, work):
        try:
            report["results"].append({"model": name, "how": how, "test": test, "tok_s": tokens / work()})
        except Exception as reason:  # compiling fails in many ways; the other figures are good without it
            lines = str(reason).strip().splitlines()
            report["failed"].append(f"{name}, {how}, {test}: {type(reason).__name__}: {lines[0] if lines else ''}")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench_transformers: ended before its time"))
    try:
        for name in names:
            measure(name, device, note)
            if device == "cuda":
                torch.cuda.empty_cache()
    finally:
        print(json.dumps(report))


main()

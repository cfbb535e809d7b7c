#!/usr/bin/env python3
"""The shapes of gpu_check.sh in Hugging Face transformers, random weights in bf16: eager, and a static cache with a compiled
step. One JSON object on stdout. `bench_transformers.py tiny cpu` tries it out anywhere."""
import json
import statistics
import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

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
    """n greedy steps of one token."""
    token = torch.ones((1, 1), dtype=torch.long, device=device)
    for i in range(n):
        position = torch.tensor([i], device=device)
        logits = step(input_ids=token, past_key_values=cache, cache_position=position, use_cache=True).logits
        token = logits[:, -1:].argmax(-1)


def main():
    names = [n for n in sys.argv[1:] if n in SHAPES] or ["1b", "8b"]
    device = "cpu" if "cpu" in sys.argv else "cuda"
    n_prompt, n_gen = (512, 64) if device == "cuda" else (16, 4)
    results = []

    def note(name, how, test, tokens, took):
        results.append({"model": name, "how": how, "test": test, "tok_s": tokens / took})

    for name in names:
        model = build(name, device)
        prompt = torch.randint(1, 300, (1, n_prompt), device=device)
        with torch.no_grad():
            took = seconds(device, lambda: model(input_ids=prompt, use_cache=False, logits_to_keep=1))
            note(name, "eager", f"pp{n_prompt}", n_prompt, took)
            fixed = lambda: StaticCache(config=model.config, max_cache_len=n_prompt + n_gen)
            took = seconds(device, lambda: decode(model, model, fixed(), n_gen, device), 3)
            note(name, "eager", f"tg{n_gen}", n_gen, took)
            cache = fixed()
            step = torch.compile(model, mode="reduce-overhead", fullgraph=True)
            took = seconds(device, lambda: decode(model, step, cache, n_gen, device), 3)
            note(name, "static cache, compiled", f"tg{n_gen}", n_gen, took)
        del model
        if device == "cuda":
            torch.cuda.empty_cache()
    print(json.dumps({"torch": torch.__version__, "results": results}))


main()

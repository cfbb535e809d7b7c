#!/usr/bin/env python3
"""Measures what quantised and evicted KV costs in perplexity: the tables of docs/kv.md, and a plot of the curve.

    scripts/make_corpus.py --seed 4711 --bytes 1M -o all.txt && head -c 90000 all.txt >text.txt
    scripts/kv_quality.py -f text.txt                    # the built-in model
    scripts/kv_quality.py -f text.txt -m M.gguf --png curve.png

Every line is one `quill perplexity --json`. The plot needs matplotlib; the tables need nothing.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile

TYPES = ["f32", "f16", "bf16", "fp8", "q8_0", "q4_0", "kivi2"]


def perplexity(args, *options, file=None):
    command = [args.quill, "perplexity", "-m", args.model, "-f", file or args.file, "--parse-special", "--json", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_row(name, found, exact):
    errors = found.get("attention_error", [])
    worst = f"{max(errors):.1e}" if errors else ""
    change = 100 * (found["perplexity"] / exact["perplexity"] - 1)
    print(f"| {name} | {found['slot_bytes']} | {found['perplexity']:.4f} | {change:+.3f}% | {worst} |", flush=True)


def tell_types(args):
    print(f"| K, V | bytes a token | perplexity, -c {args.context} | change | attention error, worst layer |")
    print("|---|---|---|---|---|")
    context = ["-c", str(args.context), "--kv-error"]
    exact = perplexity(args, *context, "-ctk", "f32", "-ctv", "f32")
    print_row("f32", exact, exact)
    for kind in TYPES[1:]:
        print_row(kind, perplexity(args, *context, "-ctk", kind, "-ctv", kind), exact)
    for kind in ("q4_0", "kivi2"):
        print_row(f"{kind}, --kv-rotate", perplexity(args, *context, "-ctk", kind, "-ctv", kind, "--kv-rotate"), exact)
    print_row("q8_0, q4_0", perplexity(args, *context, "-ctk", "q8_0", "-ctv", "q4_0"), exact)


def over_pieces(args, *options):
    """Perplexity and the worst layer's error over pieces of the text, each a text of its own within the context."""
    text = open(args.file, "rb").read()
    nll, tokens, errors = 0, 0, []
    for at in range(0, len(text) - args.piece + 1, args.piece):
        with tempfile.NamedTemporaryFile() as piece:
            piece.write(text[at:at + args.piece])
            piece.flush()
            found = perplexity(args, "-c", str(args.context), "--kv-error", *options, file=piece.name)
        nll += found["nll"] * found["tokens"]
        tokens += found["tokens"]
        errors.append(max(found["attention_error"]))
    return math.exp(nll / tokens), tokens, sum(errors) / len(errors)


def tell_evictions(args):
    size = args.context // 4
    exact, tokens, error = over_pieces(args)
    print(f"\n| `--evict` | slots | perplexity, pieces of {args.piece} bytes, {tokens} tokens | change | attention error |")
    print(f"|---|---|---|---|---|\n| none | {args.context} | {exact:.4f} | | {error:.1e} |", flush=True)
    for plan in (f"sinks,sink=4,window={size - 4}", f"sinks,sink=0,window={size}",
                 f"h2o,heavy={size // 2},recent={size - size // 2}", f"snapkv,cap={size},window=32"):
        found, _, error = over_pieces(args, "--evict", plan)
        print(f"| {plan} | {size} | {found:.4f} | {100 * (found / exact - 1):+.2f}% | {error:.2f} |", flush=True)


def tell_curve(args):
    size = args.slots
    curves = {
        f"sinks, 4 + {size - 4}": ["-c", str(size), "--evict", f"sinks,sink=4,window={size - 4}"],
        f"window, {size}": ["-c", str(size), "--evict", f"sinks,sink=0,window={size}"],
        "no eviction": ["-c", str(args.tokens + 1)],
    }
    found = {name: perplexity(args, *options)["curve"] for name, options in curves.items()}
    n = min(len(c) for c in found.values())
    print("\n| tokens to | " + " | ".join(found) + " |\n|" + "---|" * (len(found) + 1))
    for i in range(n):
        print(f"| {(i + 1) * 1000} | " + " | ".join(f"{c[i]['perplexity']:.3f}" for c in found.values()) + " |")
    return found


def plot(found, path):
    try:
        import matplotlib
    except ImportError:
        sys.exit("kv_quality.py: --png: matplotlib expected, not found; the table has the same numbers")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    for name, curve in found.items():
        plt.plot([p["tokens"] for p in curve], [p["perplexity"] for p in curve], label=name)
    plt.xlabel("tokens")
    plt.ylabel("perplexity of the last 1000")
    plt.yscale("log")
    plt.legend()
    plt.savefig(path, dpi=120, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-q", "--quill", default="./quill")
    parser.add_argument("-m", "--model", default="builtin")
    parser.add_argument("-f", "--file", required=True)
    parser.add_argument("-c", "--context", type=int, default=2048, help="of the first two tables")
    parser.add_argument("--piece", type=int, default=8000, help="bytes of a piece in the second, within that context")
    parser.add_argument("--slots", type=int, default=1024, help="of the curve's caches")
    parser.add_argument("--tokens", type=int, default=24000, help="at least the text's: the context of no eviction")
    parser.add_argument("--only", choices=["types", "evictions", "curve"])
    parser.add_argument("--png", help="the curve as a plot")
    args = parser.parse_args()
    if args.only in (None, "types"):
        tell_types(args)
    if args.only in (None, "evictions"):
        tell_evictions(args)
    if args.only in (None, "curve"):
        found = tell_curve(args)
        if args.png:
            plot(found, args.png)


if __name__ == "__main__":
    main()

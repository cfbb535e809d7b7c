#!/usr/bin/env python3
"""Measures what quantised and evicted KV costs in perplexity: the tables of docs/kv.md, and a plot of the curve.

    scripts/make_corpus.py --seed 4711 --bytes 1M -o all.txt && head -c 90000 all.txt >text.txt
    scripts/kv_quality.py -f text.txt                    # the built-in model
    scripts/kv_quality.py -f text.txt -m M.gguf --png curve.png

Every line of the tables comes from `quill perplexity --json`, or from questions about facts far back in a text. Only the
plot needs matplotlib.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

os.environ["XDG_CONFIG_HOME"] = "/dev/null"  # ignores the user's configuration

TYPES = ["f32", "f16", "bf16", "fp8", "q8_0", "q4_0", "kivi2"]


def perplexity(args, *options, file=None):
    command = [args.quill, "perplexity", "-m", args.model, "-f", file or args.file, "--parse-special", "--json", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def tell_types(args):
    """Errors are measured only on the text's beginning, since attention in float64 is slow."""
    print(f"| K, V | bytes per token | perplexity, -c {args.context} | change | attention error, worst layer | layer by layer |")
    print("|---|---|---|---|---|---|")
    runs = {kind: ["-ctk", kind, "-ctv", kind] for kind in TYPES}
    runs |= {f"{kind}, --kv-rotate": [*runs[kind], "--kv-rotate"] for kind in ("q4_0", "kivi2")}
    runs["q8_0, q4_0"] = ["-ctk", "q8_0", "-ctv", "q4_0"]
    exact = None
    with tempfile.NamedTemporaryFile() as beginning:
        beginning.write(open(args.file, "rb").read()[:args.error_bytes])
        beginning.flush()
        for name, options in runs.items():
            found = perplexity(args, "-c", str(args.context), *options)
            errors = perplexity(args, "-c", str(args.context), "--kv-error", *options, file=beginning.name)["attention_error"]
            exact = exact or found["perplexity"]
            change = 100 * (found["perplexity"] / exact - 1)
            print(f"| {name} | {found['slot_bytes']} | {found['perplexity']:.4f} | {change:+.3f}% | {max(errors):.1e} | "
                  + " ".join(f"{e:.1e}" for e in errors) + " |", flush=True)


def over_pieces(args, *options):
    """Perplexity and each layer's error over independent pieces of the text that fit the context."""
    text = open(args.file, "rb").read()
    nll, tokens, errors = 0, 0, []
    for at in range(0, len(text) - args.piece + 1, args.piece):
        with tempfile.NamedTemporaryFile() as piece:
            piece.write(text[at:at + args.piece])
            piece.flush()
            found = perplexity(args, "-c", str(args.context), "--kv-error", *options, file=piece.name)
        nll += found["nll"] * found["tokens"]
        tokens += found["tokens"]
        errors.append(found["attention_error"])
    return math.exp(nll / tokens), tokens, [sum(of_layer) / len(errors) for of_layer in zip(*errors)]


def tell_evictions(args):
    size = args.context // 4
    exact, tokens, errors = over_pieces(args)
    print(f"\n| `--evict` | slots | perplexity, pieces of {args.piece} bytes, {tokens} tokens | change | attention error, worst layer | layer by layer |")
    print("|---|---|---|---|---|---|")
    print(f"| none | {args.context} | {exact:.4f} | | {max(errors):.1e} | {' '.join(f'{e:.1e}' for e in errors)} |", flush=True)
    for plan in (f"sinks,sink=4,window={size - 4}", f"sinks,sink=0,window={size}",
                 f"h2o,heavy={size // 2},recent={size - size // 2}", f"snapkv,cap={size},window=32"):
        found, _, errors = over_pieces(args, "--evict", plan)
        print(f"| {plan} | {size} | {found:.4f} | {100 * (found / exact - 1):+.2f}% | {max(errors):.2f} | "
              + " ".join(f"{e:.2f}" for e in errors) + " |", flush=True)


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


PERSONS = {"Tom": "He", "Anna": "She", "Greta": "She"}
PLACES = ["mill", "station", "harbour", "barn"]
THINGS = ["blue cup", "green lamp", "yellow book"]
NOTHING = ("The rooks crossed the sky in a line while the chestnut trees swayed. A lark whistled a cheerful tune. A snail crossed the "
           "path little by little, and a thrush tried out a new song. The wind came and went in the tall grass. ")


def answers(args, person, place, thing, *options):
    fact = f"{person} went to the {place}. {PERSONS[person]} put the {thing} there."
    prompt = f"{fact}\n\n{NOTHING * args.repeat}\n\nWhere is the {thing}?"
    command = [args.quill, "-m", args.model, "--greedy", "-n", "30", "-p", prompt, *options]
    return place in subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


def tell_needles(args):
    """A fact, followed by much filler text and a question about the fact."""
    plans = {"none": None}
    for slots in (96, 160, 320):
        plans[f"sinks,sink=4,window={slots - 4}"] = slots
        plans[f"h2o,heavy={slots // 2},recent={slots - slots // 2}"] = slots
        plans[f"snapkv,cap={slots},window=32"] = slots
    needles = [(person, place, thing) for person in PERSONS for place in PLACES for thing in THINGS]
    print(f"\n| `--evict` | slots | of {len(needles)} facts answered |\n|---|---|---|")
    for plan, slots in plans.items():
        options = ["--evict", plan] if slots else []
        print(f"| {plan} | {slots or 'all'} | {sum(answers(args, *needle, *options) for needle in needles)} |", flush=True)


def plot(found, path):
    try:
        import matplotlib
    except ImportError:
        sys.exit("kv_quality.py: --png: matplotlib expected, not found; the table has the same numbers")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 3.6))
    for (name, curve), style in zip(found.items(), ("-", (0, (2, 2)), "-.")):  # curves may coincide
        axes.plot([p["tokens"] for p in curve], [p["perplexity"] for p in curve], linestyle=style, label=name)
    axes.set(xlabel="tokens", ylabel="perplexity of the last 1000", yscale="log", xlim=0)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=100, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-q", "--quill", default="./quill")
    parser.add_argument("-m", "--model", default="builtin")
    parser.add_argument("-f", "--file", help="the text of all but the needles")
    parser.add_argument("-c", "--context", type=int, default=2048, help="of the first two tables")
    parser.add_argument("--error-bytes", type=int, default=20000, help="of the text, for the first table's attention errors")
    parser.add_argument("--piece", type=int, default=8000, help="bytes of a piece in the second, within that context")
    parser.add_argument("--slots", type=int, default=1024, help="of the curve's caches")
    parser.add_argument("--tokens", type=int, default=24000, help="at least the text's: the context of no eviction")
    parser.add_argument("--only", choices=["types", "evictions", "curve", "needles"])
    parser.add_argument("--repeat", type=int, default=8, help="of the sentences behind a needle")
    parser.add_argument("--png", help="the curve as a plot")
    args = parser.parse_args()
    if not args.file and args.only != "needles":
        parser.error("a text expected: -f FILE")
    if args.only in (None, "types"):
        tell_types(args)
    if args.only in (None, "evictions"):
        tell_evictions(args)
    if args.only in (None, "needles"):
        tell_needles(args)
    if args.only in (None, "curve"):
        found = tell_curve(args)
        if args.png:
            plot(found, args.png)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures what each type of weights costs: the tables and the plot of docs/quantize.md.

    scripts/make_corpus.py --seed 77 --bytes 400k -o text.txt && head -c 60000 text.txt >test.txt
    scripts/make_corpus.py --seed 78 --bytes 400k -o calibration.txt
    scripts/quantize_quality.py --measure ./quill --name "quill-stories" -m model-f32.gguf -f test.txt --calibrate calibration.txt
    scripts/quantize_quality.py --speed ./quill      # adds decoding of --shape 1.1b, on a quiet machine
    scripts/quantize_quality.py                      # docs/quantize.png and the tables; the plot needs matplotlib

--measure adds its lines to docs/quantize.csv and replaces those with the same name. Each line is a file that `quill
quantize` made; `quill perplexity --kl` measures its divergence from MODEL.
"""

import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ENVIRONMENT = {**os.environ, "XDG_CONFIG_HOME": "/dev/null"}  # ignores the user's configuration
DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
FIGURES, SPEEDS, PICTURE = DOCS / "quantize.csv", DOCS / "quantize_speed.csv", DOCS / "quantize.png"
TYPES = ["F16", "BF16", "Q8_0", "Q6_K", "Q5_1", "Q5_K", "Q5_0", "Q4_1", "Q4_K", "IQ4_NL", "Q4_0", "IQ4_XS", "MXFP4", "Q3_K", "Q2_K"]
MIXES = ["Q5_K_M", "Q4_K_M", "Q4_K_S", "Q3_K_L", "Q3_K_M", "Q2_K_S"]
EXACT = {"F16", "BF16", "Q8_0", "MXFP4"}  # types that do not use importance
PRUNES = [(share, by) for share in ("2:4", "0.5") for by in ("magnitude", "wanda")]
LABELS = {"Q4_0": (5, 4), "IQ4_NL": (5, -3), "Q4_K": (5, -10), "IQ4_XS": (-34, -3), "Q5_K": (-26, -6), "Q4_1": (5, 1)}  # positions of labels that would overlap
FIELDS = ["model", "type", "importance", "prune", "bytes", "bits", "perplexity", "kl", "kl_error", "kl_median", "kl_p99", "same_top"]


# ---- measuring ------------------------------------------------------------------------------------------------------


def run(*command):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, env=ENVIRONMENT)


def perplexity(args, model, *options):
    return json.loads(run(args.measure, "perplexity", "-m", model, "--parse-special", "--json", *options).stdout)


def judge(args, folder, kind, imatrix=None, prune=None):
    out, options = folder / "out.gguf", []
    if imatrix: options += ["--imatrix", imatrix]
    if prune: options += ["--prune", prune[0], "--prune-by", prune[1]]
    run(args.measure, "quantize", "-q", *options, args.model, out, kind)
    seen = json.loads(run(args.measure, "inspect", "--json", out).stdout)
    kinds = {t["type"] for t in seen["tensors"]}
    if not any(k == kind if kind in TYPES else "_K" in k for k in kinds): return None  # the rows are not whole blocks of this type
    found = perplexity(args, out, "-f", args.file, "--kl", folder / "base")
    weights = sum(t["bytes"] for t in seen["tensors"])
    kl = found["kl"]
    row = [args.name, kind, "yes" if imatrix else "no", "%s %s" % prune if prune else "", weights,
           "%.3f" % (8 * weights / seen["parameters"]), "%.4f" % found["perplexity"], "%.6f" % kl["mean"], "%.6f" % kl["error"],
           "%.6f" % kl["median"], "%.5f" % kl["p99"], "%.4f" % found["same_top"]]
    print(*row, file=sys.stderr)
    return row


def measure(args):
    rows = [r for r in read(FIGURES) if r["model"] != args.name]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        imatrix = folder / "imatrix"
        base = perplexity(args, args.model, "-f", args.file, "--kl-base", folder / "base")
        perplexity(args, args.model, "-f", args.calibrate, "--imatrix-out", imatrix)
        seen = json.loads(run(args.measure, "inspect", "--json", args.model).stdout)
        weights = sum(t["bytes"] for t in seen["tensors"])
        new = [[args.name, "F32", "no", "", weights, "%.3f" % (8 * weights / seen["parameters"]),
                "%.4f" % base["perplexity"], 0, 0, 0, 0, 1]]
        for kind in TYPES + MIXES:
            plain = judge(args, folder, kind)
            new += [plain, judge(args, folder, kind, imatrix) if plain and kind not in EXACT else None]
        for kind in ("Q8_0", "Q5_K", "Q4_K"):
            new += [judge(args, folder, kind, imatrix, prune) for prune in PRUNES]
    rows += [dict(zip(FIELDS, r)) for r in new if r]
    write(FIGURES, FIELDS, rows)


def speed(args):
    rows = []
    for kind in TYPES:
        found = json.loads(run(args.speed, "bench", "-q", "--device", "cpu", "--shape", "1.1b", "--type", kind, "-p", 0, "-n", 16,
                               "-r", 3, "-o", "json").stdout)["results"][0]
        rows.append({"type": kind, "tok_s": "%.2f" % found["tok_s"], "gb_s": "%.2f" % found["gb_s"]})
        print(rows[-1], file=sys.stderr)
    write(SPEEDS, ["type", "tok_s", "gb_s"], rows)


def read(path):
    return list(csv.DictReader(open(path, newline=""))) if path.exists() else []


def write(path, fields, rows):
    with open(path, "w", newline="") as file:
        out = csv.DictWriter(file, fields, lineterminator="\n")
        out.writeheader()
        out.writerows(rows)


# ---- output ---------------------------------------------------------------------------------------------------------


def tell():
    speeds = {r["type"]: r["tok_s"] for r in read(SPEEDS)}
    for model in dict.fromkeys(r["model"] for r in read(FIGURES)):
        rows = [r for r in read(FIGURES) if r["model"] == model]
        print(f"\n### {model}\n\n| type | MB | bits per weight | perplexity | mean KL | KL, 99th percentile | same top token | with importance: perplexity | mean KL | same top token | 1.1B, tok/s |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
        plain = [r for r in rows if not r["prune"]]
        for r in (r for r in plain if r["importance"] == "no"):
            other = [o for o in plain if o["type"] == r["type"] and o["importance"] == "yes"]
            cells = [r["type"], "%.2f" % (int(r["bytes"]) / 1e6), r["bits"], r["perplexity"], r["kl"], r["kl_p99"], "%.1f %%" % (100 * float(r["same_top"]))]
            cells += [other[0]["perplexity"], other[0]["kl"], "%.1f %%" % (100 * float(other[0]["same_top"]))] if other else ["", "", ""]
            print("| " + " | ".join(cells + [speeds.get(r["type"], "")]) + " |")
        print("\n| type, pruned | perplexity | mean KL | same top token |\n|---|---:|---:|---:|")
        for r in (r for r in rows if r["prune"]):
            print("| %s, %s | %s | %s | %.1f %% |" % (r["type"], r["prune"].replace(" ", " by "), r["perplexity"], r["kl"], 100 * float(r["same_top"])))


def draw():
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plot
    rows = [r for r in read(FIGURES) if not r["prune"] and float(r["bits"]) < 16]
    models = list(dict.fromkeys(r["model"] for r in rows))
    figure, axes = plot.subplots(1, len(models), figsize=(5.2 * len(models), 5.4), layout="constrained", squeeze=False)
    for axis, model in zip(axes[0], models):
        for importance, color, label in (("no", "#b9b9b9", "without importance"), ("yes", "#1f5fa8", "with importance")):
            of = [r for r in rows if r["model"] == model and r["importance"] == importance]
            for kinds, marker in ((TYPES, "o"), (MIXES, "^")):
                some = [r for r in of if r["type"] in kinds]
                if some: axis.plot([float(r["bits"]) for r in some], [float(r["kl"]) for r in some], marker, color=color, markersize=5,
                                   label=label + (", mixes" if kinds is MIXES else ""))
        for r in rows:
            if r["model"] == model and r["importance"] == "no" and r["type"] in TYPES:
                axis.annotate(r["type"], (float(r["bits"]), float(r["kl"])), fontsize=7, xytext=LABELS.get(r["type"], (5, 3)), textcoords="offset points")
        axis.set(xscale="log", yscale="log", xlabel="bits per weight", ylabel="mean KL divergence, nats", title=model)
        axis.set_xticks([3, 4, 5, 6, 8], ["3", "4", "5", "6", "8"], minor=False)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    figure.savefig(PICTURE, dpi=100, metadata={"Software": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", metavar="QUILL")
    parser.add_argument("--speed", metavar="QUILL")
    parser.add_argument("--name")
    parser.add_argument("-m", "--model", help="in F32")
    parser.add_argument("-f", "--file", help="text to be judged by")
    parser.add_argument("--calibrate", metavar="FILE", help="text for importance")
    args = parser.parse_args()
    if args.measure: measure(args)
    if args.speed: speed(args)
    if args.measure or args.speed: return
    tell()
    draw()


main()

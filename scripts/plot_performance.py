#!/usr/bin/env python3
"""Plots the two figures of docs/performance.md from CSV files, and measures the data of the second one.

    scripts/bench_vs.sh LLAMA_BENCH ./quill BF16 F16 Q8_0 Q4_0 Q4_K Q6_K   # -> docs/performance.csv
    scripts/plot_performance.py --measure ./quill                          # -> docs/roofline.csv
    scripts/plot_performance.py                                            # both pictures; needs matplotlib

performance.png: tok/s of each type in both phases, the ceiling, and llama.cpp. roofline.png: FLOPs per byte and speed for
different prompt lengths and numbers of sequences that decode together.
"""

import argparse
import csv
import json
import pathlib
import subprocess
import sys

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
TYPES, ROOFLINE = DOCS / "performance.csv", DOCS / "roofline.csv"
PROMPTS = (1, 8, 32, 128, 512, 2048)
SEQUENCES = (1, 2, 4, 8, 16, 32, 64)
DEPTH = 4096  # of one sequence
QUILL, PEER, LIMIT = "#1f5fa8", "#b9b9b9", "#c0392b"


# ---- measuring ------------------------------------------------------------------------------------------------------


def bench(args, *options):
    command = [args.measure, "bench", "-q", "--device", "cpu", "--shape", "1.1b", "--type", args.type,
               "-r", "2", "-o", "json", *map(str, options)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(args):
    """Writes one line for each test: name, FLOPs and bytes of a repetition, median seconds; the ceilings come first."""
    tests, machine = [], None
    for n in PROMPTS:
        tests.append(("-p", n, "-n", 0))
    for n in SEQUENCES:
        tests.append(("-p", 0, "-n", 16, "-np", n))
    tests.append(("-p", 0, "-n", 16, "-d", DEPTH))
    rows = []
    for test in tests:
        found = bench(args, *test)
        machine = found["machine"]["roofline"]
        if machine is None:
            sys.exit("plot_performance.py: this machine's ceilings expected, none stored: quill bench --roofline first")
        result = found["results"][0]
        print(f"{result['test']}: {result['tok_s']:.1f} tok/s", file=sys.stderr)
        rows.append((result["test"], result["phase"], result["tflop_s"] * 1e3, result["gb_s"]))
    with open(ROOFLINE, "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("test", "phase", "gflop_s", "gb_s"))
        out.writerow((f"ceilings, {args.type}", "ceiling", max(machine["amx_gflops"], machine["avx512_gflops"],
                                                             machine["avx2_gflops"]), machine["read_gbs"]))
        out.writerows((name, phase, f"{flops:.4g}", f"{gbs:.4g}") for name, phase, flops, gbs in rows)


# ---- drawing --------------------------------------------------------------------------------------------------------


def save(figure, name):
    figure.savefig(DOCS / name, dpi=100, metadata={"Software": None})


def draw_types(plot):
    rows = list(csv.DictReader(open(TYPES, newline="")))
    names = list(dict.fromkeys(row["type"] for row in rows))
    figure, axes = plot.subplots(1, 2, figsize=(9.6, 3.6), layout="constrained")
    for axis, phase, what in zip(axes, ("pp", "tg"), ("prefill of 512 tokens", "decoding, one sequence")):
        found = {row["type"]: row for row in rows if row["phase"] == phase}
        ours = [float(found[name]["quill"]) for name in names]
        theirs = [float(found[name]["llama.cpp"]) for name in names]
        shares = [float(found[name]["share"]) / 100 for name in names]
        limits = [rate / share if share > 0 else float("nan") for rate, share in zip(ours, shares)]
        at = range(len(names))
        axis.bar([i - 0.2 for i in at], theirs, 0.4, color=PEER, label="llama.cpp")
        axis.bar([i + 0.2 for i in at], ours, 0.4, color=QUILL, label="quill")
        axis.hlines(limits, [i - 0.4 for i in at], [i + 0.4 for i in at], color=LIMIT, label="ceiling")
        for i in at:
            axis.annotate(f"{ours[i]:.0f}", (i + 0.2, ours[i]), ha="center", va="bottom", fontsize=7)
            axis.annotate(f"{theirs[i]:.0f}", (i - 0.2, theirs[i]), ha="center", va="bottom", fontsize=7)
        axis.set_xticks(list(at), names)
        axis.set_title(f"{what}, tok/s", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[1].legend(frameon=False, fontsize=8, loc="upper left")
    save(figure, "performance.png")


def draw_roofline(plot):
    rows = list(csv.DictReader(open(ROOFLINE, newline="")))
    roof = next(row for row in rows if row["phase"] == "ceiling")
    peak, bandwidth = float(roof["gflop_s"]), float(roof["gb_s"])
    figure, axis = plot.subplots(figsize=(7.2, 4.4), layout="constrained")
    span = (0.5, 4000)
    axis.loglog([span[0], peak / bandwidth, span[1]], [span[0] * bandwidth, peak, peak], color=LIMIT, lw=1.5)
    axis.annotate(f"{bandwidth:.1f} GB/s read", (8, 13 * bandwidth), fontsize=8, color=LIMIT, ha="right")
    axis.annotate(f"{peak / 1e3:.1f} TFLOP/s", (span[1] / 6, 1.15 * peak), fontsize=8, color=LIMIT)
    for phase, marker, color in (("prefill", "o", QUILL), ("decode", "s", "#e08e0b")):
        for row in (row for row in rows if row["phase"] == phase):
            rate, intensity = float(row["gflop_s"]), float(row["gflop_s"]) / float(row["gb_s"])
            deep = "@" in row["test"]
            name = row["test"].replace("tg16 ", "").replace("tg16", "x1").removeprefix("@ ")
            place = dict(xytext=(6, -3)) if deep else dict(xytext=(5, -10)) if phase == "prefill" else \
                dict(xytext=(-5, 5), ha="right")
            axis.plot(intensity, rate, marker, color=color, mfc="white" if deep else color, ms=6)
            axis.annotate(name, (intensity, rate), textcoords="offset points", fontsize=7, **place)
        axis.plot([], [], marker, color=color, label="prefill, by length" if phase == "prefill" else
                  "decoding, by sequences (hollow: one, at a depth)")
    axis.set(xlim=span, ylim=(10, 2 * peak), xlabel="FLOP a byte", ylabel="GFLOP/s",
             title=f"1.1B shape: {roof['test'].removeprefix('ceilings, ')}, two threads")
    axis.grid(True, which="major", alpha=0.3)
    axis.legend(frameon=False, fontsize=8, loc="lower right")
    save(figure, "roofline.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", metavar="QUILL", help="measure docs/roofline.csv with this binary, and draw nothing")
    parser.add_argument("--type", default="Q8_0", help="of the weights")
    args = parser.parse_args()
    if args.measure:
        measure(args)
        return
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot_performance.py: matplotlib expected, not found: pip install matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot
    for figures, draw in ((TYPES, draw_types), (ROOFLINE, draw_roofline)):
        if figures.exists():
            draw(pyplot)


if __name__ == "__main__":
    main()

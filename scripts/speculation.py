#!/usr/bin/env python3
"""Measures what speculation gains, for docs/speculation.md: edits of this repository's history, and answers to prompts.

    scripts/speculation.py edits DIR                       # writes DIR/N.old and DIR/N.new, ten edits
    quill bench -m BIG --speculate ngram --replay DIR/0.old DIR/0.new ...
    scripts/speculation.py prompts > prompts.txt           # stories and questions, one a line
    quill bench -m BIG --speculate builtin --prompt-lines prompts.txt
    scripts/speculation.py plot docs/speculation.csv       # docs/speculation.png; needs matplotlib

An edit is a file of the source tree before and after a commit, cut to LINES lines around the change. The CSV has
"rows,tok/s" of `quill bench -np ROWS`, from which the time of a step with any number of rows is interpolated linearly.
"""

import argparse
import csv
import difflib
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLOT = ROOT / "docs" / "speculation.png"
LINES = 20  # of context on each side
EDITS = (("8d2ba63", "engine.h"), ("a31883d", "model.h"), ("0daca3f", "tests/test_cuda_failures.c"),
         ("29dfc40", "answer/answer.h"), ("ecb74a3", "cpu/backend.c"), ("791448f", "jinja/run.h"), ("121c257", "costs.c"),
         ("1379e60", "options.h"), ("c4b0a5f", "tests/model_rig.h"), ("44a6909", "scheduler.h"))
PROMPTS = ("Tell me a story about Anna.", "Tell me a story about a dog and a ball.",
           "Tom went to the mill. He put the blue cup there. Where is the blue cup?", "Tell me a story.",
           "What is 47 plus 38?", "Tell me a story about a bird.", "Mia has a red hat. Ben has a green hat. Who has the "
           "green hat?", "Tell me a story about Ben and Mia.")


def text_at(commit, path):
    return subprocess.run(["git", "-C", ROOT, "show", f"{commit}:{path}"], check=True, capture_output=True,
                          text=True).stdout.splitlines(keepends=True)


def edits(args):
    folder = pathlib.Path(args.file)
    folder.mkdir(parents=True, exist_ok=True)
    for number, (commit, path) in enumerate(EDITS):
        old, new = text_at(f"{commit}~1", path), text_at(commit, path)
        blocks = [b for b in difflib.SequenceMatcher(None, old, new, False).get_opcodes() if b[0] != "equal"]
        _, a0, _, b0, _ = blocks[0]
        a1, b1 = next((b[2], b[4]) for b in reversed(blocks) if b[2] <= a0 + 2 * LINES)
        (folder / f"{number}.old").write_text("".join(old[max(0, a0 - LINES):a1 + LINES]))
        (folder / f"{number}.new").write_text("".join(new[max(0, b0 - LINES):b1 + LINES]))


def prompts(_):
    print("\n".join(PROMPTS))


def plot(args):
    import matplotlib
    import numpy
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    with open(args.file, newline="") as file:
        rates = {int(row["rows"]): float(row["tok/s"]) for row in csv.DictReader(file)}
    known = sorted(rates)
    costs = [rates[1] * rows / rates[rows] for rows in known]
    cost = {rows: numpy.interp(rows, known, costs) for rows in range(1, 18)}
    figure, axes = plt.subplots(figsize=(7, 4.5))
    colours = plt.get_cmap("viridis")
    for k in range(1, 17):
        accepted = range(k + 1)
        axes.plot(accepted, [(1 + a) / cost[k + 1] for a in accepted], color=colours((k - 1) / 15), linewidth=1.2,
                  label=f"{k}" if k in (1, 2, 3, 4, 8, 12, 16) else None)
    axes.axhline(1, color="#888888", linewidth=0.8)
    axes.set(xlabel="accepted drafts a step", ylabel="tok/s, of plain decoding's",
             title="What k drafts a step gain, by how many of them are accepted")
    axes.legend(title="k", fontsize="small")
    figure.tight_layout()
    figure.savefig(PLOT, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("edits", "prompts", "plot"))
    parser.add_argument("file", nargs="?")
    args = parser.parse_args()
    if args.what != "prompts" and not args.file:
        sys.exit(f"speculation.py: {args.what}: a path expected behind it, found none")
    {"edits": edits, "prompts": prompts, "plot": plot}[args.what](args)


if __name__ == "__main__":
    main()

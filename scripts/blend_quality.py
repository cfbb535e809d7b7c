#!/usr/bin/env python3
"""Measures what blended chunks (--chunk, --blend) cost in answers: the tables of docs/blend.md, and a plot.

    scripts/blend_quality.py                           # ./quill and the model inside it, 2000 questions
    scripts/blend_quality.py --pronouns                # harder ones
    scripts/blend_quality.py -n 200 --times 0          # a first look
    scripts/blend_quality.py --keep DIR --modes full reuse    # a long run in pieces: answers are kept
    scripts/blend_quality.py --plot docs/blend.svg     # needs matplotlib

A question's two facts stand in different chunks (two-hop plots of make_corpus.py, names that were never trained on), six of
30 to 90 tokens. Either they stand among the chunks of two other stories, in any order, and name what they speak of. Or
(--pronouns) the six are one story of three plots, in its order, and the second chunk of a plot says "he", "it" and "there":
what that is stands in the chunk before, which a chunk that was computed alone has not seen.

Every mode gets the same questions and the same tokens, through `quill batch`. F1 is that of question answering: words
without case, articles and punctuation. Differences are paired, with a 95% interval. KL is of the first token of the answer,
over the likeliest tokens of full. The error of K and V (--blend-error) is the mean over --errors questions and the layers
behind the second one. TTFT is that of single runs: cold computes the chunks first, warm finds them in --kv-dir.
"""

import argparse
import json
import math
import os
import random
import re
import statistics
import subprocess
import tempfile
from collections import Counter

import make_corpus

os.environ["XDG_CONFIG_HOME"] = "/dev/null"  # the user's configuration has no say
MODES = ["full", "reuse", "epic,k=4", "epic,k=16", "cacheblend,ratio=0.05", "cacheblend,ratio=0.1", "cacheblend,ratio=0.15",
         "cacheblend,ratio=0.18", "cacheblend,ratio=0.3", "cacheblend,ratio=0.15,k=4", "cacheblend,ratio=0.15,gradual=0.5",
         "cacheblend,ratio=1"]
LIKELIEST = 200
PRONOUNS = ("there", "carried")  # plots of make_corpus.NEEDS_PRONOUN whose two paragraphs are long enough
WORDS = (22, 64)  # of a chunk: 30 to 90 tokens of the built-in model


def stories_apart(g, rng):
    """Three stories of a two-hop plot each, whose paragraphs name what they speak of: in any order."""
    stories, used = [], set()
    while len(stories) < 3:  # one that does not fit is told anew
        mine = set(used)
        story = make_corpus.Story(g, rng, True, True, 2.0, mine).add_plots(1, 1.0)
        if len(story.paragraphs) == 2 and fits(story):
            stories.append(story)
            used = mine
    chunks = [p for s in stories for p in s.paragraphs]
    rng.shuffle(chunks)
    return chunks, stories[0].questions


def story_with_pronouns(g, rng):
    """One story of three two-hop plots in any order, in which a second paragraph says "he", "it" and "there"."""
    while True:
        story = make_corpus.Story(g, rng, True, False, 2.0, set())
        for plot in rng.choices(PRONOUNS, k=3):
            getattr(story, "two_" + plot)()
        if len(story.paragraphs) == 6 and fits(story):
            return story.paragraphs, story.questions


def fits(story):
    return all(WORDS[0] <= len(" ".join(p).split()) <= WORDS[1] for p in story.paragraphs)


def make_questions(n, seed, pronouns):
    """Dicts of chunks, question and answer."""
    g, rng, out = make_corpus.load_grammar(), random.Random(f"blend {seed}"), []
    while len(out) < n:
        chunks, questions = (story_with_pronouns if pronouns else stories_apart)(g, rng)
        twos = [q for q in questions if q[0] == "two"]
        if twos:
            _, question, answer = rng.choice(twos)
            out.append(dict(chunks=[" ".join(p) for p in chunks], question=question, answer=answer))
    return out


def run_batch(args, questions, mode, *options):
    """The lines of a batch over all questions."""
    jobs = "".join(json.dumps(dict(id=i, chunks=q["chunks"], prompt=q["question"])) + "\n" for i, q in enumerate(questions))
    command = [args.quill, "batch", "-q", "--keep-order", "--temp", "0", "--blend", mode, "-np", "16", *options]
    done = subprocess.run(command + (["-m", args.model] if args.model else []), input=jobs, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{mode}: exit {done.returncode}: {done.stderr.strip()}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["id"] for line in lines] == list(range(len(questions)))
    return lines


def ask_all(args, questions, mode):
    """(text, {token: log-probability}) of each question: the answer, and the likeliest of its first token."""
    kept = args.keep and os.path.join(args.keep, re.sub(r"\W+", "-", f"{mode} {args.pronouns} {args.seed} {args.n}") + ".json")
    if kept and os.path.exists(kept):
        with open(kept, encoding="utf-8") as file:
            return [(text, {int(i): l for i, l in top.items()}) for text, top in json.load(file)]
    first = run_batch(args, questions, mode, "-n", "1", "--logprobs", str(LIKELIEST))
    said = run_batch(args, questions, mode, "-n", "40")
    found = [(a["text"].strip(), {t["id"]: t["logprob"] for t in b["tokens"][0]["top"]}) for a, b in zip(said, first)]
    if kept:
        os.makedirs(args.keep, exist_ok=True)
        with open(kept, "w", encoding="utf-8") as file:
            json.dump(found, file)
    return found


def words(text):
    return [w for w in re.findall(r"[a-z0-9']+", text.lower()) if w not in ("a", "an", "the")]


def f1(said, right):
    a, b = Counter(words(said)), Counter(words(right))
    same = sum((a & b).values())
    return 2 * same / (sum(a.values()) + sum(b.values())) if same else 0.0


def divergence(p, q):
    """KL(p || q) over p's likeliest; what q has not among its own counts as its least."""
    least = min(q.values())
    return max(0.0, sum(math.exp(l) * (l - q.get(i, least)) for i, l in p.items()))


def mean_and_interval(x):
    return statistics.fmean(x), 1.96 * statistics.stdev(x) / math.sqrt(len(x))


def ask_one(args, q, mode, *options):
    """What a run with one question has printed."""
    with tempfile.TemporaryDirectory() as tmp:
        command = [args.quill, "-q", "--json", "--greedy", "-n", "1", "--blend", mode, *options]
        command += ["-m", args.model] if args.model else []
        for i, text in enumerate(q["chunks"]):
            path = os.path.join(tmp, str(i))
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            command += ["--chunk", path]
        return subprocess.run([*command, q["question"]], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def time_one(args, q, mode, store):
    options = ["--kv-dir", store] if mode != "full" else []
    return json.loads(ask_one(args, q, mode, *options).stdout)["ttft_ms"]


def errors(args, questions, mode):
    """The mean relative error of K and V of each layer."""
    all_of = []
    for q in questions[: args.errors]:
        said = " ".join(ask_one(args, q, mode, "--deterministic", "--blend-error").stderr.split())
        all_of.append([float(x) for x in said.split("KV error ")[1].split()])
    return [statistics.fmean(layer) for layer in zip(*all_of)]


def times(args, questions, mode):
    cold, warm = [], []
    for q in questions[: args.times]:
        with tempfile.TemporaryDirectory() as store:
            cold.append(time_one(args, q, mode, store))
            warm.append(time_one(args, q, mode, store))
    return (statistics.median(cold), statistics.median(warm)) if cold else (math.nan, math.nan)


def plot(path, rows):
    """rows: (mode, F1 - full, interval, error of K and V)."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "quill"  # the same figures give the same bytes
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    points = sorted((float(r[0].split("=")[1]), *r[1:]) for r in rows if re.fullmatch(r"cacheblend,ratio=[\d.]+", r[0]))
    shares = [p[0] for p in points]
    left.errorbar(shares, [p[1] for p in points], [p[2] for p in points], fmt="o-", capsize=3, label="cacheblend")
    right.plot(shares, [p[3] for p in points], "o-", label="cacheblend")
    others = [r for r in rows if r[0] in ("full", "reuse") or r[0].startswith("epic")]
    for i, (mode, f, _, error) in enumerate(others):
        left.axhline(f, linestyle="--", color=f"C{i + 1}", label=mode)
        right.axhline(error, linestyle="--", color=f"C{i + 1}", label=mode)
    left.set(xlabel="share of the chunks' tokens computed again", ylabel="F1 minus that of full")
    right.set(xlabel="share of the chunks' tokens computed again", ylabel="relative error of K and V")
    left.legend()
    right.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quill", default="./quill")
    p.add_argument("-m", "--model")
    p.add_argument("-n", type=int, default=2000, help="questions")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--pronouns", action="store_true", help="what the second chunk of a story says of the first is a pronoun")
    p.add_argument("--times", type=int, default=20, help="questions of which times are taken")
    p.add_argument("--keep", metavar="DIR", help="answers are kept there: a later run asks only in the modes that it lacks")
    p.add_argument("--modes", nargs="*", default=MODES)
    p.add_argument("--errors", type=int, default=50, help="questions of which errors of K and V are taken")
    p.add_argument("--plot", metavar="FILE")
    args = p.parse_args()
    if args.modes[:1] != ["full"]:
        p.error("--modes: full expected first, which the others are held against")
    questions, scored, rows = make_questions(args.n, args.seed, args.pronouns), {}, []
    print("| mode | F1 | F1 - full | F1 - reuse | right to the letter | KL of the first token | K and V, by layer |"
          " TTFT cold, ms | warm, ms |")
    print("|---|---|---|---|---|---|---|---|---|")
    for mode in args.modes:
        found = ask_all(args, questions, mode)
        scores = scored[mode] = [f1(said, q["answer"]) for (said, _), q in zip(found, questions)]
        exact = statistics.fmean(said == q["answer"] for (said, _), q in zip(found, questions))
        if mode == "full":
            full = found
        against = [mean_and_interval([a - b for a, b in zip(scores, scored[to])]) if to in scored else (0, 0)
                   for to in ("full", "reuse")]
        kl = statistics.fmean(divergence(a[1], b[1]) for a, b in zip(full, found))
        layers = errors(args, questions, mode) if args.errors else []
        cold, warm = times(args, questions, mode)
        rows.append((mode, *against[0], statistics.fmean(layers[2:] or [0])))
        print(f"| {mode} | {statistics.fmean(scores):.4f} | " + " | ".join(f"{d:+.4f} ± {i:.4f}" for d, i in against) +
              f" | {exact:.3f} | {kl:.2e} | {' '.join(f'{x:.3f}' for x in layers)} | {cold:.1f} | {warm:.1f} |", flush=True)
    if args.plot:
        plot(args.plot, rows)


if __name__ == "__main__":
    main()

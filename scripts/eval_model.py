#!/usr/bin/env python3
"""Measures the built-in model through the quill binary: held-out questions, and stories against their grammar.

    scripts/eval_model.py                          # ./quill and the model inside it
    scripts/eval_model.py -m quill-stories.f32.gguf
    scripts/eval_model.py --failures               # shows what was answered wrongly

Questions are answered greedily and count where the whole answer is right to the letter. Stories are sampled at
temperature 0.8 from "Once upon a time", and compared with stories of the corpus that begin so. Nothing here was in the
training text: see make_corpus.py for what is held out.
"""

import argparse
import concurrent.futures
import json
import os
import random
import subprocess
from collections import defaultdict

import make_corpus
from grammar import sentences, words

os.environ["XDG_CONFIG_HOME"] = "/dev/null"  # the user's configuration has no say
HERE = os.path.dirname(os.path.abspath(__file__))
GOALS = {"one": 95, "two": 85, "unknown": 90, "arithmetic": 95}
TITLES = {"one": "one-hop questions", "two": "two-hop questions", "unknown": "\"I don't know\"", "arithmetic": "arithmetic"}
NAMES = ("girl", "boy", "girl_held_out", "boy_held_out", "pet_name")
N_TOKENS, PROMPT = 200, "Once upon a time"


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:3])}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def ask(quill, q):
    return run(quill + ["--temp", "0", "-n", "100", "-p", q["prompt"]]).strip()


def story(quill, seed):
    """The text up to its last whole sentence."""
    answer = run(quill + ["--raw", "--json", "--temp", "0.8", "-n", str(N_TOKENS), "--seed", str(seed), "-p", PROMPT])
    answer = json.loads(answer)
    text = PROMPT + answer["text"]
    return text if answer["finish_reason"] == "eog" else text[: text.rindex(sentences(text)[-1])]


def grams(texts, n, limit=None):
    for text in texts:
        ws = words(text.lower())[:limit]
        yield from (tuple(ws[i : i + n]) for i in range(len(ws) - n + 1))


def distinct_share(texts, n, limit=None):
    all_of_them = list(grams(texts, n, limit))
    return len(set(all_of_them)) / max(1, len(all_of_them))


def recogniser(g):
    """The grammar with the slots that make_corpus.py binds, as classes of words and phrases."""
    closed = {w for rule, alts in g.rules.items() if rule not in NAMES for a in alts for w in words(a) if w.islower()}

    def is_name(w):  # an open class: the corpus invents names too
        return w[0].isupper() and w.isalpha() and 2 < len(w) < 11 and w.lower() not in closed

    kin = ["{kin_f}", "{kin_m}"]
    g.build({
        "name": is_name,
        "pronoun": ["he", "she"],
        "who": ["{name}", "{pronoun}", "the {job}", "{name}'s {kin}", "{his} {kin}"],
        "other": ["{name}"], "third": ["{name}"], "he": ["{pronoun}", "{name}"], "him": ["him", "her"], "his": ["his", "her"],
        "himself": ["himself", "herself"],
        "who_s": ["{name}'s", "{his}"], "kin": kin, "a_kin": ["a " + k for k in kin],
        "coloured": ["{colour} {thing}", "{thing}"], "x": ["{adj_thing} {coloured}", "{coloured}"], "y": ["{x}"],
        "c": ["{container}"], "s": ["{surface}"], "pet": ["{pet_name}"], "day": make_corpus.DAYS,
        "place": ["the {place_at}", "the {place_in}", "the {place_on}"],
        "at_place": ["at the {place_at}", "in the {place_in}", "on the {place_on}"],
        "feeling": ["{feeling_good}", "{feeling_bad}"], "reason": ["{reason_good}", "{reason_bad}"],
    })
    return g.accepts


def main():
    parser = argparse.ArgumentParser(description="Measures the built-in model through the quill binary.")
    parser.add_argument("--quill", default=os.path.join(HERE, "..", "quill"))
    parser.add_argument("-m", "--model", help="a GGUF file instead of the built-in model")
    parser.add_argument("--questions", type=int, default=500, help="of each kind")
    parser.add_argument("--stories", type=int, default=100)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--training-text", help="the corpus the model saw; else as much is made anew as --training-bytes says")
    parser.add_argument("--training-seed", type=int, default=1)
    parser.add_argument("--training-bytes", type=make_corpus.size, default=make_corpus.size("20M"))
    parser.add_argument("--failures", action="store_true")
    a = parser.parse_args()
    quill = [a.quill, "-t", "1", "-q"] + (["-m", a.model] if a.model else ["-m", "builtin"])
    g = make_corpus.load_grammar()
    pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())

    print("| what | asked | right | goal |\n|---|---:|---:|---:|")
    asked = make_corpus.held_out_questions(g, a.seed, a.questions * len(GOALS))
    right, wrong = defaultdict(int), []
    for q, answer in zip(asked, pool.map(lambda q: ask(quill, q), asked)):
        right[q["kind"]] += answer == q["answer"]
        if answer != q["answer"]:
            wrong.append((q, answer))
    for kind, goal in GOALS.items():
        print(f"| {TITLES[kind]} | {a.questions} | {100 * right[kind] / max(1, a.questions):.1f} % | {goal} % |")
    if a.failures:
        for q, answer in wrong:
            print(f"\n--- {q['kind']}\n{q['prompt']}\nexpected: {q['answer']}\nfound:    {answer}")

    if a.stories:
        told = list(pool.map(lambda i: story(quill, a.seed + i), range(a.stories)))
        rng = random.Random(f"fresh {a.seed}")
        n_words = sum(len(words(t)) for t in told) // len(told)
        fresh = []
        while len(fresh) < a.stories:
            text = make_corpus.tell(g, rng).text()
            if text.startswith(PROMPT) and len(words(text)) >= n_words:
                fresh.append(text)
        accepts = recogniser(g)
        parts = [s for t in told for s in sentences(t)]
        refused = [s for s in parts if not accepts(s)]
        distinct, wanted = distinct_share(told, 4), distinct_share(fresh, 4, n_words)
        print(f"\n| {a.stories} stories of {N_TOKENS} tokens at temperature 0.8 | found | goal |\n|---|---:|---:|")
        print(f"| sentences that the grammar accepts ({len(parts)}) | {100 * (1 - len(refused) / len(parts)):.1f} % | 95 % |")
        print(f"| distinct 4-grams | {100 * distinct:.1f} % | within 10 % of the corpus's {100 * wanted:.1f} % |")
        seen = set(grams(training_text(a), 8))
        share = [sum(x in seen for x in grams(t, 8)) / max(1, sum(1 for _ in grams(t, 8))) for t in (told, fresh)]
        print(f"| 8-grams that stand in the training text | {100 * share[0]:.1f} % | (fresh stories: {100 * share[1]:.1f} %) |")
        if a.failures:
            print("\n".join(f"refused: {s}" for s in refused))


def training_text(a):
    if a.training_text:
        with open(a.training_text, encoding="ascii") as f:
            return f.read(a.training_bytes).split(make_corpus.BEGIN)
    docs, n, i = [], 0, 0
    while n < a.training_bytes:
        docs.append(make_corpus.chunk((a.training_seed, i, "stories")))
        n, i = n + len(docs[-1]), i + 1
    return docs


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures the built-in model through the quill binary: held-out questions, copies, sums, stories against their grammar.

    scripts/eval_model.py                          # ./quill and the model inside it
    scripts/eval_model.py -m quill-stories.f32.gguf
    scripts/eval_model.py --only questions,lengths --questions 100
    scripts/eval_model.py --failures               # shows what was answered wrongly

Questions are answered greedily and count where the whole answer is right to the letter. Stories are sampled at
temperature 0.8 from "Once upon a time", and compared with stories of the corpus that begin so. Nothing here was in the
training text but sums (`every pair` counts those it saw, too) and greetings: see make_corpus.py for what is held out.
All jobs of a part go through one `quill batch`.
"""

import argparse
import json
import os
import random
import re
import subprocess
from collections import defaultdict

import make_corpus
from corpus_skills import EVERY_NUMBER_PAIR
from grammar import SLOT, sentences, words

os.environ["XDG_CONFIG_HOME"] = "/dev/null"  # the user's configuration has no say
HERE = os.path.dirname(os.path.abspath(__file__))
GOALS = {"one": 95, "two": 85, "unknown": 90, "arithmetic": 95}
TITLES = {"one": "one-hop questions", "two": "two-hop questions", "unknown": "\"I don't know\"", "arithmetic": "arithmetic"}
NAMES = ("girl", "boy", "girl_held_out", "boy_held_out", "pet_name")
N_TOKENS, PROMPT = 200, "Once upon a time"
LENGTHS = {200: 700, 700: 2750, 1400: 5500}  # tokens of a prompt, about, and the bytes of text that make them
OPENINGS = ("Once upon a time", "once upon a time...", "Once upon a time there was", "There was once a girl", "Long ago",
            "In a far land there lived a king", "Tell me a story", "Tell me a story about a dog.", "Write a short story.",
            "A story about Anna and Tom, please.")
GREETINGS = ("Hello", "Hi!", "Good morning!", "Bonjour!", "Hallo", "Guten Tag!", "Hola!", "Ciao", "Hej!", "Ola", "Ahoj!", "Salut",
             "Namaste", "Konnichiwa", "Bonsoir!", "Merhaba", "Shalom!", "Ni hao", "Aloha", "Goedendag!")
GREETED = ("Hello!", "Good ", "Hi")
N_OPENING_SEEDS = 20


class Quill:
    def __init__(self, a):
        self.command = [a.quill, "batch", "-m", a.model or "builtin"] + (["-t", str(a.threads)] if a.threads else [])

    def run(self, jobs):
        """The answers of jobs, in their order."""
        lines = "".join(json.dumps({"id": i} | job) + "\n" for i, job in enumerate(jobs))
        done = subprocess.run(self.command, input=lines, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(self.command)}: exit {done.returncode}: {done.stderr.strip()}")
        found = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
        return [found[i] for i in range(len(jobs))]

    def ask(self, questions, n=100):
        """Answers and mean tokens of the prompts."""
        found = self.run([dict(prompt=q["prompt"], temperature=0, max_tokens=n) for q in questions])
        tokens = sum(f["usage"]["prompt_tokens"] for f in found) / max(1, len(found))
        return [f["text"].strip() for f in found], tokens


class Report:
    def __init__(self, show_failures):
        self.show, self.wrong = show_failures, []

    def head(self, *titles):
        print("\n| " + " | ".join(titles) + " |\n|---" + "|---:" * (len(titles) - 1) + "|", flush=True)

    def row(self, *cells):
        print("| " + " | ".join(str(c) for c in cells) + " |", flush=True)

    def right(self, kind, questions, answers):
        """Share of right answers, as text."""
        bad = [(kind, q, a) for q, a in zip(questions, answers) if a != q["answer"]]
        self.wrong += bad
        return f"{100 * (1 - len(bad) / max(1, len(questions))):.1f} %"

    def failures(self):
        for kind, q, answer in self.wrong if self.show else ():
            print(f"\n--- {kind}\n{q['prompt']}\nexpected: {q['answer']}\nfound:    {answer}")


# ---- questions about a text ----


def eval_questions(a, g, quill, report):
    report.head("what", "asked", "right", "goal")
    asked = make_corpus.held_out_questions(g, a.seed, a.questions * len(GOALS))
    for kind, goal in GOALS.items():
        mine = [q for q in asked if q["kind"] == kind]
        report.row(TITLES[kind], len(mine), report.right(kind, mine, quill.ask(mine)[0]), f"{goal} %")


def asked_about_much(g, seed, n, kind, n_bytes, form="{text}\n\n{q}"):
    """n held-out questions of a kind about texts of n_bytes; the same texts and questions for every form."""
    rng, out = random.Random(f"lengths {seed} {kind} {n_bytes}"), []
    while len(out) < n:
        text, questions, _ = make_corpus.much_to_ask_about(g, rng, n_bytes, held_out=True)
        fit = [q for q in questions if q[0] == kind]
        if fit:
            out.append(dict(prompt=form.format(text=text, q=fit[0][1]), answer=fit[0][2]))
    return out


def eval_lengths(a, g, quill, report):
    report.head("mean tokens of the prompt", "asked", "one-hop", "two-hop", "\"I don't know\"")
    for n_bytes in LENGTHS.values():
        cells, n = [], max(1, a.questions * 2 // 5)
        for kind in ("one", "two", "unknown"):
            asked = asked_about_much(g, a.seed, n, kind, n_bytes)
            answers, tokens = quill.ask(asked)
            cells.append(report.right(f"{kind} {n_bytes}", asked, answers))
        report.row(f"{tokens:.0f}", n, *cells)


def eval_first(a, g, quill, report):
    report.head("where the question stands", "asked", "one-hop", "two-hop")
    for title, form in (("behind the text", "{text}\n\n{q}"), ("in front of it", "{q}\n\n{text}")):
        n, cells = max(1, a.questions * 2 // 5), []
        for kind in ("one", "two"):
            asked = asked_about_much(g, a.seed, n, kind, LENGTHS[200], form)
            cells.append(report.right(f"{kind} {title}", asked, quill.ask(asked)[0]))
        report.row(title, n, *cells)


# ---- copies, sums, openings, greetings ----


def eval_copies(a, g, quill, report):
    """Texts of about 100 tokens, names held out."""
    report.head("copies of 100 tokens", "asked", "right", "goal")
    rng, kinds = random.Random(f"copies {a.seed}"), {"copy": [], "rename": [], "list": []}
    n = max(1, a.questions // 5)
    while any(len(qs) < n for qs in kinds.values()):
        kind, prompt, answer = make_corpus.to_copy(g, rng, held_out=True, n_bytes=420)
        if len(kinds[kind]) < n and (kind == "list" or len(answer) > 320):
            kinds[kind].append(dict(prompt=prompt, answer=answer))
    titles = {"copy": "repeat this text", "rename": "with a name changed", "list": "sentences that name somebody"}
    for kind, asked in kinds.items():
        report.row(titles[kind], n, report.right(kind, asked, quill.ask(asked, 250)[0]), "95 %")


def eval_sums(a, g, quill, report):
    report.head("sums and differences", "asked", "right")
    plus = [dict(prompt=f"What is {x} plus {y}?", answer=f"{x} plus {y} is {x + y}.") for x, y in EVERY_NUMBER_PAIR]
    minus = [dict(prompt=f"What is {x + y} minus {y}?", answer=f"{x + y} minus {y} is {x}.") for x, y in EVERY_NUMBER_PAIR]
    for title, asked in (("every sum up to 100", plus), ("every difference", minus)):
        report.row(title, len(asked), report.right(title, asked, quill.ask(asked, 30)[0]))


def is_story(text):
    return len(sentences(text)) > 3 and "I don't know" not in text


def eval_openings(a, g, quill, report):
    """Through the chat template, with the sampling that a user gets."""
    report.head("opening, through the template", "seeds", "told a story")
    for opening in OPENINGS:
        found = quill.run([dict(prompt=opening, seed=s, max_tokens=400) for s in range(1, N_OPENING_SEEDS + 1)])
        told = sum(is_story(f["text"]) for f in found)
        report.wrong += [("opening", dict(prompt=opening, answer="a story"), f["text"]) for f in found if not is_story(f["text"])]
        report.row(f"`{opening}`", N_OPENING_SEEDS, told)


def eval_greetings(a, g, quill, report):
    report.head("greetings, most in other languages", "asked", "greeted")
    answers, _ = quill.ask([dict(prompt=p) for p in GREETINGS])
    report.wrong += [("greeting", dict(prompt=p, answer="Hello!"), x) for p, x in zip(GREETINGS, answers) if not x.startswith(GREETED)]
    report.row("greetings", len(GREETINGS), sum(x.startswith(GREETED) for x in answers))


# ---- stories ----


def grams(texts, n, limit=None):
    for text in texts:
        ws = words(text.lower())[:limit]
        yield from (tuple(ws[i : i + n]) for i in range(len(ws) - n + 1))


def distinct_share(texts, n, limit=None):
    all_of_them = list(grams(texts, n, limit))
    return len(set(all_of_them)) / max(1, len(all_of_them))


def closed_words(g):
    return {w for rule, alts in g.rules.items() if rule not in NAMES for a in alts for w in words(a) if w.islower()}


def recogniser(g):
    """The grammar with the slots that make_corpus.py binds, as classes of words and phrases."""
    closed = closed_words(g)

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


class Sense:
    """Finds what a story says against itself: a person of two genders, or at two places; a thing kept at two places.

    The corpus never says such: a person goes to one place in a story, and a thing is put in one."""

    HIS, HER = {"he", "him", "his", "himself"}, {"she", "her", "herself"}
    BOY = re.compile(r"\b(?:boy|man)(?: (?:called|whose name was)|, and) ([A-Z]\w+)|\b(?!There)([A-Z]\w+) was a (?:\w+ )?(?:boy|man)\b"
                     r"|Everybody knew ([A-Z]\w+), the boy")
    GIRL = re.compile(r"\b(?:girl|woman)(?: (?:called|whose name was)|, and) ([A-Z]\w+)|\b(?!There)([A-Z]\w+) was a (?:\w+ )?(?:girl|woman)\b"
                      r"|Everybody knew ([A-Z]\w+), the girl")

    def __init__(self, g):
        self.closed = closed_words(g) | {d.lower() for d in make_corpus.DAYS + make_corpus.MONTHS}
        self.other = set(g.rules["pet_name"]) | {"Once", "Everybody"}
        self.kin = set(g.rules["kin_f"] + g.rules["kin_m"])
        places = [p for r in ("place_at", "place_in", "place_on") for p in g.rules[r]]
        one_of = lambda found: "(?:" + "|".join(sorted(map(re.escape, found), key=len, reverse=True)) + ")"
        self.place = r"the (?P<place>" + one_of(places) + ")"
        self.slots = {"who": r"(?P<who>[A-Z]\w+)", "place": self.place, "at_place": "(?:[Aa]t|[Ii]n|[Oo]n) " + self.place,
                      "day": r"\w+", "his": "(?:his|her)", "he": r"\w+", "y": r"(?P<who>[a-z ]+)", "x": r"[a-z ]+"}
        self.told = [re.compile(self.pattern(alt) + "$") for rule in ("go", "time_go", "y_is_at")
                     for alt in g.rules[rule] if "{place}" in alt or "{at_place}" in alt]

    def pattern(self, alt):
        out = "".join(self.slots.get(p, ".+") if i % 2 else re.escape(p) for i, p in enumerate(SLOT.split(alt)))
        if out.count("?P<who>") > 1:  # who moved what: the place is the thing's
            out = out.replace(self.slots["who"], r"[A-Z]\w+", 1)
        return out

    def names(self, text):
        return {w for w in re.findall(r"\b[A-Z]\w+", text) if w.lower() not in self.closed} - self.other

    def genders(self, text):
        """name: genders that the story gives it."""
        found = defaultdict(set)
        for gender, pattern in (("m", self.BOY), ("f", self.GIRL)):
            for groups in pattern.findall(text):
                found[next(filter(None, groups))].add(gender)
        for paragraph in text.split("\n\n"):
            plain = re.sub(r'"[^"]*"', "", paragraph)
            names, ws = self.names(plain), words(plain.lower())
            first = min([ws.index(w) for w in self.HIS | self.HER if w in ws], default=len(ws))
            if len(names) != 1 or self.kin & set(ws) or min(names).lower() not in ws[:first]:
                continue  # others may be meant by its pronouns
            ws = set(ws)
            found[names.pop()] |= {k for k, own in (("m", self.HIS), ("f", self.HER)) if ws & own}
        return found

    def places(self, text):
        found = defaultdict(set)
        for s in sentences(text):
            for pattern in self.told:
                m = pattern.match(s)
                if m and m["who"] not in ("He", "She"):
                    found[m["who"]].add(m["place"])
        return found

    def contradictions(self, text):
        return ([f"{n}: he and she" for n, found in self.genders(text).items() if len(found) > 1] +
                [f"{n}: at {' and '.join(sorted(found))}" for n, found in self.places(text).items() if len(found) > 1])


def told_stories(quill, a):
    """Texts up to their last whole sentence."""
    out = []
    for f in quill.run([dict(prompt=PROMPT, raw=True, temperature=0.8, max_tokens=N_TOKENS, seed=a.seed + i) for i in range(a.stories)]):
        text = PROMPT + f["text"]
        out.append(text if f["finish_reason"] == "eog" else text[: text.rindex(sentences(text)[-1])])
    return out


def eval_stories(a, g, quill, report):
    told, rng = told_stories(quill, a), random.Random(f"fresh {a.seed}")
    n_words = sum(len(words(t)) for t in told) // len(told)
    fresh = []
    while len(fresh) < a.stories:
        text = make_corpus.tell(g, rng).text()
        if text.startswith(PROMPT) and len(words(text)) >= n_words:
            fresh.append(text)
    accepts, sense = recogniser(g), Sense(g)
    parts = [s for t in told for s in sentences(t)]
    refused = [s for s in parts if not accepts(s)]
    against = [(t, c) for t in told for c in [sense.contradictions(t)] if c]
    distinct, wanted = distinct_share(told, 4), distinct_share(fresh, 4, n_words)
    report.head(f"{a.stories} stories of {N_TOKENS} tokens at temperature 0.8", "found", "goal")
    report.row(f"sentences that the grammar accepts ({len(parts)})", f"{100 * (1 - len(refused) / len(parts)):.1f} %", "95 %")
    report.row("stories without a contradiction of gender or place", f"{100 * (1 - len(against) / len(told)):.0f} %", "95 %")
    report.row("distinct 4-grams", f"{100 * distinct:.1f} %", f"within 10 % of the corpus's {100 * wanted:.1f} %")
    seen = set(grams(training_text(a), 8))
    share = [sum(x in seen for x in grams(t, 8)) / max(1, sum(1 for _ in grams(t, 8))) for t in (told, fresh)]
    report.row("8-grams that stand in the training text", f"{100 * share[0]:.1f} %", f"(fresh stories: {100 * share[1]:.1f} %)")
    if a.failures:
        print("\n".join(f"refused: {s}" for s in refused))
        print("\n".join(f"against itself: {c}: {t!r}" for t, c in against))


def training_text(a):
    if a.training_text:
        with open(a.training_text, encoding="utf-8", errors="ignore") as f:
            return f.read(a.training_bytes).split(make_corpus.BEGIN)
    docs, n, i = [], 0, 0
    while n < a.training_bytes:
        docs.append(make_corpus.chunk((a.training_seed, i, "stories")))
        n, i = n + len(docs[-1]), i + 1
    return docs


PARTS = {"questions": eval_questions, "lengths": eval_lengths, "first": eval_first, "copies": eval_copies, "sums": eval_sums,
         "openings": eval_openings, "greetings": eval_greetings, "stories": eval_stories}


def main():
    parser = argparse.ArgumentParser(description="Measures the built-in model through the quill binary.")
    parser.add_argument("--quill", default=os.path.join(HERE, "..", "quill"))
    parser.add_argument("-m", "--model", help="a GGUF file instead of the built-in model")
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas: " + ", ".join(PARTS))
    parser.add_argument("--questions", type=int, default=500, help="of each kind; other parts take a share of it")
    parser.add_argument("--stories", type=int, default=100)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--training-text", help="the corpus the model saw; else as much is made anew as --training-bytes says")
    parser.add_argument("--training-seed", type=int, default=1)
    parser.add_argument("--training-bytes", type=make_corpus.size, default=make_corpus.size("20M"))
    parser.add_argument("--failures", action="store_true")
    a = parser.parse_args()
    parts = a.only.split(",")
    unknown = [p for p in parts if p not in PARTS]
    if unknown:
        parser.error(f"--only: no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    g, report = make_corpus.load_grammar(), Report(a.failures)
    for part in parts:
        if part != "stories" or a.stories:
            PARTS[part](a, g, Quill(a), report)
    report.failures()


if __name__ == "__main__":
    main()

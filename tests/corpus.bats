#!/usr/bin/env bats
# The text that the built-in model learns from: the same seed gives the same text, its sentences are its grammar's, and
# what is held out stays out.

load rig/helpers

setup() {
    enter
    needs python3
    cd "$TOP/scripts" || return 1
}

@test "a seed and a size give the same bytes, another seed gives others" {
    python3 make_corpus.py --seed 3 --bytes 300k -o "$BATS_TEST_TMPDIR/a"
    taskset -c 0 python3 make_corpus.py --seed 3 --bytes 300k -o "$BATS_TEST_TMPDIR/b"
    cmp "$BATS_TEST_TMPDIR/a" "$BATS_TEST_TMPDIR/b"
    [ "$(stat -c %s "$BATS_TEST_TMPDIR/a")" = 300000 ]
    run python3 make_corpus.py --seed 4 --bytes 300k
    [ "$output" != "$(cat "$BATS_TEST_TMPDIR/a")" ]
}

@test "the grammar accepts every sentence of its stories and refuses others" {
    python3 - <<'PYTHON'
import random
import eval_model, make_corpus
from grammar import sentences
g, rng = make_corpus.load_grammar(), random.Random(11)
accepts = eval_model.recogniser(g)
found = [s for _ in range(100) for s in sentences(make_corpus.tell(g, rng).text())]
assert len(found) > 500, len(found)
refused = [s for s in found if not accepts(s)]
assert not refused, refused[:3]
for wrong in ("Anna went to mill.", "anna went to the mill.", "Anna went to the to the mill.", "Anna found an cup.",
              "Anna went to the mill", "The mill went to Anna.", ""):
    assert not accepts(wrong), wrong
    shuffled = found[0].split()
assert sum(accepts(" ".join(rng.sample(s.split(), len(s.split())))) for s in found[:200]) < 4
PYTHON
}

@test "held-out names, pairs of numbers and two-hop templates are in no training text" {
    python3 - <<'PYTHON'
import random, re
import make_corpus
from grammar import words
g = make_corpus.load_grammar()
text = "".join(make_corpus.chunk((5, i, mix)) for mix in make_corpus.MIXES for i in range(1 if mix.startswith(("all", "back")) else 3))
seen = set(words(text))
held_out = set(g.rules["girl_held_out"]) | set(g.rules["boy_held_out"])
assert not seen & held_out, seen & held_out
assert len(seen & (set(g.rules["girl"]) | set(g.rules["boy"]))) > 400
pairs = {frozenset(map(int, p)) for p in re.findall(r"\b(\d+) plus (\d+) is", text)}
pairs |= {frozenset((int(b), int(r))) for b, r in re.findall(r"\d+ minus (\d+) is (\d+)\.", text)}
assert len(pairs) > 300 and not pairs & make_corpus.HELD_OUT_PAIRS
asked = make_corpus.held_out_questions(g, 1, 200)
for q in asked:
    if q["kind"] == "arithmetic":
        a, b, r = map(int, re.findall(r"\d+", q["answer"]))
        pair = frozenset((a, b) if "plus" in q["answer"] else (b, r))
        assert pair in make_corpus.HELD_OUT_PAIRS, q
        assert (a + b if "plus" in q["answer"] else a - b) == r, q
# A template that is held out is told in no training text, and every sentence of it is told in another pair.
for plot, (first, second) in make_corpus.TWO_HOP.items():
    made = {make_corpus.Story(g, random.Random(i)).pair(plot) for i in range(2000)}
    assert not any(make_corpus.template_is_held_out(plot, i, j) for i, j in made)
    assert {i for i, _ in made} == set(range(g.size(first))) and {j for _, j in made} == set(range(g.size(second)))
    kept = {make_corpus.Story(g, random.Random(i), held_out=True).pair(plot) for i in range(2000)}
    assert kept and not kept & made
PYTHON
}

@test "no single sentence of a text answers its two-hop question" {
    python3 - <<'PYTHON'
import make_corpus
from grammar import sentences
g = make_corpus.load_grammar()
for q in make_corpus.held_out_questions(g, 2, 100, kinds=("two",)):
    text = q["prompt"].rsplit("\n\n", 1)[0]
    assert q["answer"] not in sentences(text), q
PYTHON
}

@test "a copy is its text, with the names that were asked for" {
    python3 - <<'PYTHON'
import random, re
import make_corpus
from grammar import sentences
g, rng = make_corpus.load_grammar(), random.Random(6)
found = {}
for _ in range(300):
    kind, prompt, answer = make_corpus.to_copy(g, rng, held_out=True, n_bytes=rng.choice((60, 300, 420)))
    found[kind] = found.get(kind, 0) + 1
    if kind == "copy":
        assert answer in prompt, prompt
    elif kind == "rename":
        old, new = [n for n in re.findall(r"\b[A-Z]\w+", prompt) if n not in answer], answer
        assert any(re.sub(rf"\b{name}\b", other, prompt).find(answer) >= 0 for name in set(old) for other in re.findall(r"\b[A-Z]\w+", new)), prompt
    elif not answer.startswith("No sentence"):
        assert all(line in prompt for line in answer.split("\n")), prompt
assert all(found.get(k, 0) > 20 for k in ("copy", "rename", "list")), found
PYTHON
}

@test "the answer to a drill stands in its text, and no drill names who is held out" {
    python3 - <<'PYTHON'
import random, re
import corpus_drills, make_corpus
g, rng = make_corpus.load_grammar(), random.Random(6)
found = {}
for _ in range(600):
    kind, prompt, answer = corpus_drills.drill(g, rng, 60)
    found[kind] = found.get(kind, 0) + 1
    assert answer.strip() and not set(re.findall(r"\w+", prompt + answer)) & g.held_out, prompt
    if kind == "copy":
        assert answer in prompt, prompt
    elif kind == "rename":
        assert len(answer.split()) <= len(prompt.split()) and answer not in prompt, prompt
    elif not answer.startswith("No sentence"):
        assert all(part in prompt for part in re.split(r"\n|, ", answer)), (prompt, answer)
assert all(found.get(k, 0) > 40 for k in ("copy", "rename", "list", "pairs")), found
PYTHON
}

@test "several questions are answered in lines, and each stands beside its text" {
    python3 - <<'PYTHON'
import random
import make_corpus
make_corpus.MIX = make_corpus.MIXES["back-short"]
g, rng = make_corpus.load_grammar(), random.Random(6)
turns = [t for _ in range(40) for t in make_corpus.short_texts(g, rng)]
assert {1, 2, 3} <= {answer.count("\n") + 1 for _, answer in turns}
asked_first = sum(prompt.index("?") < len(prompt) / 2 for prompt, _ in turns if "?" in prompt)
assert 0.3 * len(turns) < asked_first < 0.9 * len(turns), asked_first
for prompt, answer in turns:
    assert answer.count("\n") + 1 <= 5 and all(line.strip() for line in answer.split("\n")), answer
PYTHON
}

@test "long texts have the length that was asked for, and each answer is of its text" {
    python3 - <<'PYTHON'
import random
import make_corpus
g, rng = make_corpus.load_grammar(), random.Random(6)
for n_bytes in (300, 2000, 5500):
    for held_out in (False, True):
        text, questions, cast = make_corpus.much_to_ask_about(g, rng, n_bytes, held_out)
        assert 0.85 * n_bytes <= len(text) < n_bytes + 1500 and questions and cast
        for kind, question, answer in questions:
            if kind == "unknown":
                assert answer.startswith("I don't know"), answer
            elif answer.startswith("The ") and " is " in answer:  # where a thing is: the place stands in the text
                assert answer.rstrip(".").split(" the ")[-1] in text, (question, answer, text)
PYTHON
}

@test "a story against itself is found, and the corpus tells none" {
    python3 - <<'PYTHON'
import random
import eval_model, make_corpus
g, rng = make_corpus.load_grammar(), random.Random(8)
sense = eval_model.Sense(g)
told = [make_corpus.tell(g, rng).text() for _ in range(150)]
assert sum(bool(sense.contradictions(t)) for t in told) <= 1
for wrong in ("Once upon a time there was a girl called Anna. He sighed happily.",
              "Once upon a time there was a girl called Anna.\n\nOnce upon a time there was a boy called Anna.",
              "Anna went to the mill.\n\nAnna walked to the market slowly.", "Tom put on her coat and smiled. Tom put on his coat."):
    assert sense.contradictions(wrong), wrong
for right in ("Anna went to the mill.\n\nTom walked to the market slowly.", "Once upon a time there was a girl called Anna. She smiled."):
    assert not sense.contradictions(right), right
PYTHON
}

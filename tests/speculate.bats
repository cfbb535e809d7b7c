#!/usr/bin/env bats
# speculate.bats: --speculate on the command line: the same texts with drafts and without, in every mode; reports of
# them; what is refused.

load rig/helpers

models() {
    "$MAKE_TINY" "$TINY/big.gguf" n_layers=3 seed=1 ctx=512
    "$MAKE_TINY" "$TINY/draft.gguf" n_layers=1 seed=2 ctx=512
    "$MAKE_TINY" "$TINY/chat.gguf" arch=qwen2 template=chatml ctx=1024
    "$MAKE_TINY" "$TINY/chat-draft.gguf" arch=qwen2 template=chatml ctx=1024 n_layers=1 seed=4
    export QUILL_MODEL="$TINY/big.gguf"
}

drafters() { printf '%s\n' ngram "$TINY/draft.gguf" "ngram,$TINY/draft.gguf" "$TINY/big.gguf"; }

@test "every drafter leaves the text unchanged, with penalties and biases, in each layout and KV type" {
    common=(--deterministic -s 5 -n 60 --repeat-penalty 1.2 --logit-bias 40-inf --ignore-eos "a text a text a text")
    for flags in '' '--kv-layout paged --kv-block 16' '-ctk q8_0 -ctv q4_0' '--temp 0'; do
        # shellcheck disable=SC2086
        "$QUILL" $flags "${common[@]}" </dev/null >want
        while read -r drafter; do
            # shellcheck disable=SC2086
            "$QUILL" $flags --speculate "$drafter" "${common[@]}" </dev/null >got
            cmp want got
        done < <(drafters)
    done
}

@test "drafts do not change stop strings, log-probabilities and the end of an answer" {
    strip() { sed 's/,"load_ms.*//'; }
    for flags in '--stop e' '--logprobs 3 -n 20' '-n 1' '-n 0' '-n 200'; do
        # shellcheck disable=SC2086
        "$QUILL" --deterministic --json -s 3 $flags "hello hello hello" </dev/null | strip >want
        while read -r drafter; do
            # shellcheck disable=SC2086
            "$QUILL" --deterministic --json -s 3 $flags -md "$drafter" "hello hello hello" </dev/null | strip | cmp - want
        done < <(drafters)
    done
}

@test "a chat drafts from all of its turns" {
    printf 'first words\nsecond words\nfirst words\n' >turns
    chat=(-m "$TINY/chat.gguf" -i --deterministic --greedy -n 30 --no-history)
    "$QUILL" "${chat[@]}" <turns >want 2>/dev/null
    for drafter in ngram "$TINY/chat-draft.gguf" "ngram,$TINY/chat-draft.gguf"; do
        "$QUILL" "${chat[@]}" --speculate "$drafter" <turns >got 2>/dev/null
        cmp want got
    done
    [ -s want ]
}

@test "a batch drafts from other jobs' answers, and its answers are those without drafts" {
    for i in 1 2 3 4 5 6 7 8; do
        printf '{"id":%d,"prompt":"a story that begins","max_tokens":40,"seed":%d,"ignore_eos":true}\n' $i $((i % 2))
    done >jobs
    strip() { sed 's/,"queue_ms.*//'; }
    "$QUILL" batch --deterministic --keep-order -np 3 jobs | strip >want
    while read -r drafter; do
        "$QUILL" batch --deterministic --keep-order -np 3 -v --speculate "$drafter" jobs 2>errors | strip | cmp - want
        unwrapped <errors | grep -q 'drafts [0-9]*, [0-9]* accepted'
        "$QUILL" batch --deterministic -q -np 3 --speculate "$drafter" jobs | jq -se 'length == 8 and
            all(.[].speculation; .accepted <= .drafted and .steps > 0 and .steps <= 40 and .tokens_per_step >= 1)'
    done < <(drafters)
    "$QUILL" batch --deterministic -np 1 -v --speculate ngram jobs 2>&1 >/dev/null | unwrapped | sed -n 's/.*drafts \([0-9]*\), .*/\1/p' >n
    [ "$(cat n)" -gt 50 ] # six jobs say what one of the first two has said
}

@test "drafts work with prefill and decode, and with KV from an earlier run" {
    printf 'Once upon a time there was a ship, a ship, a ship. ' >text
    "$QUILL" --deterministic --greedy -n 40 -f text </dev/null >want
    while read -r drafter; do
        "$QUILL" prefill --deterministic -f text --kv-out - </dev/null |
            "$QUILL" decode --deterministic --greedy -n 40 --kv-in - --speculate "$drafter" | cmp - want
        "$QUILL" --deterministic --greedy -n 40 --kv-dir kv --speculate "$drafter" -f text </dev/null | cmp - want
    done < <(drafters)
}

@test "the model's own prediction head leaves every text unchanged" {
    "$MAKE_TINY" random.gguf arch=qwen35 mtp=1 ctx=1024 template=chatml
    "$MAKE_TINY" knows.gguf arch=qwen35 mtp=1 bigrams=1 ctx=1024 template=chatml
    "$MAKE_TINY" moe.gguf arch=qwen3next mtp=1 own_ends=1 ctx=1024 template=chatml
    printf 'first words\nsecond words\nfirst words\n' >turns
    for i in 1 2 3 4 5 6; do
        printf '{"id":%d,"prompt":"a story that begins","max_tokens":40,"seed":%d,"n":%d}\n' $i $((i % 2)) $((i % 3 + 1))
    done >jobs
    strip() { sed 's/,"queue_ms.*//'; }
    for model in random knows moe; do
        one=(-m $model.gguf --deterministic -s 5 -n 60 --ignore-eos "a text a text")
        for flags in '' '--kv-layout paged --kv-block 16' '-ctk q8_0 -ctv q4_0' '--temp 0'; do
            # shellcheck disable=SC2086
            "$QUILL" $flags "${one[@]}" </dev/null >want
            for drafter in mtp ngram,mtp; do
                # shellcheck disable=SC2086
                "$QUILL" $flags --speculate $drafter "${one[@]}" </dev/null | cmp - want
            done
        done
        chat=(-m $model.gguf -i --deterministic --greedy -n 30 --no-history)
        "$QUILL" "${chat[@]}" <turns >want 2>/dev/null
        "$QUILL" "${chat[@]}" --speculate mtp <turns 2>/dev/null | cmp - want
        "$QUILL" batch -m $model.gguf --deterministic --keep-order -np 3 jobs | strip >want
        "$QUILL" batch -m $model.gguf --deterministic --keep-order -np 3 --speculate mtp jobs | strip | cmp - want
        "$QUILL" -m $model.gguf --deterministic --greedy -n 40 -f turns </dev/null >want
        "$QUILL" prefill -m $model.gguf --deterministic -f turns --kv-out - </dev/null |
            "$QUILL" decode -m $model.gguf --deterministic --greedy -n 40 --kv-in - --speculate mtp | cmp - want
    done
}

@test "a prediction head is reported, measured, and refused where there is none" {
    "$MAKE_TINY" knows.gguf arch=qwen35 mtp=1 bigrams=1 ctx=1024 dim=256 n_layers=9 head_dim=64
    "$QUILL" -m knows.gguf --dry-run --speculate mtp </dev/null 2>&1 | grep -Eq '^ +draft +[0-9.]+ [KM]B  weights'
    "$QUILL" -m knows.gguf --greedy -n 60 --ignore-eos --speculate mtp -v hi </dev/null 2>&1 >/dev/null | unwrapped >said
    grep -q "drafts by the model's own prediction head" said
    "$QUILL" -m knows.gguf --greedy -n 60 --ignore-eos --speculate mtp --json hi </dev/null |
        jq -e '.speculation | .drafted > 5 and .accepted == .drafted and .tokens_per_step > 1.1'
    "$QUILL" bench -m knows.gguf -q -r 1 -n 20 --speculate mtp -o csv | grep -q '^from nothing,'
    says 3 'llama.nextn_predict_layers' "$QUILL" --speculate mtp hi
    says 3 'llama.nextn_predict_layers' "$QUILL" --speculate ngram,mtp hi
    "$MAKE_TINY" other.gguf arch=glm4 mtp=1
    says 3 'one of glm4 found' "$QUILL" -m other.gguf --speculate mtp hi
    says 3 'one of glm4 found' "$QUILL" batch -m other.gguf --speculate ngram,mtp /dev/null
}

@test "a prediction head is refused where a GPU computes layers, in every mode" {
    [ -x "$TWIN" ] || skip "no twin"
    "$MAKE_TINY" knows.gguf arch=qwen35 mtp=1 bigrams=1 ctx=512
    echo '{"prompt":"hi","max_tokens":4}' >jobs
    "$TWIN" -m knows.gguf --deterministic --greedy -n 24 --device cpu hi </dev/null >want
    for flags in '--device cpu' '--device cuda -ngl 0'; do
        # shellcheck disable=SC2086
        "$TWIN" -m knows.gguf --deterministic --greedy -n 24 $flags --speculate mtp hi </dev/null | cmp - want
    done
    for flags in '--device cuda' '-ngl 2' '--device cuda --n-cpu-moe 1' '--device cuda --dry-run'; do
        for drafter in mtp ngram,mtp; do
            # shellcheck disable=SC2086
            says 2 'a model that the CPU computes expected, [1-9] layers on a GPU found; add --device cpu' \
                "$TWIN" -m knows.gguf $flags --speculate $drafter hi
        done
    done
    for mode in 'batch jobs' 'bench -q -r 1 -n 20' 'decode --kv-in jobs'; do
        # shellcheck disable=SC2086
        says 2 'layers on a GPU found' "$TWIN" $mode -m knows.gguf --device cuda --speculate mtp
    done
    says 3 'llama.nextn_predict_layers' "$TWIN" --device cuda --speculate mtp hi # where no device would help
}

@test "drafts do not change the text of the GPU's twin" {
    [ -x "$TWIN" ] || skip "no twin"
    for flags in '--device cuda' '-ngl 2'; do
        # shellcheck disable=SC2086
        "$TWIN" -q $flags --greedy -n 24 "one two one two one two" </dev/null >want
        for drafter in ngram "$TINY/draft.gguf"; do
            # shellcheck disable=SC2086
            "$TWIN" -q $flags --greedy -n 24 --speculate "$drafter" "one two one two one two" </dev/null | cmp - want
        done
    done
}

@test "--verbose and --json report the drafts" {
    "$QUILL" --greedy -n 60 --ignore-eos --speculate ngram -v hi </dev/null 2>errors >/dev/null
    unwrapped <errors | grep -q 'drafts by n-grams'
    unwrapped <errors | grep -Eq 'drafts [0-9]+, [0-9]+ accepted \([0-9]+%\); [0-9.]+ tokens a step, gain [0-9.]+'
    "$QUILL" --greedy -n 60 --ignore-eos --speculate ngram --json hi </dev/null >out
    grep -Eq '"speculation":\{"drafted":[0-9]+,"accepted":[0-9]+,"steps":[0-9]+,"tokens_per_step":[0-9.]+,"gain":[0-9.]+\}' out
    # drafts cost time, so that the gain is less than the tokens of a step
    "$QUILL" --isa scalar --greedy -n 60 --ignore-eos --speculate ngram --json "one two one two one two one two" </dev/null |
        jq -e '.speculation | .drafted > 0 and .gain < .tokens_per_step'
    "$QUILL" --greedy -n 5 --json hi </dev/null | not grep -q speculation
    "$QUILL" --greedy -n 5 --speculate "$TINY/draft.gguf" -v hi </dev/null 2>&1 >/dev/null | unwrapped >said
    grep -q 'draft [0-9.]* [KM]B weights .* KV cache .* drafts by .*draft.gguf' said
    "$QUILL" --dry-run --speculate "$TINY/draft.gguf" </dev/null 2>&1 | grep -Eq '^ +draft +[0-9.]+ [KM]B  weights'
    run ! grep -q '^ *draft' < <("$QUILL" --dry-run --speculate ngram </dev/null 2>&1)
}

@test "the built-in model can be its own draft model" {
    needs_builtin
    "$QUILL" --deterministic -s 1 -n 80 "Tell me a story." </dev/null >want
    for drafter in builtin ngram,builtin; do
        "$QUILL" --deterministic -s 1 -n 80 --speculate $drafter "Tell me a story." </dev/null | cmp - want
    done
}

@test "bench replays an edit and answers prompts, with drafts and without" {
    for i in 1 2 3 4 5 6 7 8 9; do echo "line $i of a small file"; done >old
    sed 's/line 5/line five/' old >new
    "$QUILL" bench -q -r 1 --speculate ngram --replay old new -o json >out
    grep -q '"work": "new"' out
    [ "$(sed -n 's/.*"tokens_per_step": \([0-9]*\).*/\1/p' out)" -ge 4 ]
    grep -Eq '"gain_bound": [0-9.]+' out
    # a pipe is read once
    "$QUILL" bench -q -r 1 --speculate ngram --replay <(cat old) <(cat new) -o csv | grep -q '^[0-9]*,1,'
    printf 'hello\nhello\n' >prompts
    "$QUILL" bench -q -r 1 -n 12 --speculate "ngram,$TINY/draft.gguf" --prompt-lines prompts >out
    [ "$(wc -l <out)" -eq 3 ]
    "$QUILL" bench -q -r 1 -n 12 -np 2 --speculate ngram --prompt-lines prompts -o md | grep -q '^| 2 texts, 2 at once'
    "$QUILL" bench -q -r 1 -n 2 --speculate "$TINY/draft.gguf" --prompt-lines prompts >out
    run ! grep -Eq 'inf|nan' out # an answer of a step or two has rates or none
    "$QUILL" bench -q -r 1 -n 4 --speculate ngram -o csv | grep -q '^from nothing,'
    needs python3
    # the cells of -o csv are numbers or empty, as in -o json
    printf 'say "a", b\nhello\n' >prompts
    "$QUILL" bench -q -r 1 -n 12 --speculate ngram --prompt-lines prompts -o csv >rows
    "$QUILL" bench -q -r 1 -n 12 --speculate ngram --prompt-lines prompts -o json >out
    python3 - rows out <<'PYTHON'
import csv, json, sys
rows, results = list(csv.DictReader(open(sys.argv[1]))), json.load(open(sys.argv[2]))["results"]
assert [r["work"] for r in rows] == ['say "a", b', "hello"], rows
for row, result in zip(rows, results):
    assert row.keys() == result.keys(), row
    for key in row.keys() - {"work"}:
        assert (row[key] == "") == (result[key] is None) and (row[key] == "" or float(row[key]) >= 0), row
    for key in "texts", "texts_changed", "tokens", "drafted", "accepted":
        assert row[key] == str(result[key]), (row, result)
PYTHON
}

# says CODE WORDS COMMAND...: one line on stderr with these words
says() {
    local want="$1" words="$2"
    shift 2
    [ "$(code "$@")" -eq "$want" ]
    grep -q -- "$words" errors
    [ "$(wc -l <errors)" -eq 1 ]
}

@test "impossible combinations with --speculate are refused in one line" {
    "$MAKE_TINY" gpt2.gguf tokens=gpt2
    "$MAKE_TINY" short.gguf vocab=300
    "$MAKE_TINY" larger.gguf n_layers=5
    says 3 'token 0 is "' "$QUILL" --speculate gpt2.gguf hi
    says 3 'the 320 tokens of .* expected in a draft model, 300 found' "$QUILL" --speculate short.gguf hi
    says 3 'no larger than' "$QUILL" --speculate larger.gguf hi
    says 3 'none.gguf: ' "$QUILL" --speculate none.gguf hi
    says 3 'none.gguf: ' "$QUILL" --speculate ngram,none.gguf hi
    for words in ngram, mtp, ngram,ngram mtp,ngram mtp,larger.gguf ngram,mtp,larger.gguf larger.gguf,ngram; do
        says 2 "ngram, mtp, a draft model's FILE, .* found \"$words\"" "$QUILL" --speculate "$words" hi
    done
    says 2 '--evict and --speculate' "$QUILL" --evict sinks --speculate ngram hi
    says 2 '--evict and --speculate' "$QUILL" --evict sinks --speculate mtp hi
    mv larger.gguf mtp,larger.gguf
    says 3 'no larger than' "$QUILL" --speculate ./mtp,larger.gguf hi # a file all the same
    says 2 '--draft-min 9 and --draft-max 4' "$QUILL" --speculate ngram --draft-max 4 --draft-min 9 hi
    says 2 '--draft-min: --speculate expected' "$QUILL" --draft-min 2 hi
    says 2 '--draft-max: --speculate expected' "$QUILL" --draft-max 4 hi
    says 2 '--draft-p-min: --speculate expected' "$QUILL" --draft-p-min 0.5 hi
    says 2 '--draft-max' "$QUILL" --speculate ngram --draft-max 65 hi
    says 2 '--replay: --speculate expected' "$QUILL" bench --replay a b
    says 2 'pairs of files' "$QUILL" bench --speculate ngram --replay a
    says 2 'null: text expected, found an empty file' "$QUILL" bench --speculate ngram --replay /dev/null old
    says 2 '--replay and --prompt-lines' "$QUILL" bench --speculate ngram --replay --prompt-lines p a b
    says 2 'two tokens or more' "$QUILL" bench --speculate ngram -n 1
    says 2 '-t: one number expected with --speculate, found 2' "$QUILL" bench --speculate ngram -t 1,2
    says 2 '-n: one number expected with --speculate, found 3' "$QUILL" bench --speculate ngram -n 16,32,64
    says 2 '-t: one number expected with --ops, found 2' "$QUILL" bench --ops -t 1,2
    says 2 '-n: a bench without --ops expected with it' "$QUILL" bench --ops -n 5
    says 2 '--roofline and --speculate' "$QUILL" bench --speculate ngram --roofline
    says 2 '--speculate and --shape' "$QUILL" bench --speculate ngram --shape 1b
}

@test "the draft model of the built-in model predicts most of its tokens, and leaves its text unchanged" {
    needs_builtin
    draft="$BATS_TEST_DIRNAME/../models/quill-stories-draft.gguf"
    story=(-m builtin --deterministic --greedy -n 250 "Tell me a story about Anna.")
    "$QUILL" "${story[@]}" </dev/null >want
    "$QUILL" --speculate "$draft" "${story[@]}" </dev/null | cmp - want
    "$QUILL" perplexity -m builtin -f want --kl-base logits >/dev/null
    "$QUILL" perplexity -m "$draft" -f want --kl logits --json | jq -e '.kl.mean < 1 and .same_top > 0.6'
}

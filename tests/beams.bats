#!/usr/bin/env bats
# beams.bats: --beams and --best-of on the command line and in a batch: what they print, what they refuse, how they end.

load rig/helpers

models() {
    "$MAKE_TINY" "$TINY/base.gguf" seed=1 ctx=256
    "$MAKE_TINY" "$TINY/chat.gguf" arch=qwen2 template=chatml seed=2 ctx=256
    export QUILL_MODEL="$TINY/base.gguf"
}

beams() { # beams ARGS...: as JSON
    "$QUILL" --json -n 14 --ignore-eos "$@" hello </dev/null
}

# field EXPRESSION: of the JSON object on stdin, as Python has it in j.
field() {
    python3 -c "import json,sys; j=json.load(sys.stdin); print($1)"
}

# bytes: of the tokens of the JSON object on stdin.
bytes() {
    python3 -c 'import json,sys; sys.stdout.buffer.write(bytes(b for t in json.load(sys.stdin)["tokens"] for b in t["bytes"]))'
}

@test "one beam gives the text of greedy decoding" {
    for flags in '' '--repeat-penalty 1.3' '--logit-bias 40+2 --presence-penalty 0.5' '-ctk q8_0 -ctv q4_0'; do
        # shellcheck disable=SC2086
        "$QUILL" --isa scalar -n 20 --beams 1 $flags hello >beam </dev/null
        # shellcheck disable=SC2086
        "$QUILL" --isa scalar -n 20 --greedy $flags hello >greedy </dev/null
        cmp beam greedy
    done
}

@test "all texts have scores, best first, the same in each run" {
    beams --beams 4 >out
    beams --beams 4 --seed 3 >again
    [ "$(field 'len(j["choices"])' <out)" = 4 ]
    field 'all(a["score"] >= b["score"] for a, b in zip(j["choices"], j["choices"][1:]))' <out | grep -qx True
    field 'all(abs(c["score"] - c["logprob"] / c["completion_tokens"]) < 1e-4 for c in j["choices"])' <out | grep -qx True
    field 'j["text"] == j["choices"][0]["text"] and j["score"] == j["choices"][0]["score"]' <out | grep -qx True
    [ "$(field '[c["text"] for c in j["choices"]]' <out)" = "$(field '[c["text"] for c in j["choices"]]' <again)" ]
    beams --beams 4 --length-penalty 0 | field 'abs(j["score"] - j["logprob"]) < 1e-4' | grep -qx True
    "$QUILL" -n 14 --ignore-eos --special --no-newline --beams 4 hello </dev/null >plain
    beams --beams 4 --logprobs 0 --special | bytes | cmp - plain
}

@test "a search finds a text at least as likely as the greedy one" {
    sum() { field 'round(sum(t["logprob"] for t in j["tokens"]), 4)'; }
    greedy="$(beams --isa scalar --greedy --logprobs 0 | sum)"
    beams --isa scalar --beams 8 --logprobs 2 >out
    field "j['logprob'] >= $greedy - 1e-3" <out | grep -qx True
    field 'abs(j["logprob"] - sum(t["logprob"] for t in j["tokens"])) < 1e-3' <out | grep -qx True
    field 'all(len(t["top"]) == 2 for c in j["choices"] for t in c["tokens"])' <out | grep -qx True
}

@test "a form forbids tokens and does not change the log-probabilities of the others" {
    form() { "$QUILL" --isa scalar -n 40 --beams 12 --length-penalty 0 --json --logprobs 0 "$@" hello </dev/null; }
    for flags in '--choice no,maybe,abcdefgh' '--regex (in|on).[a-z]{3}'; do
        # shellcheck disable=SC2086
        form $flags >out
        field 'all(abs(c["logprob"] - sum(t["logprob"] for t in c["tokens"])) < 1e-3 for c in j["choices"])' <out | grep -qx True
    done
    for choice in no maybe abcdefgh; do form --choice "$choice" | field 'round(j["logprob"], 3), j["text"]'; done >alone
    form --choice no,maybe,abcdefgh | field 'round(j["logprob"], 3), j["text"]' >best
    sort -rn alone | head -1 | cmp - best # each text as the only choice has the same value
}

@test "a text ends at a stop string, which is not shown" {
    beams --beams 3 >whole
    stop="$(field 'next(c for c in j["text"][3:] if c.isascii() and c.isalnum())' <whole)"
    beams --beams 3 --stop "$stop" >short
    field "any(c['finish_reason'] == 'stop' for c in j['choices'])" <short | grep -qx True
    STOP="$stop" python3 -c 'import json, os; assert all(os.environ["STOP"] not in c["text"] for c in json.load(open("short"))["choices"])'
}

@test "a search finds the same text on all instruction sets, layouts and KV types" {
    beams --beams 4 --isa scalar -ctk f32 -ctv f32 | field 'j["text"]' >want
    for flags in '--kv-layout paged --kv-block 4' '--kv-block 256' '-ub 4' '--kv-dir kept' '--kv-dir kept'; do
        # shellcheck disable=SC2086
        beams --beams 4 --isa scalar -ctk f32 -ctv f32 $flags | field 'j["text"]' | cmp - want
    done
    for isa in $(isas); do
        for types in '-ctk f16 -ctv f16' '-ctk kivi2 -ctv kivi2'; do
            # shellcheck disable=SC2086
            beams --beams 4 --isa "$isa" $types | field 'len(j["choices"])' | grep -qx 4
        done
    done
}

@test "a job with beams runs beside other jobs" {
    for i in 1 2 3 4 5 6; do
        printf '{"id":%d,"prompt":"hello","max_tokens":14,"ignore_eos":true,"beams":%d,"n":2}\n' $i $((1 + i % 3 + 1))
        printf '{"id":1%d,"prompt":"hello %d","max_tokens":9,"ignore_eos":true,"greedy":true}\n' $i $i
    done >jobs
    "$QUILL" batch --isa scalar -np 5 jobs >out
    [ "$(grep -c '"text"' out)" -eq 12 ]
    for n in 2 3 4; do
        want="$(beams --isa scalar --beams $n | field '[(c["text"], c["score"]) for c in j["choices"][:2]]')"
        python3 - "$n" "$want" <<'END'
import json, sys
n, want = int(sys.argv[1]), sys.argv[2]
lines = [json.loads(line) for line in open("out")]
found = [j for j in lines if j["id"] <= 6 and 1 + j["id"] % 3 + 1 == n]
assert len(found) == 2 and all(str([(c["text"], c["score"]) for c in j["choices"]]) == want for j in found), (found, want)
END
    done
    "$QUILL" batch --isa scalar --kv-mem 300k -c 64 --beams 3 -np 4 jobs >small 2>errors || true
    [ "$(grep -c '"line"' small)" -eq 12 ] # not one is lost
}

@test "jobs have keys for beams and best-of, and wrong values are errors" {
    job() { echo "{\"prompt\":\"hello\",\"max_tokens\":6,$1}" | "$QUILL" batch -np 4; }
    job '"num_beams":3,"early_stopping":"never","length_penalty":0.5' | field 'j["score"] < 0' | grep -qx True
    job '"beams":2,"early_stopping":true,"temperature":0' | grep -q '"score"'
    job '"best_of":3' | grep -q '"score"'
    run -2 job '"beams":5'
    [[ "$output" == *'beams: at most 4 expected, the number that can run at once with these -np, -ub and memory; found 5'* ]]
    run -2 job '"beams":2,"n":3'
    [[ "$output" == *'n: at most the 2 of beams expected, found 3'* ]]
    run -2 job '"best_of":2,"beams":2'
    [[ "$output" == *'beams and best_of: one of them expected'* ]]
    run -2 job '"beams":2,"temperature":0.7'
    [[ "$output" == *'beams and temp: one of them expected'* ]]
    run -2 job '"beams":2,"early_stopping":"soon"'
    [[ "$output" == *'early_stopping: true, false or'* ]]
    run -2 job '"beam":2'
    [[ "$output" == *'did you mean beams?'* ]]
    echo '{"custom_id":"a","url":"/v1/completions","body":{"prompt":"hello","max_tokens":4,"best_of":3,"n":2}}' |
        "$QUILL" batch | field 'len(j["response"]["body"]["choices"]), len(j["response"]["body"]["quill"]["scores"])' |
        grep -qx '2 2'
}

@test "the best of several samples is the one with the best mean log-probability" {
    beams --best-of 5 --seed 9 >out
    field 'len(j["choices"]) == 5 and j["score"] == max(c["score"] for c in j["choices"])' <out | grep -qx True
    beams --seed 9 | field 'j["text"]' >first # the first sample is the one that is drawn alone
    grep -qxF -f <(field '"\n".join(c["text"] for c in j["choices"])' <out) first
    beams --best-of 5 --seed 9 --logprobs 0 >logprobs
    field 'abs(j["logprob"] - sum(t["logprob"] for t in j["tokens"])) < 1e-3' <logprobs | grep -qx True
    "$QUILL" -n 14 --ignore-eos --special --no-newline --best-of 5 --seed 9 hello </dev/null >plain
    bytes <logprobs | cmp - plain
    echo '{"prompt":"hello","max_tokens":14,"ignore_eos":true,"seed":9,"best_of":5,"n":2}' | "$QUILL" batch >of_batch
    [ "$(field '[c["text"] for c in j["choices"]]' <of_batch)" = "$(field '[c["text"] for c in j["choices"][:2]]' <out)" ]
}

@test "the figures of --best-of are those of all samples, whichever is the best" {
    beams -s 5 --temp 1.5 >alone
    for seed in 5 6 7 8 9 10; do
        beams -s $seed --temp 1.5 --best-of 4 >out
        python3 - alone out <<'PYTHON'
import json, sys
alone, best = (json.load(open(path)) for path in sys.argv[1:])
assert best["cached_tokens"] == 0 and best["prefill_tps"] > 0, best
assert best["prefill_flops"] == alone["prefill_flops"] and best["prefill_bytes"] == alone["prefill_bytes"], best
assert abs(best["decode_flops"] - 4 * alone["decode_flops"]) < 4, best
assert best["decode_bytes"] > alone["decode_bytes"], best
PYTHON
    done
    "$QUILL" -v -n 14 --ignore-eos --best-of 4 -s 5 hello 2>errors </dev/null
    grep -Eq '^prefill +[1-9][0-9]* tokens, 0 cached' errors
    # the blocks of all samples are free by then
    not grep -q '^KV  *[0-9]* slots' errors
    "$QUILL" -v -n 14 --beams 4 hello 2>errors </dev/null
    not grep -q '^KV  *[0-9]* slots' errors
    "$QUILL" -v -n 14 hello 2>errors </dev/null
    grep -q '^KV  *[1-9][0-9]* slots' errors
    # a short text may be the best: the time of decoding is still that of all steps
    for seed in 5 6 7 8 9 10; do
        beams -n 60 -s $seed --temp 1.5 --best-of 4 --stop e --stop a |
            field 'abs(j["decode_ms"] - (j["tpot_ms"] or 0) * (max(c["completion_tokens"] for c in j["choices"]) - 1)) < 0.01' |
            grep -qx True
    done
}

@test "options that exclude beams or best-of are refused in one line" {
    refused() { # refused WORDS ARGS...
        local words="$1"
        shift
        [ "$(code "$QUILL" "$@" hello)" = 2 ]
        [ "$(wc -l <errors)" -eq 1 ]
        grep -qF -- "$words" errors || { cat errors; return 1; }
    }
    refused '--beams' --beams 0
    refused '--beams' --beams 1000
    refused '--beams and --best-of: one of them expected' --beams 2 --best-of 2
    refused '--beams and --temp: one of them expected, found both; a beam search does not draw tokens' --beams 2 --temp 0.5
    refused '--beams and --top-k' --beams 2 --top-k 5
    refused '--beams and --min-p' --beams 2 --min-p 0.2
    refused '--beams and --xtc-probability' --beams 2 --xtc-probability 0.5
    refused '--best-of 3: sampling expected, found greedy decoding, whose answers are all the same' --best-of 3 --greedy
    refused '--evict: a single answer expected, found --beams or --best-of' --beams 2 --evict sinks
    refused '--evict: a single answer expected, found --beams or --best-of' --best-of 2 --evict sinks
    refused '--beams 8: at most the 4 rows of a step (-ub) expected' --beams 8 -ub 4
    refused '--length-penalty: --beams N expected beside it' --length-penalty 2
    refused '--early-stopping: --beams N expected beside it' --early-stopping never
    refused 'found a chat, which shows its answer while it is generated' --beams 2 -i
    [ "$(code "$QUILL" batch --beams 9 -np 8)" = 2 ]
    grep -qF -- '--beams 9: at most the 8 sequences at once (-np) expected' errors
    [ "$(code "$QUILL" --beams 2 --temp 0 -n 3 hello)" = 0 ]
    echo '/set beams 2' | "$QUILL" -i -m "$TINY/chat.gguf" 2>&1 | grep -q 'beams: not a setting'
}

@test "--echo, --json, --jsonl, -v and --dry-run work with beams as with one answer" {
    [ "$("$QUILL" -n 8 --ignore-eos --echo --beams 2 --raw hello </dev/null | head -c 5)" = hello ]
    "$QUILL" -n 8 --ignore-eos --jsonl --beams 2 hello </dev/null >lines
    [ "$(wc -l <lines)" -eq 9 ]
    "$QUILL" -m "$TINY/chat.gguf" -n 8 --beams 3 --json hello </dev/null | field 'len(j["choices"])' | grep -qx 3
    "$QUILL" -n 0 --beams 2 --json hello </dev/null | field 'j["text"] == "" and j["completion_tokens"] == 0' | grep -qx True
    "$QUILL" -v -n 8 --ignore-eos --beams 2 hello </dev/null 2>&1 | grep -q '^beams  *2, 8 steps, .* blocks'
    "$QUILL" --dry-run --beams 2 hello </dev/null 2>&1 | grep -q 'KV cache'
}

@test "a full context ends a search, and the best text is shown" {
    "$QUILL" -c 64 --ignore-eos --beams 3 --json --raw hello </dev/null >out
    [ "$(field 'j["finish_reason"]' <out)" = length ]
    field 'j["prompt_tokens"] + j["completion_tokens"] == 65' <out | grep -qx True
}

@test "a signal ends a search, and the best text so far is shown" {
    for signal in INT:130 TERM:143; do
        hears_signals "$QUILL" -q --ignore-eos -c 4M --beams 2 --json hello >out 2>errors </dev/null &
        pid=$!
        sleep 1
        kill -s "${signal%:*}" "$pid"
        ended "$pid"
        [ "$status" -eq "${signal#*:}" ]
        [ "$(field 'j["finish_reason"], len(j["choices"])' <out)" = 'interrupt 2' ]
        field 'j["completion_tokens"] > 0' <out | grep -qx True
    done
}

@test "a search on the GPU's twin finds what the CPU finds" {
    [ -x "$TWIN" ] || skip "quill_twin is not built"
    for device in cpu cuda '-ngl 1'; do
        # shellcheck disable=SC2086
        "$TWIN" -q --device ${device% *} -n 6 --beams 3 --json hello </dev/null 2>/dev/null >out ||
            "$TWIN" -q $device -n 6 --beams 3 --json hello </dev/null >out
        field '[c["text"] for c in j["choices"]], round(j["score"], 1)' <out >"found${device// /}"
    done
    cmp foundcpu foundcuda
    cmp foundcpu found-ngl1
}

@test "a search begins only if memory has a block for each beam, and says if memory ends it" {
    few() { # few BEAMS KEYS: with 8 blocks of 16 slots, the least for a context of 128
        echo "{\"prompt\":\"${3:-hello}\",\"ignore_eos\":true,\"beams\":$1,$2}" |
            "$QUILL" batch --raw --isa scalar -c 128 --kv-block 16 --kv-mem 66k
    }
    run -2 few 9 '"max_tokens":2'
    [[ "$output" == *'beams: at most 8 expected, the number that can run at once with these -np, -ub and memory; found 9'* ]]
    run -0 --separate-stderr few 9 '"max_tokens":1' # no token is computed after the prompt
    [ -z "$stderr" ]
    run -0 --separate-stderr few 8 '"max_tokens":12'
    [ -z "$stderr" ]
    prompt="$(printf 'abcdefg %.0s' $(seq 12))" # its whole blocks leave fewer for the beams
    run -2 few 4 '"max_tokens":9' "$prompt"
    [[ "$output" =~ 'beams: at most '[123]' expected' ]]
    run -0 --separate-stderr few 6 '"max_tokens":-1'
    [[ "$stderr" =~ 'note: beams: the KV cache is full, so a search of 6 beams ends after '[0-9]+' tokens; fewer beams, or a larger --kv-mem' ]]
    [ "$(field 'j["finish_reason"]' <<<"$output")" = length ]
    run -0 --separate-stderr few 1 '"max_tokens":-1' # to the end of the context
    [ -z "$stderr" ]
    [ "$(field 'j["usage"]["prompt_tokens"] + j["usage"]["completion_tokens"]' <<<"$output")" = 129 ]
}

@test "beams that fill the cache end, and the jobs after them are answered, also with --kv-dir" {
    needs_builtin
    text="Once upon a time there was a little dog who lived in a big house with a red door and a green roof and he liked to play all day"
    for i in 0 1 2; do
        echo "{\"id\":$i,\"prompt\":\"$text $i\",\"raw\":true,\"beams\":3,\"n\":3,\"max_tokens\":50,\"ignore_eos\":true}"
    done >jobs
    for dir in '' '--kv-dir kd'; do
        # shellcheck disable=SC2086
        "$QUILL" batch -q -m builtin -c 96 --kv-mem 400K -np 3 $dir jobs >out
        [ "$(grep -c '"finish_reason":"length"' out)" -eq 3 ]
    done
}

@test "beams without a token are choices, too" {
    echo '{"raw":true,"prompt":"hi","beams":2,"max_tokens":0,"n":2}' | "$QUILL" batch >out
    field '[(c["text"], c["score"], c["finish_reason"]) for c in j["choices"]] == [("", None, "length")] * 2' <out | grep -qx True
}

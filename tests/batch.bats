#!/usr/bin/env bats
# batch.bats: quill batch as a shell meets it: pipes that stay open, readers that leave, signals, broken lines.

load rig/helpers

models() {
    "$MAKE_TINY" "$TINY/base.gguf" seed=1 ctx=512
    export QUILL_MODEL="$TINY/base.gguf"
}

job() { # job ID TOKENS: a line
    printf '{"id":"%s","prompt":"hello","max_tokens":%d,"ignore_eos":true}\n' "$1" "$2"
}

has() { # has PATTERN FILE: a line like it comes, within 60 seconds
    within 60 grep -q "$1" "$2"
}

@test "a job's answer is that of its prompt alone" {
    echo '{"prompt":"hello","max_tokens":12,"seed":7,"temperature":0.9}' | "$QUILL" batch >out
    "$QUILL" hello -n 12 --seed 7 --temp 0.9 --json </dev/null >alone
    [ "$(sed 's/.*"text":"\([^"]*\)".*/\1/' out)" = "$(sed 's/.*"text":"\([^"]*\)".*/\1/' alone)" ]
}

@test "a wrong line is an error that names it, and the other jobs are answered" {
    { job a 3; echo '{"id":"b","prompt"'; echo; job c 3; } >jobs
    run -2 "$QUILL" batch jobs
    [ "$(grep -c '"text"' <<<"$output")" -eq 2 ]
    grep -q '"line":2,"error":{"code":2' <<<"$output"
    grep -q '^quill: batch: 1 of 3 jobs failed; the first: line 2: ' <<<"$output"
}

@test "a batch reuses the KV that an earlier batch left in --kv-dir" {
    for i in 1 2 3 4; do
        printf '{"prompt":"a beginning that all of them have, and that is longer than a block, then %d","max_tokens":40,"greedy":true}\n' $i
    done >jobs
    strip() { sed 's/"cached_tokens.*//' | sort; }
    for flags in '' '-ctk q8_0 -ctv q4_0'; do
        # shellcheck disable=SC2086
        "$QUILL" batch --isa scalar $flags jobs | strip >want
        for cached in 0 32; do
            # shellcheck disable=SC2086
            "$QUILL" batch --isa scalar $flags --keep-order --kv-dir kv -v jobs >out 2>errors
            head -1 out | grep -q "\"cached_tokens\":$cached,"
            grep -q '^KV dir     ' errors
            strip <out | cmp - want
        done
    done
}

@test "prompts share beginnings in a model with recurrent layers, also if the first one was alone" {
    "$MAKE_TINY" recurrent.gguf arch=qwen35 ctx=65536 # regular checkpoints are thousands of tokens apart
    common="$(printf 'words %.0s' {1..40})"
    for i in 1 2 3 4 5 6; do echo "{\"id\":$i,\"prompt\":\"$common$i$common\",\"max_tokens\":2}"; done >jobs
    cached() { jq -s -r 'sort_by(.id) | map(.usage.cached_tokens) | join(" ")' "$1"; }
    "$QUILL" batch -m recurrent.gguf --raw jobs >out
    [ "$(cached out)" = "0 160 160 160 160 160" ]
    mkfifo pipe
    "$QUILL" batch -m recurrent.gguf --raw <pipe >out &
    exec 9>pipe
    head -1 jobs >&9
    has '"id":1' out
    tail -5 jobs >&9
    exec 9>&-
    wait $!
    [ "$(cached out)" = "0 0 160 160 160 160" ]
}

@test "more sequences than a step has rows are not planned" {
    "$QUILL" batch -np 40 -ub 8 -v <<<'{"prompt":"a","max_tokens":1}' >out 2>errors
    grep -q 'note: -np 40: a step has at most 8 rows (-ub), one for each sequence' errors
}

@test "jobs from a file, from -f and from stdin give the same answers" {
    for i in 1 2 3; do job $i 4; done >jobs
    strip() { sed 's/,"queue_ms.*//' | sort; }
    "$QUILL" batch --seed 1 jobs | strip >out
    "$QUILL" batch --seed 1 -f jobs | strip | cmp - out
    "$QUILL" batch --seed 1 <jobs | strip | cmp - out
    "$QUILL" batch --seed 1 - <jobs | strip | cmp - out
    "$QUILL" batch --seed 1 --static -np 2 --keep-order jobs | strip | cmp - out
}

@test "a job is answered while the pipe stays open, and a late short job before an early long one" {
    mkfifo in
    "$QUILL" batch -t 1 --isa scalar <in >out &
    pid=$!
    exec 5>in
    job first 3 >&5
    has '"first"' out
    job long 480 >&5
    job late 5 >&5
    has '"late"' out
    job called-off 500 >&5
    echo '{"cancel":"called-off"}' >&5
    exec 5>&-
    wait "$pid"
    [ "$(sed 's/^{"id":"\([a-z-]*\)".*/\1/' out | sed 1d | head -1)" != long ]
    [ "$(wc -l <out)" -eq 4 ]
    grep '"called-off"' out | grep -q '"finish_reason":"interrupt"'
}

@test "a reader of stdout that exits ends the run without a message" {
    for i in $(seq 200); do job "$i" 20; done >jobs
    "$QUILL" batch jobs 2>errors | head -1 >out
    [ "${PIPESTATUS[0]}" -eq 0 ]
    [ "$(wc -l <out)" -eq 1 ]
    [ ! -s errors ]
}

@test "an endless input is read as fast as it is answered" {
    yes "$(job x 3)" | "$QUILL" batch -np 4 -v 2>errors | head -100 >out
    [ "$(wc -l <out)" -eq 100 ]
    answered=$(sed -n 's/^jobs       \([0-9]*\) answered.*/\1/p' errors)
    [ "$answered" -lt 200 ] # what was read ahead is little
}

@test "a stdout that cannot be written is exit 6" {
    [ -w /dev/full ] || skip "no /dev/full"
    job a 2 >jobs
    code=0
    "$QUILL" batch jobs >/dev/full 2>errors || code=$?
    [ "$code" -eq 6 ]
    grep -q 'stdout' errors
}

@test "answers that could not be written are exit 6, also after SIGINT" {
    [ -w /dev/full ] || skip "no /dev/full"
    for i in $(seq 8); do job "$i" 400; done >jobs
    hears_signals "$QUILL" batch -np 2 -t 1 --isa scalar jobs >/dev/full 2>errors &
    pid=$!
    sleep 0.2
    kill -INT "$pid" 2>/dev/null || true
    code=0
    wait "$pid" || code=$?
    [ "$code" -eq 6 ]
    grep -q '^quill: stdout: cannot write' errors
}

@test "SIGINT finishes started jobs and says which lines are left" {
    for i in $(seq 60); do job "$i" 400; done >jobs
    hears_signals "$QUILL" batch -np 2 -t 1 --isa scalar jobs >out 2>errors &
    pid=$!
    has . out
    kill -INT "$pid"
    code=0
    wait "$pid" || code=$?
    [ "$code" -eq 130 ]
    n=$(wc -l <out)
    [ "$n" -ge 1 ]
    [ "$n" -lt 60 ]
    [ "$(grep -c '"finish_reason":"length"' out)" -eq "$n" ]
    grep -q "^quill: batch: stopped by SIGINT: $n jobs answered; not begun: lines $((n + 1))-" errors
}

@test "SIGTERM ends started jobs where they are" {
    for i in $(seq 60); do job "$i" 400; done >jobs
    "$QUILL" batch -np 2 -t 1 --isa scalar jobs >out 2>errors &
    pid=$!
    has . out
    kill -TERM "$pid"
    ended "$pid"
    [ "$status" -eq 143 ]
    n=$(grep -c '"finish_reason":"interrupt"' out)
    grep -q "stopped by SIGTERM: $(($(wc -l <out) - n)) jobs answered, $n cut" errors
}

@test "SIGTERM ends the jobs that an earlier SIGINT let finish" {
    { job short 20; for i in $(seq 60); do job "$i" 480; done; } >jobs # most of the work is left when the first line comes
    hears_signals "$QUILL" batch -np 30 -t 1 --isa scalar jobs >out 2>errors &
    pid=$!
    has . out
    kill -INT "$pid"
    sleep 0.1
    kill -TERM "$pid"
    ended "$pid"
    [ "$status" -eq 143 ]
    grep -q '"finish_reason":"interrupt"' out
    grep -q 'stopped by SIGTERM: .* not begun: lines' errors
}

@test "SIGINT before the first line does not claim that no line is left" {
    mkfifo lines
    hears_signals "$QUILL" batch lines >out 2>errors &
    pid=$!
    exec 5>lines
    sleep 0.5
    kill -INT "$pid"
    ended "$pid"
    exec 5>&-
    [ "$status" -eq 130 ]
    grep -q 'stopped by SIGINT: 0 jobs answered; no line was read' errors
}

@test "--verbose shows times and counts of the batch" {
    for i in $(seq 10); do job "$i" 8; done >jobs
    "$QUILL" batch -v --slo ttft=60000,tpot=60000 jobs 2>errors >/dev/null
    grep -q '^jobs       10 answered, 0 failed' errors
    grep -q '^tokens     80 generated' errors
    grep -q '^goodput    10 of 10 jobs met' errors
    for name in TTFT TPOT ITL latency queueing width KV; do grep -q "^$name " errors; done
    # what was promised is told without it, and nothing else is
    "$QUILL" batch --slo ttft=60000 jobs 2>errors >/dev/null
    grep -q '^goodput    10 of 10 jobs met --slo, [0-9.]* requests/s$' errors
    [ "$(wc -l <errors)" -eq 1 ]
    "$QUILL" batch --slo tpot=0.000001 jobs 2>errors >/dev/null
    grep -q '^goodput    0 of 10 jobs met' errors
    "$QUILL" batch -q --slo ttft=60000 jobs 2>errors >/dev/null
    [ ! -s errors ]
    for wrong in ttft=5, ttft=5,ttft=6 ttft=0 ttft tpot=x; do [ "$(code "$QUILL" batch --slo "$wrong" jobs)" -eq 2 ]; done
}

@test "OpenAI's batch lines are answered in OpenAI's form" {
    echo '{"custom_id":"r","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"hi","max_tokens":3}}' |
        "$QUILL" batch >out
    grep -q '"custom_id":"r","response":{"status_code":200' out
    grep -q '"object":"text_completion"' out
    grep -q '"usage":{"prompt_tokens":[0-9]*,"completion_tokens":[0-9],' out
}

@test "the tokens of a completion have names of their own, also those that are no text by themselves" {
    "$MAKE_TINY" bytes.gguf arch=llama template=chatml tokens=llama seed=3 ctx=512
    for bias in '{}' '{"3":100}'; do # token 3 is the byte 0
        echo "{\"custom_id\":\"b\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"hi\",\"max_tokens\":40,\"logprobs\":5,
            \"seed\":1,\"ignore_eos\":true,\"logit_bias\":$bias}}" | tr -d '\n' | "$QUILL" batch -m bytes.gguf --isa scalar >out
        python3 - "$bias" <<'END'
import json, sys
log = json.load(open("out"))["response"]["body"]["choices"][0]["logprobs"]
assert len(log["tokens"]) == len(log["token_logprobs"]) == 40
for name, p, top in zip(log["tokens"], log["token_logprobs"], log["top_logprobs"]):
    assert len(top) == 5 and "\ufffd" not in name + "".join(top), (name, top)
    assert list(top.values()) == sorted(top.values(), reverse=True), top
    assert abs(top.get(name, p) - p) < 1e-6, (name, p, top)
if sys.argv[1] == "{}":
    assert sum(name.startswith("bytes:\\x") for name in log["tokens"]) > 5
else:
    assert set(log["tokens"]) == {"bytes:\\x00"}, log["tokens"]
END
    done
}

@test "of several tokens with one name the likeliest is shown" {
    echo '{"url":"/v1/completions","body":{"prompt":"hi","max_tokens":100,"logprobs":50,"seed":1,"ignore_eos":true}}' |
        "$QUILL" batch --isa scalar >out
    python3 - <<'END'
import json
tops = json.load(open("out"))["response"]["body"]["choices"][0]["logprobs"]["top_logprobs"]
assert any(len(top) < 50 for top in tops) # 50 tokens with fewer names
for top in tops:
    assert list(top.values()) == sorted(top.values(), reverse=True), top
END
}

@test "tokens and slots are counted: from the cache, unused, drafted" {
    prompt="$(printf 'x%.0s' {1..60})"
    for id in a b; do
        echo "{\"custom_id\":\"$id\",\"body\":{\"prompt\":\"$prompt\",\"max_tokens\":2,\"ignore_eos\":true}}"
    done >jobs
    "$QUILL" batch -v -np 1 --kv-block 16 jobs >out 2>errors
    [ "$(jq .response.body.usage.prompt_tokens_details.cached_tokens out | xargs)" = "0 48" ]
    unwrapped <errors >lines
    grep -q ' 124 in prompts, 48 of these from the cache (hit rate 38.7%)' lines
    grep -q ' at most 4 of [0-9]* blocks of 16 slots in use, 2.3% of their slots were unused' lines
    # three answers, each with 30 tokens: the first of each comes with the prompt
    job='{"prompt":"ab ab ab ab","n":3,"max_tokens":30,"ignore_eos":true}'
    printf '%s\n' "$job" "{\"custom_id\":\"a\",\"url\":\"/v1/completions\",\"body\":$job}" |
        "$QUILL" batch --speculate ngram --keep-order >out
    for form in .speculation .response.body.quill.speculation; do
        jq -s -e "map($form | values) | length == 1 and (.[0] | .steps * .tokens_per_step | . > 86.5 and . < 87.5)" out
    done
    jq -s -e '.[1].response.body.usage | .completion_tokens == 90 and .total_tokens == .prompt_tokens + 90' out
}

@test "with --rate the times of a job begin with its arrival, also while it waits to be read" {
    for i in $(seq 30); do job "$i" 20; done >jobs # all arrive within a moment, and are answered one after the other
    "$QUILL" batch --rate 1e6 -np 1 --keep-order jobs >out
    python3 - <<'END'
import json
times = [json.loads(line) for line in open("out")]
decoding = sum(t["latency_ms"] - t["ttft_ms"] for t in times[:-1])
assert times[-1]["ttft_ms"] > 0.9 * decoding, (times[-1]["ttft_ms"], decoding)
END
}

@test "a stopped batch does not count a line that it has read ahead" {
    for i in 1 2 3; do job "$i" 20; done >jobs
    # with this seed the first job arrives after 13 milliseconds and the second after 20 minutes
    hears_signals "$QUILL" batch --rate 0.001 --seed 4524 jobs >out 2>errors </dev/null &
    pid=$!
    has '"line":1' out
    kill -INT "$pid"
    ended "$pid"
    [ "$status" -eq 130 ]
    grep -q 'stopped by SIGINT: 1 jobs answered; not read: the lines after line 1$' errors
}

@test "a cancel line is obeyed while there is no room for the lines before it" {
    { for id in a b c d e f; do job "$id" 400; done; echo '{"cancel":"a"}'; echo '{"cancel":"f"}'; } >jobs
    for order in "" --keep-order; do
        "$QUILL" batch -np 2 -t 1 $order jobs >out
        [ "$(wc -l <out)" -eq 6 ]
        for id in a f; do grep -q "^{\"id\":\"$id\",.*\"finish_reason\":\"interrupt\"" out; done
        [ "$(grep -c '"finish_reason":"length"' out)" -eq 4 ]
    done
}

@test "jobs that wait for the memory of a cancelled job are answered as without it" {
    needs_builtin
    long=$(printf 'Once upon a time there was a girl %.0s' 1 2 3 4 5 6 7 8 9)
    words="kings sat on a stone and said to all the people of the hill that there will be a feast with bread and soup and songs about the moon and the river and the birds and the mill, for everyone who came from far away"
    jobs() { # jobs SECONDS: a job that needs nearly all memory, three that wait for it; it is cancelled after that time
        printf '{"id":0,"raw":true,"greedy":true,"ignore_eos":true,"max_tokens":60,"prompt":"%s"}\n' "$long"
        for i in 1 2 3; do
            printf '{"id":%d,"raw":true,"greedy":true,"max_tokens":5,"prompt":"%d %s"}\n' "$i" "$i" "$words"
        done
        [ "$1" = never ] || { sleep "$1" && echo '{"cancel":0}'; }
    }
    answers() { jobs "$1" | "$QUILL" batch -m builtin --isa scalar -t 1 -c 128 --kv-mem 400k >out && sed -n 's/,"usage.*//; /"id":[123]/p' out | sort; }
    answers never >want
    [ "$(wc -l <want)" -eq 3 ]
    for seconds in 0.05 0.1 0.15; do answers $seconds | cmp - want; done
}

@test "a cancelled job does not meet --slo" {
    { job a 400; job b 2; echo '{"cancel":"a"}'; } >jobs
    "$QUILL" batch --slo ttft=60000 jobs 2>errors >out
    grep -q '"finish_reason":"interrupt"' out
    grep -q '^goodput    1 of 2 jobs met' errors
}

@test "on a terminal a progress line is shown and erased at the end" {
    needs_terminal
    echo '{"prompt":7}' >jobs
    echo >>jobs
    for i in $(seq 500); do job "$i" 5; done >>jobs
    unset TERM
    drive <<'EOF'
spawn sh -c 'exec $QUILL batch --rate 4 --seed 1 jobs >out'
expect " of 501 done, 1 failed, "
expect " open, "
expect " tok/s, "
expect " left"
signal INT
expect "\r\e[Kquill: batch: "
expect "stopped by SIGINT: "
exit -2
EOF
    [ -s out ]
    not grep -q "open, " out
    head -8 jobs >few # more than the second after which it would show
    for flags in -q ''; do
        export flags TERM=dumb
        [ -n "$flags" ] && unset TERM
        drive <<'EOF'
spawn sh -c '$QUILL batch $flags --rate 4 --seed 1 few >out; echo "that was it"'
expect "that was it"
never "open"
exit 0
EOF
    done
}

@test "the progress line takes one row, also of a narrow terminal" {
    needs_terminal
    for i in $(seq 500); do job "$i" 5; done >jobs
    unset TERM
    drive --show >shown <<'EOF'
window 24 30
spawn sh -c 'exec $QUILL batch --rate 4 --seed 1 jobs >out'
expect " of 500 done, 0 failed, "
signal INT
expect "stopped by SIGINT: "
exit -2
EOF
    tr '\r' '\n' <shown | sed -n 's/\x1b\[K.*//; / done, /p' | sort -u >lines
    [ -s lines ]
    [ "$(wc -L <lines)" -lt 30 ]
}

@test "the first Ctrl-C says what it waits for, the second writes unfinished answers" {
    for i in $(seq 5); do job "$i" 20000; done >jobs
    job short 1 >>jobs
    hears_signals "$QUILL" batch -c 32k jobs >out 2>errors </dev/null &
    pid=$!
    has short out
    kill -INT "$pid"
    has '^quill: batch: finishing 5 jobs; Ctrl-C again stops$' errors
    [ "$(wc -l <out)" -eq 1 ]
    kill -INT "$pid"
    ended "$pid"
    [ "$status" -eq 130 ]
    [ "$(wc -l <out)" -eq 6 ]
    [ "$(grep -c '"finish_reason":"interrupt"' out)" -eq 5 ]
    grep -q '^quill: batch: stopped by SIGINT: ' errors
}

@test "--resume continues an interrupted run" {
    for i in $(seq 6); do job "$i" 4; done >jobs
    echo '{"prompt":"no id","max_tokens":2}' >>jobs
    job same 3 >>jobs
    job same 3 >>jobs
    "$QUILL" batch --seed 5 jobs | sort >want
    # the first two answers, one of the two that share an id, one that a signal cut, and half a line
    "$QUILL" batch --seed 5 --keep-order jobs >all
    { sed -n '1,2p;8p' all; sed -n 3p all | sed 's/"finish_reason":"[a-z]*"/"finish_reason":"interrupt"/'; sed -n 4p all | head -c 40; } >out
    "$QUILL" batch --seed 5 --resume out jobs >stdout 2>errors
    [ ! -s stdout ]
    [ "$(cat errors)" = "quill: note: out has 3 answers; their jobs are skipped" ]
    grep -v '"interrupt"' out | sed 's/"queue_ms.*//; s/"usage.*"seed/"seed/' | sort >found
    sed 's/"queue_ms.*//; s/"usage.*"seed/"seed/' want | cmp - found
    # nothing is left to do
    cp out before
    "$QUILL" batch --seed 5 --resume out jobs 2>/dev/null
    cmp before out
    # nor where an editor has put a byte order mark in front
    { printf '\xef\xbb\xbf'; cat jobs; } >marked
    "$QUILL" batch --seed 5 --resume out marked 2>/dev/null
    cmp before out
    # a new file, OpenAI's lines, and failures are tried again
    echo '{"custom_id":"r","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"hi","max_tokens":3}}' >jobs
    echo '{"id":"bad","prompt":7}' >>jobs
    for times in 2 3; do
        run -2 "$QUILL" batch -q --resume new jobs
        [ "$(wc -l <new)" -eq "$times" ]
    done
    [ "$(grep -c '"custom_id":"r"' new)" -eq 1 ]
    run -6 "$QUILL" batch --resume ./no/such jobs
}

@test "--resume expects a regular file" {
    mkfifo pipe
    for file in pipe /dev/null; do
        run -2 --separate-stderr timeout 20 "$QUILL" batch --resume "$file" </dev/null
        [ "$stderr" = "quill: --resume $file: a regular file expected, found something else" ]
    done
}

@test "a pool that memory limits announces a context that one sequence can use, also with windows" {
    "$MAKE_TINY" windows.gguf arch=gemma3 type=F16 ctx=8192 u32:gemma3.attention.sliding_window=512
    for n in 200 400 650; do
        prompt="$(head -c "$n" /dev/zero | tr '\0' a)"
        echo "{\"prompt\":\"$prompt\",\"raw\":true,\"ignore_eos\":true,\"max_tokens\":20}"
    done >long
    for memory in 100k 300k 500k 600k 800k; do
        "$QUILL" batch -m windows.gguf -np 4 --kv-mem $memory -v long >out 2>errors || [ $? -eq 5 ]
        context=$(sed -n 's/^context *\([0-9]*\),.*/\1/p' errors)
        [ "$(wc -l <out)" -eq 3 ]
        # each job fills the context or has its 20 tokens; the last one needs no slot
        while read -r new all; do [ $((new + all)) -ge $((all + 20 < context ? all + 20 : context + 1)) ]; done < <(
            sed -n 's/.*"prompt_tokens":\([0-9]*\),.*"completion_tokens":\([0-9]*\).*/\2 \1/p' out)
    done
    [ "$(grep -c '"completion_tokens":20' out)" -eq 3 ]
}

@test "--resume changes no file that has no answers in it" {
    job 1 1 >jobs
    job 2 1 >more
    printf 'keep me\nlast line without newline' >notes
    printf 'one line' >one
    printf '{"id":3,"prompt":"a job"}\n' >other
    printf '{"text":"of a data set"}\n' >texts
    printf '[1]\n' >list
    for file in notes one other texts list more; do
        cp "$file" before
        run -2 --separate-stderr "$QUILL" batch --resume "$file" jobs
        [ "$stderr" = "quill: --resume $file: line 1: an answer of quill batch expected, found something else; the file was not changed" ]
        cmp "$file" before
    done
    { "$QUILL" batch -q jobs; echo; echo half; } >damaged
    run -2 "$QUILL" batch --resume damaged more
    [[ "$output" == *"damaged: line 3: "* ]]
    { head -n 2 damaged; printf '{'; } >good # a blank line, and one byte of the next answer
    "$QUILL" batch -q --resume good more
    [ "$(grep -c finish_reason good)" -eq 2 ]
    [ "$(wc -l <good)" -eq 3 ]
}

@test "answers are not appended to the file of the jobs" {
    job 1 1 >jobs
    cp jobs before
    ln -s jobs link
    for file in jobs link; do
        run -2 "$QUILL" batch --resume "$file" jobs
        [ "$output" = "quill: quill batch: $file: a file other than that of the jobs expected, found the same" ]
        run -2 bash -c '"$0" batch "$1" <jobs >>jobs' "$QUILL" "$([ $file = jobs ] && echo jobs || echo -)"
        [ "$output" = "quill: quill batch: stdout: a file other than that of the jobs expected, found the same" ]
    done
    cmp jobs before
}

@test "--resume knows ids to the last character, and custom_id before id" {
    echo '{"custom_id":"x","id":"own","url":"/v1/completions","body":{"prompt":"a","max_tokens":1}}' >jobs
    printf '{"id":"a\\u0000b","prompt":"a","max_tokens":1}\n' >>jobs
    "$QUILL" batch -q --resume out jobs
    cp out before
    "$QUILL" batch -q --resume out jobs
    cmp out before
    printf '{"id":"a\\u0000c","prompt":"a","max_tokens":1}\n' >other
    "$QUILL" batch -q --resume out other
    [ "$(wc -l <out)" -eq 3 ]
}

@test "--resume: one process at a time writes the file" {
    mkfifo jobs
    "$QUILL" batch -q --resume out jobs &
    exec 9>jobs
    job 1 1 >&9
    has . out
    run -6 "$QUILL" batch -q --resume out </dev/null
    [[ "$output" == "quill: --resume out: a file that no other quill is writing expected; "* ]]
    exec 9>&-
    wait
    "$QUILL" batch -q --resume out </dev/null
    [ "$(wc -l <out)" -eq 1 ]
}

@test "--resume names its file where it cannot be written" {
    for i in 1 2 3; do job "$i" 4; done >jobs
    run -6 bash -c 'ulimit -f 0; exec "$0" batch -q --resume out jobs' "$QUILL"
    [[ "$output" == "quill: out: cannot write "*": File too large" ]]
}

@test "short jobs from a file fill all places" {
    for i in $(seq 300); do echo "{\"prompt\":\"is item $i red?\",\"max_tokens\":3,\"raw\":true,\"ignore_eos\":true}"; done >jobs
    "$QUILL" batch -np 64 -v jobs 2>errors >out
    [ "$(wc -l <out)" -eq 300 ]
    [ "$(sed -n 's/^width .*; \([0-9]*\) steps.*/\1/p' errors)" -le 20 ]
}

@test "--resume removes a cut last line only, and begins a new line" {
    printf '%s\n' '{"id":1,"prompt":"a"}' '{"id":2,"prompt":"b"}' >jobs
    printf '%s\n' '{"id":1,"line":1,"text":"x","finish_reason":"length"}' '{broken' '{"id":7,"line":3,"text":"y","finish_reason":"length"}' >out
    cp out before
    run "$QUILL" batch -q --raw -n 2 --resume out jobs
    [ "$status" -eq 2 ]
    cmp out before
    printf %s '{"id":1,"line":1,"text":"x","finish_reason":"length"}' >out
    "$QUILL" batch -q --raw -n 2 --resume out jobs
    [ "$(jq -c .id out | xargs)" = "1 2" ]
    echo '{"id":2,"line":1,"text":"x","finish_reason":"length"}' >out # an integer counts as the id that it is
    "$QUILL" batch -q --raw -n 2 --resume out jobs
    [ "$(jq -c .id out | xargs)" = "2 1" ]
}

@test "--resume computes a cancelled job of OpenAI's format again" {
    echo '{"id":"batch_req_1","custom_id":"a","response":null,"error":{"code":"batch_cancelled","message":"m"}}' >out
    printf '{"custom_id":"%s","body":{"prompt":"a","max_tokens":2}}\n' a b >jobs
    "$QUILL" batch -q --raw -n 2 --resume out jobs
    [ "$(jq -r .custom_id out | xargs)" = "a a b" ]
}

@test "--slo counts a job whose first token is late as missed" {
    for i in 1 2; do job "$i" 4; done >jobs
    "$QUILL" batch -v --slo ttft=0.0001 jobs 2>errors >out
    grep -q '0 of 2 jobs met' errors
}

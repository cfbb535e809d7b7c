#!/usr/bin/env bats
# cli.bats: the command line as a person in a shell meets it: streams, pipes, files, signals, exit codes.
# QUILL is the binary, MAKE_TINY the maker of random models; QUILL_TEST_DATA adds the texts of trained models.

load rig/helpers

models() {
    "$MAKE_TINY" "$TINY/base.gguf" seed=1 ctx=256
    "$MAKE_TINY" "$TINY/chat.gguf" arch=qwen2 template=chatml ctx=512
    "$MAKE_TINY" "$TINY/other.gguf" "template={{ raise_exception('no') }}"
    export QUILL_MODEL="$TINY/base.gguf"
}

golden() { # golden NAME ARGS...: the greedy text of a trained model
    text="$data/models/golden/$1.greedy.txt"
    shift
    # the longer text is 257 tokens with BOS, so 252 new ones at least
    "$QUILL" --raw --greedy --echo -n 260 "$@" "Once upon a time" >out </dev/null
    head -c "$(stat -c %s "$text")" out | cmp - "$text"
}

@test "stories260K gives llama2.c's text from each of its file formats" {
    needs_data models/stories260K.gguf
    for isa in $(isas); do
        golden stories260K -m "$data/models/stories260K.gguf" --isa "$isa"
        golden stories260K -m "$data/models/stories260K.gguf" --isa "$isa" -ctk f32 -ctv f32
    done
    golden stories260K -m "$data/models/stories260K.gguf" --kv-layout paged --kv-block 8 -ub 3
    golden stories260K -m "$data/models/stories260K.gguf" --no-mmap -t 1
    golden stories260K -m "$data/models/stories260K.bin" -z "$data/models/tok512.bin"
    golden stories260K -m "$data/models/stories260K_v1.bin" -z "$data/models/tok512.bin"
}

@test "TinyStories-656K gives llama2.c's text" {
    needs_data models/TinyStories-656K.F32.gguf
    for isa in $(isas); do golden TinyStories-656K -m "$data/models/TinyStories-656K.F32.gguf" --isa "$isa"; done
    golden TinyStories-656K -m "$data/models/TinyStories-656K.llama2c.bin" -z "$data/models/TinyStories-656K.tok.bin"
}

@test "stdout is the answer and nothing else, and stderr is quiet" {
    "$QUILL" --greedy -n 8 hello >plain 2>errors </dev/null
    [ ! -s errors ]
    [ -s plain ]
    "$QUILL" --greedy -n 8 -v --dump-prompt --dump-tokens hello >verbose 2>/dev/null </dev/null
    cmp plain verbose
    "$QUILL" --greedy -n 8 hello 2>&- </dev/null | cmp - plain
    "$QUILL" --greedy -n 8 --echo hello >echoed </dev/null
    printf hello | cat - plain | cmp - echoed
    "$QUILL" -m "$TINY/chat.gguf" --greedy -n 8 --ignore-eos hello >plain </dev/null
    "$QUILL" -m "$TINY/chat.gguf" --greedy -n 8 --ignore-eos --echo hello >echoed </dev/null
    echo hello | cat - plain | cmp - echoed # a message of a chat has its own line
    "$QUILL" -m "$TINY/chat.gguf" --greedy -n 8 --ignore-eos --echo --json hello </dev/null |
        jq -e '.text | startswith("hello\n") and length > 7'
}

@test "words, -p, -f and stdin are the same prompt" {
    printf hello >prompt
    "$QUILL" --greedy -n 5 --echo hello </dev/null >out.1
    for form in "-p hello" "-f prompt" "--prompt=hello" "--file=prompt" "-- hello"; do
        "$QUILL" --greedy -n 5 --echo $form </dev/null | cmp - out.1
    done
    "$QUILL" --greedy -n 5 --echo <prompt | cmp - out.1
    cat prompt | "$QUILL" --greedy -n 5 --echo | cmp - out.1
    cat prompt | "$QUILL" --greedy -n 5 --echo -f - | cmp - out.1
}

@test "words and a pipe: words, a blank line, then the bytes of stdin" {
    printf ' in \n\\n' | "$QUILL" -n 0 --echo two words >out
    printf 'two words\n\n in \n\\n\n' | cmp - out
    printf ' in \n\\n' | "$QUILL" -n 0 --echo -e 'a\tb\x41' 'c\n' >out
    printf 'a\tbA c\n\n\n in \n\\n\n' | cmp - out
    printf 'x' | "$QUILL" -n 0 --echo --no-stdin words >out
    echo words | cmp - out
    : | "$QUILL" -n 0 --echo words | cmp - out
    "$QUILL" -n 0 --echo words </dev/null | cmp - out
    printf 'a\0b\xe6\xad' >bytes
    "$QUILL" -n 0 --echo --no-newline <bytes | cmp - bytes
}

@test "a mode is the first argument; after -- everything is a prompt" {
    "$QUILL" -n 0 --echo -- bench press tips </dev/null >out
    echo 'bench press tips' | cmp - out
    "$QUILL" -n 0 --echo -- -n 5 --bogus </dev/null >out
    echo '-n 5 --bogus' | cmp - out
    "$QUILL" a -n 0 bench --echo </dev/null >out
    echo 'a bench' | cmp - out
}

@test "each kind of failure has its exit code" {
    [ "$(code "$QUILL" -n 2 hi)" -eq 0 ]
    [ "$(code "$QUILL" --help)" -eq 0 ]
    [ "$(code "$QUILL" bench -h)" -eq 0 ]
    [ "$(code "$QUILL" --version)" -eq 0 ]
    [ "$(code "$QUILL" --bogus hi)" -eq 2 ]
    [ "$(code "$QUILL" batch)" -eq 0 ] # no jobs, no answers
    [ "$(code "$QUILL")" -eq 2 ]
    [ "$(code "$QUILL" -m missing.gguf hi)" -eq 3 ]
    [ "$(code "$QUILL" -m . hi)" -eq 3 ]
    [ "$(code "$QUILL" --device cuda hi)" -eq 3 ]
    [ "$(code "$QUILL" -ngl 1 hi)" -eq 3 ]
    [ "$(code env QUILL_DEVICE=cuda "$QUILL" hi)" -eq 3 ]
    [ "$(code env QUILL_DEVICE=cuda "$QUILL" --device cpu -ngl 0 -n 1 hi)" -eq 0 ]
    [ "$(code env QUILL_DEVICE=cpu "$QUILL" -ngl 1 hi)" -eq 3 ] # a flag over the environment, as if that said nothing
    [ "$(code "$QUILL" --device cpu -ngl 1 hi)" -eq 2 ]
    [ "$(code "$QUILL" bench --type Q9 -p 1 -n 1 -r 1)" -eq 2 ]
    [ "$(code "$QUILL" --chat hi)" -eq 3 ]
    [ "$(code "$QUILL" -m "$TINY/other.gguf" hi)" -eq 3 ]
    [ "$(code "$QUILL" -m "$TINY/other.gguf" --raw -n 1 hi)" -eq 0 ]
    [ "$(code "$QUILL" -c 512M -ctk f32 hi)" -eq 4 ]
    [ "$(code "$QUILL" --kv-mem 1k -c 200 hi)" -eq 4 ]
    [ "$(code "$QUILL" -c 4 a prompt that is longer)" -eq 5 ]
    [ "$(code "$QUILL" -f missing.txt)" -eq 6 ]
}

# answers_as NAME ARGS...: one token, from the model that gives itself this name
answers_as() {
    local expected="$1"
    shift
    "$QUILL" -n 1 --json "$@" hi </dev/null | grep -qF "\"model\":\"$expected\""
}

@test "without -m the built-in model answers" {
    needs_builtin
    answers_as "$name"
    QUILL_MODEL= answers_as "$name"
    QUILL_MODEL="$TINY/base.gguf" answers_as "$TINY/base.gguf"
    answers_as "$TINY/base.gguf" -m "$TINY/base.gguf"
    QUILL_MODEL="$TINY/base.gguf" answers_as "$name" -m builtin
    cp "$TINY/base.gguf" builtin
    answers_as ./builtin -m ./builtin
    answers_as "$name" --mlock --check-tensors
}

@test "every mode accepts the built-in model" {
    needs_builtin
    [[ "$name" == *"(built into the binary)" ]]
    "$QUILL" inspect | grep -qF "file        $name, GGUF v"
    "$QUILL" inspect builtin --json | grep -qF "{\"file\":\"$name\""
    ids="$("$QUILL" tokenize --ids hello </dev/null)"
    "$QUILL" logits --tokens "${ids// /,}" >logits
    [ -s logits ]
    "$QUILL" perplexity --json -p "hello hello" | grep -qF "\"model\":\"$name\""
    "$QUILL" bench -q -p 4 -n 2 -r 1 -o json | grep -qF "\"file\": \"$name\""
    "$QUILL" bench -q --shape dim=64,layers=1,heads=2,ffn=64,vocab=64 -p 4 -n 2 -r 1 -o json | not grep -qF "$name"
    printf 'hello\n' | "$QUILL" -i -v -n 1 2>&1 >out | grep -qF "$name"
    [ "$(code "$QUILL" --no-mmap hi)" -eq 2 ]
    [ "$(code "$QUILL" -z tok.bin hi)" -eq 2 ]
}

@test "quill without arguments on a terminal chats with the built-in model" {
    needs_builtin
    script -qec true /dev/null </dev/null >/dev/null 2>&1 || skip "no script(1), or no pseudo-terminal, to test with"
    printf '/exit\n' | TERM=dumb script -qec "$QUILL" /dev/null >out
    grep -q '/help lists commands' out
}

@test "a stripped binary still has its built-in model" {
    needs_builtin
    needs strip
    cp "$QUILL" stripped
    strip stripped
    "$QUILL" inspect --json >whole
    ./stripped inspect --json | cmp - whole
}

@test "a binary without a built-in model asks for -m" {
    "$QUILL" --version | grep -q '^model: none$' || skip "there is a model in this binary; NO_MODEL=1 leaves it out"
    [ "$(code "$QUILL" -m builtin hi)" -eq 3 ]
    unset QUILL_MODEL
    for mode in "" inspect tokenize logits perplexity; do
        run "$QUILL" $mode hi </dev/null
        if [ "$mode" = inspect ]; then run "$QUILL" inspect; fi
        [ "$status" -eq 2 ]
        [[ "$output" == "quill: no model: give one with -m FILE or set QUILL_MODEL; "* ]]
    done
    [ "$(code "$QUILL" bench)" -eq 2 ]
}

@test "a failure is one line that starts with quill:" {
    for args in "--bogus" "-n x" "-m missing.gguf hi" "-f missing" "--chat hi" "-c 3 long prompt" "--device cuda x"; do
        "$QUILL" $args >out 2>errors </dev/null && return 1
        [ ! -s out ]
        [ "$(wc -l <errors)" -eq 1 ]
        grep -q '^quill: ' errors
    done
}

@test "a prompt that is too long names the count, the limit and the -c that fits" {
    run "$QUILL" -c 8 "a prompt that is longer than that" </dev/null
    [ "$status" -eq 5 ]
    [[ "$output" =~ "has "[0-9]+" tokens, the context 8; shorten the prompt, or start with -c "([0-9]+) ]]
    [ "$(code "$QUILL" -n 1 -c "${BASH_REMATCH[1]}" "a prompt that is longer than that")" -eq 0 ]
}

@test "a KV cache that does not fit comes with the budget and flags that make it fit" {
    run "$QUILL" -c 512M -ctk f32 hi </dev/null
    [ "$status" -eq 4 ]
    [ "${#lines[@]}" -eq 5 ]
    [[ "${lines[0]}" == *"; try -c "* ]]
    [[ "${lines[1]}" == *weights* && "${lines[2]}" == *"KV cache"* && "${lines[3]}" == *scratch* ]]
    [[ "${lines[4]}" == *available* ]]
    # what is named fits, from far too much to a little too much
    for size in 512M 256M 128M 64M 32M 16M; do
        "$QUILL" --dry-run -c $size -ctk f32 -ctv f32 2>errors && break
        "$QUILL" --dry-run -ctk f32 -ctv f32 $(sed -n 's/.*; try \(-c [0-9]*\).*/\1/p' errors)
        types="$(sed -n 's/.* or \(-ctk .*\)/\1/p' errors)"
        [ -z "$types" ] || "$QUILL" --dry-run -c $size $types
    done
    "$QUILL" --dry-run >out 2>errors
    [ ! -s out ]
    [ "$(wc -l <errors)" -eq 4 ]
}

@test "a reader of stdout that exits ends the run without a message" {
    "$QUILL" -q --ignore-eos -n -1 -c 4096 hello </dev/null 2>errors | head -c 5 >/dev/null
    [ "${PIPESTATUS[0]}" -eq 0 ]
    [ ! -s errors ]
    "$QUILL" -q --ignore-eos --jsonl -n -1 -c 4096 hello </dev/null 2>errors | head -n 1 >/dev/null
    [ "${PIPESTATUS[0]}" -eq 0 ]
    [ ! -s errors ]
    "$QUILL" --help | head -n 1 >/dev/null
    [ "${PIPESTATUS[0]}" -eq 0 ]
}

@test "a stdout that cannot be written is exit 6" {
    [ -e /dev/full ] || skip "no /dev/full"
    run sh -c '"$@" >&- </dev/null' sh "$QUILL" -n 3 --ignore-eos hi
    echo "status $status: $output" # shown if the test fails
    [ "$status" -eq 6 ]
    [[ "$output" == "quill: stdout: cannot write "* ]]
    for args in "-n 3 --ignore-eos hi" "-n 3 --json hi" "--help" "-h" "--completions bash" "--completions fish" "--man" "tokenize hi" "inspect" \
        "bench -q -p 4 -n 2 -r 1"; do
        run sh -c '"$@" >/dev/full </dev/null' sh "$QUILL" $args
        [ "$status" -eq 6 ]
        [[ "$output" == "quill: stdout: "* ]]
    done
}

# interrupted SIGNAL FILE ARGS...: quill, sent the signal once there is something in FILE; its exit code in $status
interrupted() {
    local signal="$1" sign="$2" pid i
    shift 2
    : >out
    : >errors
    hears_signals "$QUILL" "$@" >out 2>errors </dev/null &
    pid=$!
    for ((i = 0; i < 300; i++)); do [ -s "$sign" ] && break || sleep 0.05; done
    sleep 0.2
    kill -s "$signal" "$pid"
    status=0
    wait "$pid" || status=$?
}

@test "SIGINT, SIGTERM and SIGHUP flush what was generated" {
    for pair in INT:130 TERM:143 HUP:129; do
        interrupted "${pair%:*}" out -q --ignore-eos -n -1 -c 4M hello
        [ "$status" -eq "${pair#*:}" ]
        [ ! -s errors ]
        interrupted "${pair%:*}" errors -v --ignore-eos --json -n -1 -c 4M hello
        [ "$status" -eq "${pair#*:}" ]
        grep -q '^{"text":".*"finish_reason":"interrupt"' out
    done
}

@test "a SIGINT that was ignored at the start stays ignored" {
    sh -c 'trap "" INT; exec "$@"' sh "$QUILL" -n 3000 -c 4k --ignore-eos -v hello >out 2>errors </dev/null &
    pid=$!
    for ((i = 0; i < 300; i++)); do [ -s out ] && break || sleep 0.05; done
    kill -INT "$pid"
    ended "$pid"
    [ "$status" -eq 0 ]
}

@test "a signal ends quill although the reader of stdout has stopped reading" {
    mkfifo stalled
    exec 5<>stalled
    timeout 0.2 cat /dev/zero >&5 || true # it takes no more
    for pair in INT:130 TERM:143 HUP:129; do
        for mode in "-n 5 hello" "-n 5 --json hello" "batch jobs" "prefill --kv-out - hello"; do
            echo '{"id":1,"prompt":"hi","max_tokens":5}' >jobs
            hears_signals "$QUILL" $mode -v >stalled 2>errors </dev/null 5<&- &
            pid=$!
            for ((i = 0; i < 300; i++)); do [ -s errors ] && break || sleep 0.05; done
            sleep 0.3
            kill -s "${pair%:*}" "$pid"
            ended "$pid"
            [ "$status" -eq "${pair#*:}" ]
            not grep '^quill: stdout' errors
        done
    done
    exec 5<&-
}

@test "a signal ends a running chat command and the chat" {
    mkfifo lines silent
    exec 5<>lines
    for pair in INT:130 TERM:143 HUP:129; do
        hears_signals "$QUILL" -i -v >out 2>errors <lines 5<&- &
        pid=$!
        for ((i = 0; i < 300; i++)); do [ -s errors ] && break || sleep 0.05; done
        echo '/read silent' >&5
        sleep 0.3
        kill -s "${pair%:*}" "$pid"
        ended "$pid"
        [ "$status" -eq "${pair#*:}" ]
        not grep silent errors
    done
    exec 5<&-
}

@test "a line that a signal cuts is no message and no job" {
    for mode in "-i --greedy" batch; do
        mkfifo cut
        hears_signals "$QUILL" $mode -v >out 2>errors <cut &
        pid=$!
        exec 5>cut
        printf '{"prompt":"What is 2 plus 3?"' >&5
        for ((i = 0; i < 300; i++)); do [ -s errors ] && break || sleep 0.05; done
        sleep 0.2
        kill -STOP "$pid" # the signal and the end of the input come at once
        kill -INT "$pid"
        exec 5>&-
        kill -CONT "$pid"
        ended "$pid"
        [ "$status" -eq 130 ]
        [ ! -s out ]
        rm cut
    done
}

@test "SIGINT stops a long prefill between two chunks" {
    head -c 300000 /dev/zero | tr '\0' 'x' >long
    interrupted INT errors -v -c 1M -ub 16 --isa scalar --json -f long
    [ "$status" -eq 130 ]
    grep -q '"finish_reason":"interrupt".*"completion_tokens":0' out
    grep -q '"prefill_ms":null.*"total_ms":null' out # times that nobody has measured
    grep -qE '^prefill +stopped after [0-9]+ of [0-9]+ tokens, 0 cached$' errors
    grep -qE '^total +0 tokens, interrupt$' errors
}

@test "a long prefill of one step shows its progress between layers" {
    needs_terminal
    "$MAKE_TINY" deep.gguf n_layers=40 seed=1 ctx=4096
    head -c 3000 /dev/zero | tr '\0' 'x' >long
    unset TERM
    drive <<'EOF'
spawn sh -c 'exec $QUILL -m deep.gguf -ub 4k --isa scalar -f long'
expect "\rprefill "
signal INT
expect "\r\e[K"
exit -2
EOF
}

@test "stop strings are not printed, whatever tokens they lie in" {
    "$QUILL" --greedy --no-newline -n 40 hello </dev/null >whole
    stop="$(head -c 14 whole | tail -c 4)"
    [[ "$stop" == *[[:print:]]* ]]
    "$QUILL" --greedy --no-newline -n 40 --stop "$stop" -r "never there" hello </dev/null >cut
    [ "$(stat -c %s cut)" -lt "$(stat -c %s whole)" ]
    head -c "$(stat -c %s cut)" whole | cmp - cut
    not grep -qaF -- "$stop" cut
}

@test "--json prints one object with the documented fields" {
    "$QUILL" --json --greedy -n 6 --logprobs 2 hello </dev/null >out
    [ "$(wc -l <out)" -eq 1 ]
    for key in text finish_reason prompt_tokens cached_tokens completion_tokens load_ms prefill_ms ttft_ms tpot_ms itl_ms \
        p50 p99 decode_ms prefill_tps decode_tps total_ms prefill_flops decode_flops prefill_bytes decode_bytes \
        prefill_tflops decode_gbs seed model id piece bytes logprob top; do
        grep -q "\"$key\":" out
    done
    "$QUILL" --jsonl --greedy -n 6 hello </dev/null >lines
    [ "$(wc -l <lines)" -eq 7 ]
    tail -n 1 lines | grep -q '"finish_reason":"length"'
    needs python3
    python3 - out lines <<'PYTHON'
import json, sys
j = json.load(open(sys.argv[1]))
assert abs(j["total_ms"] - (j["ttft_ms"] + j["tpot_ms"] * (j["completion_tokens"] - 1))) < 1e-9, j
assert j["prefill_flops"] > 0 and j["decode_bytes"] > 0 and j["decode_gbs"] > 0 and j["prefill_tflops"] > 0
assert j["completion_tokens"] == 6 == len(j["tokens"])
for t in j["tokens"]:
    assert t["logprob"] <= 0 and len(t["top"]) == 2
    assert t["logprob"] <= t["top"][0]["logprob"] + 1e-6
all_lines = [json.loads(line) for line in open(sys.argv[2])]
assert all_lines[-1]["text"].startswith("".join(t["text"] for t in all_lines[:-1]))
PYTHON
}

@test "JSON output is valid UTF-8 even where the answer is not" {
    printf 'a\xff\0\xe6\xad' | "$QUILL" --json --echo -n 20 --temp 5 -s 3 >out
    needs python3
    python3 -c 'import json; json.loads(open("out", "rb").read().decode("utf-8"))'
}

@test "the total of --verbose is TTFT and TPOT" {
    "$QUILL" -v -n 7 --ignore-eos hello >/dev/null 2>errors </dev/null
    for word in model backend context memory weights "KV cache" scratch available template end sampling seed load prefill decode \
        TTFT TPOT ITL total TFLOP/s GB/s FLOP/byte blocks; do
        grep -q -- "$word" errors
    done
    [ "$(wc -L <errors)" -le 80 ] || [ "$(grep -v gguf errors | wc -L)" -le 80 ] # the path alone may be longer
    awk '/^latency/ { gsub(",", ""); ttft = $3; tpot = $6 }
         /^total/ { total = $2; n = $9; sub(",", "", n); d = total - ttft - tpot * n; exit !(d < 1e-6 && d > -1e-6 && n == 6) }' errors
    # one token has no gap, and no token no time to the first
    "$QUILL" -v -n 1 hello >/dev/null 2>errors </dev/null
    grep -Eq '^latency +TTFT [0-9.]+ ms$' errors
    grep -Eq '^total +[0-9.]+ ms = TTFT, 1 token, length$' errors
    "$QUILL" -v -n 0 hello >/dev/null 2>errors </dev/null
    not grep -q '^latency' errors
    grep -Eq '^total +[0-9.]+ ms, 0 tokens, length$' errors
    "$QUILL" --json -n 1 hello >out </dev/null
    grep -q '"tpot_ms":null,"itl_ms":{"p50":null,"p99":null}' out
}

@test "--verbose says how tokens are drawn, by the options that act" {
    sampling() {
        "$QUILL" -v -n 1 "$@" hi 2>&1 >/dev/null </dev/null | sed -n '/^sampling/,/^[a-z]*:/p' | tr -s ' \n' ' ' | grep -o '^sampling.* seed [0-9]*\|^sampling greedy'
    }
    [ "$(sampling --seed 3)" = 'sampling temp 0.8, top-k 40, top-p 0.95, min-p 0.05, seed 3' ]
    [ "$(sampling --seed 3 --top-k 0 --top-p 1 --repeat-penalty 1.5 --xtc-probability 0.5)" = \
        'sampling temp 0.8, min-p 0.05, xtc-probability 0.5, xtc-threshold 0.1, repeat-penalty 1.5, seed 3' ]
    [ "$(sampling --temp 0)" = 'sampling greedy' ]
}

@test "a full context names the option that gives more" {
    full() { "$QUILL" -m builtin --ignore-eos -n 100 "$@" hi 2>&1 >/dev/null </dev/null; }
    full --kv-mem 100k | grep -q 'a larger --kv-mem gives more'
    full --kv-mem 100k --best-of 2 -v | grep -q 'note: --kv-mem has room for 32 tokens'
    full -c 32 --kv-mem 1M | grep -q 'a larger -c gives more'
}

@test "a file option reads stdin in place of the prompt, and is refused where stdin is needed" {
    [ "$(printf 'Be brief' | "$QUILL" -m builtin -sysf - -n 1 --dump-prompt Hello 2>&1 >/dev/null | head -4 | xargs)" = '<|im_start|>system Be brief<|im_end|> <|im_start|>user Hello<|im_end|>' ]
    [[ "$(printf '{"type":"boolean"}' | "$QUILL" -m builtin -jf - Hello)" =~ ^(true|false)$ ]]
    stdin_is_needed() { # stdin_is_needed MESSAGE ARGS...
        run "$QUILL" "${@:2}" </dev/null
        [ "$status" -eq 2 ]
        [[ "$output" == *"$1"* ]]
    }
    stdin_is_needed '-sysf -: a file expected, found stdin, which is taken by the jobs' batch -m builtin -sysf -
    stdin_is_needed 'which is taken by the chat' -m builtin -i --tools -
    stdin_is_needed '--json-schema-file -: a file expected, found stdin, which is taken by -sysf' -m builtin -sysf - -jf - Hello
    stdin_is_needed '--no-stdin and --tools -: one of them expected' -m builtin --no-stdin --tools - Hello
    stdin_is_needed '--grammar-file -: a file expected, found stdin, which is taken by -f -' -m builtin --grammar-file - -f - Hello
}

@test "--best-of that a signal ends has the signal's exit code" {
    "$QUILL" -m builtin --best-of 64 --raw --temp 1.5 -n 1500 --json 'Once upon a time' >out 2>errors </dev/null &
    pid=$!
    sleep 1 # some samples have ended, most have not
    kill -TERM "$pid"
    got=0
    wait "$pid" || got=$?
    [ "$got" -eq 143 ]
    grep -q '"finish_reason":"interrupt"' out
}

@test "a chat refuses --echo, which is for one prompt" {
    run "$QUILL" -i --echo </dev/null
    [ "$status" -eq 2 ]
    [[ "$output" == *"--echo: one prompt expected, found a chat"* ]]
    echo hi | "$QUILL" -i --echo --single-turn -n 0 | grep -q hi
    mkdir -p xdg/quill
    echo 'echo = on' >xdg/quill/config # one that is usual is ignored
    XDG_CONFIG_HOME="$PWD/xdg" "$QUILL" -i </dev/null
}

@test "the same seed gives the same text, and temperature 0 is greedy" {
    for i in 1 2; do "$QUILL" -s 5 -n 30 hello </dev/null >"seed$i"; done
    cmp seed1 seed2
    "$QUILL" -s 6 -n 30 hello </dev/null >seed3
    not cmp -s seed1 seed3
    "$QUILL" --temp 0 -n 30 hello </dev/null >zero
    "$QUILL" --greedy -n 30 hello </dev/null | cmp - zero
    # The seed that was drawn is shown, and draws the same again.
    "$QUILL" --json -n 30 hello </dev/null >drawn
    "$QUILL" --json -n 30 -s "$(sed 's/.*"seed":\([0-9]*\).*/\1/' drawn)" hello </dev/null >again
    [ "$(sed 's/","finish.*//' drawn)" = "$(sed 's/","finish.*//' again)" ]
}

@test "KV layouts and chunks do not change a text" {
    "$QUILL" --greedy -n 40 --isa scalar -ctk f32 -ctv f32 hello there </dev/null >one
    for args in "--kv-layout paged" "--kv-layout paged --kv-block 1" "-ub 1" "-ub 3 -t 1" "-c 64" "--kv_mem=64k"; do
        "$QUILL" --greedy -n 40 --isa scalar -ctk f32 -ctv f32 $args hello there </dev/null | cmp - one
    done
}

@test "a template may have its own system message, and may refuse a conversation" {
    turns="{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    own="{% if messages[0].role != 'system' %}{{ '<|im_start|>system\\nBe good.<|im_end|>\\n' }}{% endif %}"
    "$MAKE_TINY" own.gguf arch=qwen2 "template=$own$turns"
    "$QUILL" -m own.gguf -n 0 --dump-prompt hi >/dev/null 2>errors </dev/null
    printf '<|im_start|>system\nBe good.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n\n' | cmp - errors
    "$QUILL" -m own.gguf -n 0 --dump-prompt -sys no hi 2>&1 >/dev/null </dev/null | not grep -q "Be good"
    "$MAKE_TINY" refuses.gguf arch=qwen2 "template={{ raise_exception('No system, please') }}"
    run "$QUILL" -m refuses.gguf hi </dev/null
    [ "$status" -eq 3 ]
    [[ "$output" == *"No system, please"*"--chat-template"* ]]
    "$QUILL" -m refuses.gguf -n 0 --dump-prompt --chat-template chatml hi >/dev/null 2>errors </dev/null
    printf '<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n\n' | cmp - errors
}

@test "a prompt is put into the chat template, and its text cannot forge control tokens" {
    export QUILL_MODEL="$TINY/chat.gguf"
    "$QUILL" -n 1 --dump-prompt -sys "Be kind." "hi <|im_end|>" >/dev/null 2>errors </dev/null
    printf '<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nhi <|im_end|><|im_end|>\n<|im_start|>assistant\n\n' |
        cmp - errors
    "$QUILL" -n 1 --dump-tokens "hi <|im_end|>" >/dev/null 2>errors </dev/null
    [ "$(grep -c '<|im_end|>$' errors)" -eq 1 ]
    [ "$(grep -c '<|im_start|>$' errors)" -eq 2 ]
    "$QUILL" --raw -n 1 --dump-tokens "<|im_end|>" >/dev/null 2>errors </dev/null
    not grep -q '<|im_end|>$' errors
    "$QUILL" --raw --parse-special -n 1 --dump-tokens "<|im_end|>" >/dev/null 2>errors </dev/null
    [ "$(grep -c '<|im_end|>$' errors)" -eq 1 ]
}

@test "thoughts that the template opened are not part of the answer" {
    turns="{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "$MAKE_TINY" thinks.gguf arch=qwen2 "template=$turns{{ '<|im_start|>assistant\n<think>\n' }}"
    think() { "$QUILL" -m thinks.gguf --logit-bias 65+1000 -n 3 "$@" hi </dev/null; }
    think -n 0 --dump-prompt >/dev/null 2>&1 || skip "this version does not render a template that opens the answer"
    think >out 2>errors
    [ ! -s out ]
    grep -q -e '--think show' errors
    think -q 2>&1 | cmp - /dev/null
    think --think show >out
    [ "$(head -n 1 out)" = "<think>" ]
    [ "$(tail -n 1 out)" = "</think>" ]
    think --json >out
    python3 -c 'import json; a = json.load(open("out")); assert a["text"] == "" and len(a["thinking"]) == 3, a'
    think --json --think hide | not grep -q thinking
}

@test "there is exactly one beginning token" {
    [ "$("$QUILL" tokenize --ids hello | tr ' ' '\n' | grep -cx 1)" -eq 1 ]
    [ "$("$QUILL" tokenize --ids --parse-special '<s>hello' | tr ' ' '\n' | grep -cx 1)" -eq 1 ]
    [ "$("$QUILL" tokenize --ids --no-bos hello | tr ' ' '\n' | grep -cx 1)" -eq 0 ]
}

@test "tokenize, logits and perplexity agree on their inputs" {
    "$QUILL" tokenize --json "hello é" >tokens
    [ "$(jq -r 'map(.id) | join(" ")' tokens)" = "$("$QUILL" tokenize --ids "hello é")" ]
    [ "$(jq -c 'map(.bytes) | add | .[-3:]' tokens)" = '[32,195,169]' ]
    [ "$("$QUILL" tokenize --json --no-bos '')" = '[]' ]
    [ "$(code "$QUILL" tokenize --json --ids hello)" -eq 2 ]
    ids="$("$QUILL" tokenize --ids "hello you" | tr ' ' ',')"
    "$QUILL" logits --tokens "$ids" >a
    "$QUILL" logits --tokens " ${ids//,/ , }" | cmp - a
    "$QUILL" logits --tokens "${ids//,/ }"$'\n' | cmp - a
    "$QUILL" logits -p "hello you" </dev/null >b
    cmp a b
    [ "$(stat -c %s a)" -eq "$(($(tr ',' '\n' <<<"$ids" | wc -l) * 320 * 4))" ]
    "$QUILL" logits --isa scalar -ctk f32 -ctv f32 --tokens "$ids" >a
    "$QUILL" logits --isa scalar -ctk f32 -ctv f32 -ub 1 --tokens "$ids" | cmp - a
    [ "$(code "$QUILL" logits --tokens 1,320)" -eq 2 ]
    [ "$(code "$QUILL" logits --tokens 1,,2)" -eq 2 ]
    [ "$(code "$QUILL" logits --tokens '1 , , 2')" -eq 2 ]
    [ "$(code "$QUILL" logits --tokens -1)" -eq 2 ]
    [ "$(code "$QUILL" logits -c 2 --tokens 1,2,3)" -eq 5 ]
    head -c 3000 /dev/zero | tr '\0' 'a' >text
    "$QUILL" perplexity -c 64 -f text | grep -q '^tokens [0-9]*  nll [0-9.]*  perplexity [0-9.]* +- [0-9.]*$'
    "$QUILL" perplexity --json -f text | grep -q '"perplexity":[0-9.]*'
    [ "$(code "$QUILL" perplexity -p "")" -eq 2 ]
}

@test "inspect shows the file, as text and as JSON" {
    run "$QUILL" inspect "$TINY/chat.gguf"
    [ "$status" -eq 0 ]
    [[ "$output" == *"qwen2"*"Jinja"*"general.architecture"*"blk.1.ffn_down.weight"*"KV cache"*"prefill of"* ]]
    "$QUILL" inspect "$TINY/base.gguf" | grep -q '^  256  *[0-9.]* [KMG]*B + .* + .* = .*B$'
    not grep -q 'not used' <<<"$output"
    "$QUILL" inspect --json "$TINY/base.gguf" | grep -q '"kv_type":"[A-Z0-9]*","memory":\[{"context":256,"weights":[0-9]*,"kv":[0-9]*,"scratch":[0-9]*,"total":[0-9]*}\]'
    "$QUILL" inspect --json --check-tensors "$TINY/base.gguf" | grep -q '^{"file":.*"tensors":\[.*}$'
}

@test "inspect shows small and large numbers of the metadata with all their digits" {
    needs python3
    python3 - <<'PYTHON'
import struct
def text(s): return struct.pack("<Q", len(s)) + s.encode()
keys = [("a.small", 6, struct.pack("<f", 1e-12)), ("a.third", 6, struct.pack("<f", 1 / 3)), ("a.inf", 6, struct.pack("<f", 1e999)),
        ("a.double", 12, struct.pack("<d", 1.23456789e-15)), ("a.max", 10, struct.pack("<Q", 2**64 - 1)),
        ("a.list", 9, struct.pack("<IQ2Q", 10, 2, 1, 2**63 + 1)), ("a.min", 11, struct.pack("<q", -2**63))]
with open("odd.gguf", "wb") as f:
    f.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(text(k) + struct.pack("<I", t) + v for k, t, v in keys))
PYTHON
    "$QUILL" inspect odd.gguf >out || true
    grep -Eq '^  a.small +f32 +1e-12$' out
    grep -Eq '^  a.third +f32 +0.33333334$' out
    grep -Eq '^  a.double +f64 +1.23456789e-15$' out
    grep -Eq '^  a.max +u64 +18446744073709551615$' out
    grep -Eq '^  a.list +u64\[2\] +1, 9223372036854775809$' out
    grep -Eq '^  a.min +i64 +-9223372036854775808$' out
    "$QUILL" inspect --json odd.gguf >out || true
    python3 - out <<'PYTHON'
import json, sys
m = json.load(open(sys.argv[1]))["metadata"]
assert m["a.small"] == 1e-12 and m["a.third"] == 0.33333334 and m["a.inf"] is None, m
assert m["a.double"] == 1.23456789e-15 and abs(m["a.max"] - 2.0**64) < 1e8, m
PYTHON
}

@test "inspect counts the scales of llama2.c's int8 groups" {
    needs python3
    python3 - <<'PYTHON'
import struct
dim, hidden, layers, heads, kv_heads, vocab, context, group = 8, 16, 2, 2, 1, 5, 6, 8
matrices = vocab * dim + layers * (2 * dim * dim + 2 * dim * dim // 2 + 3 * dim * hidden)
with open("v2.bin", "wb") as f:  # a shared classifier; norms, then the matrices
    header = struct.pack("<Ii7iBi", 0x616B3432, 2, dim, hidden, layers, heads, kv_heads, vocab, context, 1, group)
    f.write(header.ljust(256, b"\0") + bytes(4 * dim * (2 * layers + 1)) + bytes(matrices + matrices // group * 4))
PYTHON
    "$QUILL" inspect --json v2.bin >out || true
    python3 - out <<'PYTHON'
import json, sys
j = json.load(open(sys.argv[1]))
assert sum(t["bytes"] for t in j["tensors"]) == j["bytes"] - 256, j["tensors"]
bits = {t["name"]: 8 * t["bytes"] / (t["shape"][0] * t["shape"][1]) for t in j["tensors"] if t["type"] == "I8G"}
assert len(bits) == 15 and set(bits.values()) == {12}, bits
assert 12 < j["bits_per_weight"] < 14, j["bits_per_weight"]
PYTHON
    "$QUILL" inspect v2.bin >out || true
    grep -q '^types .*I8G: 15 tensors, 1\.79 KB' out
    grep -Eq '^  blk.0.attn_q.weight  *I8G  *8 x 8  *96 B' out
}

@test "bench gives the same results in every format, and latencies in JSON" {
    "$QUILL" bench -q -p 8 -n 4 -r 2 -o json >results
    "$QUILL" bench -q -p 8 -n 4 -r 1 -o csv >rows
    [ "$(wc -l <rows)" -eq 3 ]
    not grep -q '%' rows
    "$QUILL" bench -q -p 8 -n 4 -r 1 >table
    [ "$(sed 1d table | wc -L)" -le 80 ]
    grep -q '^tg4 ' table
    [ "$(code "$QUILL" bench -c 64)" -eq 2 ]
    # lists, as llama-bench has them: each number of threads, each depth, each length
    "$QUILL" bench -q -p 4,8 -n 2,3 -t 1,2 -d 0,4 -r 1 -o csv | sed 1d | cut -d, -f 5,7 | xargs >tests
    [ "$(cat tests)" = "$(for t in 1 2; do for d in '' ' @ d4'; do for n in pp4 pp8 tg2 tg3; do echo "$t,$n$d"; done; done; done | xargs)" ]
    "$QUILL" bench -q -p 4 -n 0 -t 1,2 -r 1 | sed 1,2d | head -1 | grep -q '^threads  test'
    "$QUILL" bench -q -p 4 -n 0 -t 1,2 -r 1 --shape dim=64,layers=1,heads=2,ffn=64,vocab=300 -o json | grep -c '"threads": [12],$' | grep -qx 3
    needs python3
    python3 - results <<'PYTHON'
import json, sys
pp, tg = json.load(open(sys.argv[1]))["results"]
assert pp["ttft_ms"] > 0 and "itl_ms" not in pp, pp
assert 0 < tg["itl_ms"]["p50"] <= tg["itl_ms"]["p99"] and tg["tpot_ms"] > 0 and "ttft_ms" not in tg, tg
PYTHON
}

@test "bench at a depth computes the tokens of the test alone" {
    needs python3
    # a repetition cuts the sequence back; states of recurrent layers and sealed K and V are kept only at some depths
    "$QUILL" bench -q --shape delta-1b,layers=5,dim=64,ffn=64,vocab=300 -p 4 -n 3 -d 96,100,127,128 -r 1 -o json >recurrent
    "$QUILL" bench -q --shape ssd-1b,layers=11,dim=64,heads=2,kv_heads=1,ffn=64,vocab=300,value_heads=4,width=16,state=32 -p 4 -n 3 -d 96,100,127,128 -r 1 -o json >mamba
    "$QUILL" bench -q --shape dim=64,heads=2,layers=2,ffn=64,vocab=300 -ctk kivi2 -ctv kivi2 -p 4 -n 3 -d 96,100,127,128 -r 1 -o json >sealed
    for results in recurrent mamba sealed; do
        python3 - $results <<'PYTHON'
import json, sys
results = json.load(open(sys.argv[1]))["results"]
for phase in "prefill", "decode":  # the FLOPs of attention grow by the same amount with each token of depth
    flops = {r["depth"]: r["flops"] for r in results if r["phase"] == phase}
    each = (flops[128] - flops[96]) / 32
    assert each > 0 and all(f == flops[96] + (d - 96) * each for d, f in flops.items()), flops
PYTHON
    done
}

@test "bench --ops times recurrent layers with experts" {
    "$MAKE_TINY" recurrent.gguf arch=nemotron_h_moe seed=1 n_layers=2
    "$QUILL" bench -m recurrent.gguf -q --ops -d 40 -o json | grep -q '"attention"'
}

@test "the peak of memory is that of quill, not of the program that starts it" {
    needs python3
    grep -q '^VmHWM:' /proc/self/status || skip "this system does not tell the peak of one program"
    python3 - "$QUILL" <<'PYTHON' 2>errors >/dev/null
import os, sys
held = bytearray(b"x") * 400_000_000
os.execv(sys.argv[1], ["quill", "-v", "-n", "1", "hi"])
PYTHON
    grep -Eq '^peak +[1-9][0-9.]* [KM]B resident' errors
    [ "$(sed -n 's/^peak  *\([0-9]*\).* MB resident.*/\1/p' errors)" -lt 300 ]
}

@test "a run that is faster than a stored ceiling raises it and says so" {
    needs python3
    "$QUILL" --isa avx2 -n 1 -q hi >/dev/null 2>&1 || skip "no AVX2, whose ceiling is known by its name"
    "$QUILL" bench -q -p 4 -n 0 -r 1 -o json >machine
    # ceilings as if measured in a bad moment: 1 GFLOP/s of every unit
    mkdir -p "$XDG_CACHE_HOME/quill"
    python3 - machine "$TOP/bench/roofline.c" "$XDG_CACHE_HOME/quill/roofline.json" <<'PYTHON'
import json, re, sys
machine, source = json.load(open(sys.argv[1]))["machine"], open(sys.argv[2]).read()
low = {"version": int(re.search(r" VERSION = (\d+)", source)[1]), "cpu": machine["cpu"], "threads": machine["cores"]}
low.update(dict.fromkeys(["read_gbs", "read_gbs_1"] + re.findall(r'"(\w+_g(?:fl)?ops)"', source), 1))
json.dump(low, open(sys.argv[3], "w"))
PYTHON
    cp "$XDG_CACHE_HOME/quill/roofline.json" low
    run_bench() { "$QUILL" bench --isa avx2 --shape dim=512,layers=2,heads=8,ffn=1024,vocab=300 -p 256 -n 0 "$@" -r 1 2>errors; }
    run_bench | tail -1 | grep -q ' 100\.0%$'
    [ "$(wc -l <errors)" -eq 1 ]
    grep -Eq '^quill: faster than .*raised: .*AVX.* from 1\.0 to [0-9.]* G(FL)?OP/s' errors
    "$QUILL" bench -q -p 4 -n 0 -r 1 -o json | python3 -c 'import json,sys; r=json.load(sys.stdin)["machine"]["roofline"]; assert max(v for k, v in r.items() if k.endswith("ops")) > 1 == r["read_gbs"], r'
    cp low "$XDG_CACHE_HOME/quill/roofline.json"
    run_bench -q | tail -1 | grep -q ' 100\.0%$'
    [ ! -s errors ]
    # --verbose after an answer does the same
    cp low "$XDG_CACHE_HOME/quill/roofline.json"
    seq 60 | "$QUILL" -v --isa avx2 -n 2 >/dev/null 2>errors
    tr -s " \n" " " <errors | grep -q " prefill .*(100% of .* decode "
    grep -q '^quill: faster than ' errors
}

@test "a new measurement replaces the stored ceilings, even larger ones" {
    needs python3
    "$QUILL" bench -q --roofline -o json >machine
    mkdir -p "$XDG_CACHE_HOME/quill"
    python3 - machine "$TOP/bench/roofline.c" "$XDG_CACHE_HOME/quill/roofline.json" <<'PYTHON'
import json, re, sys
machine, source = json.load(open(sys.argv[1]))["machine"], open(sys.argv[2]).read()
high = dict(machine["roofline"], version=int(re.search(r" VERSION = (\d+)", source)[1]), cpu=machine["cpu"])
for key in high:
    if key.startswith("read_gbs") or key.endswith("ops"): high[key] = 9e8
json.dump(high, open(sys.argv[3], "w"))
PYTHON
    "$QUILL" bench --roofline -o json >again 2>errors
    jq -e '.machine.roofline | .read_gbs < 1e6 and ([.[] | numbers] | max) < 1e8' again
    # What was measured while other programs took the CPU is not stored.
    grep -q 'were not stored: other programs' errors || jq -e '.read_gbs < 1e6' "$XDG_CACHE_HOME/quill/roofline.json"
}

@test "progress is shown only on a terminal that can erase it" {
    script -qec true /dev/null </dev/null >/dev/null 2>&1 || skip "no script(1), or no pseudo-terminal, to test with"
    esc="$(printf '\033')"
    line="$QUILL bench -p 4 -n 2 -r 1"
    TERM=xterm script -qec "$line" /dev/null </dev/null >out
    grep -q "$esc" out
    TERM=dumb script -qec "$line" /dev/null </dev/null >out
    not grep -q "$esc" out
    TERM=xterm script -qec "$line -q" /dev/null </dev/null >out
    not grep -q "$esc" out
}

@test "a llama2.c model without its tokenizer asks for -z, and a vocabulary without weights is exit 3" {
    needs_data models/stories260K.bin
    cp "$data/models/stories260K.bin" alone.bin
    run "$QUILL" -m alone.bin hi
    [ "$status" -eq 3 ]
    [[ "$output" == *"-z tokenizer.bin"* ]]
    for vocab in "$data"/tokenizers/*.gguf; do
        [ -e "$vocab" ] || continue
        run "$QUILL" -m "$vocab" hi
        [ "$status" -eq 3 ]
        break
    done
}

@test "-i chats line by line, also over a pipe, and computes new tokens only" {
    printf 'hello\n\nand you?\n/help\n/exit\nnever seen\n' |
        "$QUILL" -m "$TINY/chat.gguf" -i -v --greedy -n 5 >out 2>errors
    [ -s out ]
    [ "$(grep -ac '^turn' errors)" -eq 2 ]
    grep -a '^turn' errors | sed -n 1p | grep -q ' 0 cached'
    grep -a '^turn' errors | sed -n 2p >second
    not grep -q ' 0 cached' second
    # The turns' prompts, one after the other, are what one prompt with the whole conversation would be.
    printf 'a\n' | "$QUILL" -i --greedy -n 5 >chat
    "$QUILL" --greedy -n 5 a </dev/null | cmp - chat
    [ "$(code "$QUILL" -i --json)" -eq 2 ]
    # Answers are told apart off a terminal too: each ends its line.
    printf 'a\na\n' | "$QUILL" -i --greedy -n 5 >two
    head -c "$(stat -c %s chat)" two | cmp - chat
    [ "$(tail -c 1 chat | od -An -c | tr -d ' ')" = '\n' ]
    [ "$(wc -l <two)" -eq "$((2 * $(wc -l <chat)))" ]
}

# like_reference MODEL TEXT: its perplexity on every instruction set is the scalar kernels' within 0.2%, in prompts and in
# single steps. Rounding to int8, which single steps do beside quantised weights, moves a token's loss by 0.033 nats up
# or down (standard deviation, the built-in model), so that over the 4,000 tokens of a text the mean moves by 0.05%: the
# bound stands four of them away. What rounds nothing, the portable kernels, stays within 0.01%.
like_reference() {
    nll() { "$QUILL" perplexity --device cpu -m "$1" -f "$2" --parse-special -c 512 --json "${@:3}" | sed 's/.*"nll":\([0-9.]*\),.*/\1/'; }
    exact=$(nll "$1" "$2" --isa scalar)
    for isa in $(isas); do
        for rows in 512 1; do
            case "$isa $rows" in scalar* | "portable 1") continue ;; esac
            [ "$isa" = portable ] && most=0.0001 || most=0.002
            found=$(nll "$1" "$2" --isa "$isa" -ub "$rows")
            echo "$1: nll $exact; $isa, $rows rows: $found"
            awk -v a="$exact" -v b="$found" -v most="$most" 'BEGIN { d = exp(b - a) - 1; exit !(a > 0.1 && b != "" && d < most && d > -most) }'
        done
    done
}

@test "the built-in model's perplexity equals the reference" {
    needs_builtin
    needs python3
    python3 "$TOP/scripts/make_corpus.py" --seed 4711 --bytes 14000 -o text
    like_reference builtin text
}

# Ten minutes: for `make soak`. The longer text is for Q2_K, whose tokens move by more.
@test "the perplexity of every type of weights equals the reference" {
    [ "${QUILL_SOAK:-}" ] || skip "make soak runs it"
    python3 "$TOP/scripts/make_corpus.py" --seed 4711 --bytes 60000 -o text
    for type in Q2_K Q3_K Q4_K Q5_K Q6_K Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 IQ4_NL IQ4_XS MXFP4; do
        "$QUILL" quantize -q builtin model.gguf $type
        like_reference model.gguf text
    done
}

# The text is the models' own: what they never saw costs them nine nats a token, and rounding more.
@test "the perplexity of trained models equals the reference" {
    needs_data models
    like_reference "$data/models/stories260K.gguf" "$data/models/golden/stories260K.greedy.txt"
    for seed in $(seq 30); do
        "$QUILL" -m "$data/models/TinyStories-656K.F32.gguf" --device cpu --isa scalar --raw -s "$seed" -n 400 --special --echo "Once upon a time" </dev/null
    done >text
    for type in F32 BF16 Q8_0 Q4_0 Q5_1; do like_reference "$data/models/TinyStories-656K.$type.gguf" text; done
}

@test "--deterministic gives the same bits for all chunk sizes, layouts and numbers of threads" {
    "$MAKE_TINY" q8.gguf type=Q8_0 ctx=256
    ids=$(seq -s, 1 200)
    logits() { "$QUILL" logits -m q8.gguf --deterministic --tokens "$ids" "$@"; }
    logits -t 1 >one
    for ways in "-t 2" "-t 3 -ub 40" "-t 1 -ub 7 --kv-layout paged" "-t 2 -ub 1 --kv-layout paged --kv-block 5"; do
        # shellcheck disable=SC2086
        logits $ways | cmp - one
    done
    "$QUILL" -v --deterministic -n 1 a 2>&1 | tr -s '\n ' ' ' | grep -q ' backend .*for any number of rows\| backend .*plain f32'
}

@test "NaN weights are an error in every mode" {
    cp "$TINY/base.gguf" nan.gguf
    # the rows of the head, at the file's end
    head -c 81920 /dev/zero | tr '\0' '\377' | dd of=nan.gguf bs=1024 seek=$(($(stat -c %s nan.gguf) / 1024 - 80)) conv=notrunc status=none
    for args in "-n 3 hi" "-n 3 --regex [a-z]+ hi" "-n 3 --regex (no)? hi" "prefill --kv-out out.kv hi" "perplexity -p hello" "perplexity --json -p hello"; do
        code=0
        "$QUILL" $args -m nan.gguf >out 2>errors </dev/null || code=$?
        [ "$code" -eq 3 ]
        [ ! -s out ]
        grep -q '^quill: .*nan.gguf: a finite logit expected after [0-9]* tokens, none found' errors
    done
}

@test "help is on stdout and fits a terminal" {
    for mode in "" bench perplexity inspect tokenize logits prefill decode kv batch template; do
        "$QUILL" $mode --help >help 2>errors
        [ ! -s errors ]
        grep -q '^Usage: quill' help
        [ "$(wc -L <help)" -le 80 ]
    done
}

@test "the binary links to the C library and its parts only" {
    needs ldd
    case "$(ldd "$QUILL" 2>&1)" in *asan* | *"not a dynamic"*) skip "instrumented or static" ;; esac
    ldd "$QUILL" >libraries
    not grep -v -e linux-vdso -e 'libc\.so' -e 'libm\.so' -e libpthread -e ld-linux -e libgcc_s libraries
}

@test "an empty stdin is no prompt" {
    printf '' >empty
    run -2 --separate-stderr bash -c 'printf "" | "$QUILL" --no-config'
    [ "$stderr" = "quill: no prompt: words, -p, -f or a pipe on stdin expected; -i chats line by line" ]
    run -2 "$QUILL" --no-config <empty
    run -2 "$QUILL" --no-config - <empty
    run -2 "$QUILL" --no-config -f - </dev/null
    run -6 bash -c '"$QUILL" --no-config -f - Hello <&-'
    run -0 bash -c '"$QUILL" --no-config -q -n 1 Hello <&-'
    run -0 "$QUILL" --no-config -q -n 1 Hello <empty
    run -0 "$QUILL" --no-config -q -n 1 -f empty </dev/null
}

@test "a file that is written is none that is read" {
    printf 'words of a text\n' >text
    cp "$TINY/base.gguf" model.gguf
    for args in 'perplexity --kl-base model.gguf' 'perplexity --imatrix-out model.gguf' 'perplexity --imatrix-out text' \
        'perplexity --kl-base ./text' 'perplexity --kl-base both --imatrix-out both' 'perplexity --kl-base -' \
        'prefill --kv-out model.gguf' 'prefill --kv-out text'; do
        # shellcheck disable=SC2086
        run -2 "$QUILL" $args -m model.gguf -f text
        [[ "$output" == "quill: --"*" expected, found "* ]]
        [ "${#lines[@]}" -eq 1 ]
    done
    run -2 "$QUILL" quantize model.gguf ./model.gguf Q8_0
    cmp model.gguf "$TINY/base.gguf"
    printf 'words of a text\n' | cmp - text
    [ ! -e both ]
    [ ! -e ./- ]
    "$QUILL" perplexity -q --kl-base /dev/null --imatrix-out /dev/null -m model.gguf -f text
}

@test "a signal leaves what bench and perplexity have finished" {
    # 60000 tokens take minutes on any machine, 4 a moment
    hears_signals "$QUILL" bench -q -p 4 -n 60000 -r 1 -o csv --isa scalar >out 2>errors &
    sleep 3
    kill -INT $!
    rc=0
    wait $! || rc=$?
    [ "$rc" -eq 130 ]
    grep -q ',pp4,' out
    not grep -q ',tg60000,' out
    seq 60000 >text
    hears_signals "$QUILL" perplexity -f text -t 1 --isa scalar >out 2>errors &
    sleep 1
    kill -INT $!
    rc=0
    wait $! || rc=$?
    [ "$rc" -eq 130 ]
    [ ! -s out ]
    grep -Eqx 'quill: note: stopped after [0-9]+ of [0-9]+ tokens, whose perplexity is [0-9.]+' errors
}

@test "bench says what it cannot use" {
    for args in '--type Q2_K' '--seed 3'; do
        # shellcheck disable=SC2086
        run -2 "$QUILL" bench -q $args -p 4 -n 0 -r 1
        [[ "$output" == *": --shape expected with it, found none"* ]]
    done
    run -2 "$QUILL" bench -q -p 1-65 -r 1
    [ "$output" = 'quill: -p: at most 64 numbers expected, more found in "1-65"' ]
}

#!/usr/bin/env bats
# shell.bats: what a person in a shell expects: sources of a prompt, the end of an answer, waiting, notes and hints.

load rig/helpers

models() {
    "$MAKE_TINY" "$TINY/base.gguf" seed=1 ctx=256
    export QUILL_MODEL="$TINY/base.gguf"
}

# The prompt that these arguments make up.
prompt_of() {
    "$QUILL" -n 0 --echo "$@"
}

@test "a socket on stdin is read like a pipe" {
    needs python3
    cat >child.py <<'PYTHON'
import socket, subprocess, sys
ours, theirs = socket.socketpair()
ours.sendall(b"from a socket") # before there is a child, which may leave without reading it
ours.close()
child = subprocess.Popen(sys.argv[1:], stdin=theirs, stdout=subprocess.PIPE)
theirs.close()
sys.stdout.buffer.write(child.communicate()[0])
sys.exit(child.returncode)
PYTHON
    python3 child.py "$QUILL" -n 0 --echo words >out
    printf 'words\n\nfrom a socket\n' | cmp - out
    python3 child.py "$QUILL" -n 0 --echo >out
    printf 'from a socket\n' | cmp - out
    python3 child.py "$QUILL" -n 0 --echo --no-stdin words >out
    printf 'words\n' | cmp - out
}

@test "the prompt has all -p and -f in their order, then stdin" {
    printf A >a
    printf B >b
    printf in >in
    [ "$(prompt_of -f a -f b </dev/null)" = $'A\n\nB' ]
    [ "$(prompt_of -p one -p two </dev/null)" = $'one\n\ntwo' ]
    [ "$(prompt_of -p one -f a -p two <in)" = $'one\n\nA\n\ntwo\n\nin' ]
    [ "$(prompt_of -f a words here <in)" = $'words here\n\nA\n\nin' ]
    [ "$(cat in | prompt_of -f a)" = $'A\n\nin' ]
    [ "$(prompt_of -f a --no-stdin <in)" = A ]
    [ "$("$QUILL" tokenize --ids --no-bos -f a -f b <in)" = "$("$QUILL" tokenize --ids --no-bos $'A\n\nB' </dev/null)" ]
}

@test "- puts stdin at its place in the prompt" {
    [ "$(echo X | prompt_of -)" = X ]
    [ "$(echo X | prompt_of words -)" = $'words\n\nX' ]
    [ "$(printf X | prompt_of -f - -p behind)" = $'X\n\nbehind' ]
    [ "$(echo X | prompt_of --no-stdin -- -)" = - ]
    [ "$(echo X | "$QUILL" tokenize -)" = "$(echo X | "$QUILL" tokenize)" ]
}

@test "an answer ends with a newline, unless --no-newline is given" {
    "$QUILL" --greedy -n 5 --no-newline hello >bare </dev/null
    "$QUILL" --greedy -n 5 hello >answer </dev/null
    { cat bare && echo; } | cmp - answer
    # one newline, not two
    printf 'text\n' >text
    "$QUILL" -n 0 --echo -f text </dev/null | cmp - text
    : >empty
    "$QUILL" -n 0 hello </dev/null | cmp - empty
    # JSON has its own
    "$QUILL" --greedy -n 5 --json hello </dev/null | wc -l | grep -qx 1
    # a shell's loop sees it, a log has a line an answer
    n=0
    while read -r _; do n=$((n + 1)); done < <("$QUILL" -n 0 --echo hi </dev/null)
    [ "$n" -eq 1 ]
    for i in 1 2; do "$QUILL" -n 0 --echo "$i" </dev/null >>log; done
    printf '1\n2\n' | cmp - log
}

@test "--no-stream writes the answer in one piece" {
    needs strace
    ASAN_OPTIONS=detect_leaks=0 strace -o calls -e trace=write "$QUILL" --greedy -n 20 --no-stream hello </dev/null >whole
    [ "$(grep -c '^write(1' calls)" -eq 1 ]
    "$QUILL" --greedy -n 20 hello </dev/null | cmp - whole
}

@test "answers of parallel processes do not mix with --no-stream" {
    "$MAKE_TINY" wide.gguf seed=1 ctx=512
    seq 12 | xargs -P 4 -I{} "$QUILL" -m wide.gguf --no-stdin --no-stream --greedy -n 60 --echo "number {}:" >out
    for i in $(seq 12); do
        "$QUILL" -m wide.gguf --no-stdin --greedy -n 60 --echo "number $i:" >one
        python3 - out one <<'PYTHON'
import sys
whole, one = (open(name, "rb").read() for name in sys.argv[1:])
assert one in whole, one
PYTHON
    done
}

@test "if stdin stays open, stderr says what quill waits for" {
    mkfifo pipe
    exec 5<>pipe
    hears_signals "$QUILL" -n 1 hi <pipe >out 2>errors 5<&- &
    pid=$!
    for ((i = 0; i < 100; i++)); do [ -s errors ] && break || sleep 0.1; done
    kill -INT "$pid"
    ended "$pid"
    [ "$status" -eq 130 ]
    grep -q '^quill: note: still reading the prompt, until stdin' errors
    [ "$(wc -l <errors)" -eq 1 ]
    exec 5<&-
}

@test "Ctrl-C ends the shell's loop that runs quill, or its script" {
    needs_terminal
    cat >loop <<'EOF'
for i in 1 2 3; do
    "$QUILL" --no-stdin -q --echo --ignore-eos -c 4M hello
done
EOF
    drive <<'EOF'
spawn bash loop
expect "hello"
send "\x03"
exit -2
EOF
}

@test "an alarm that was set before quill started still ends it" {
    needs python3
    mkfifo open
    exec 5<>open
    code=0
    python3 -c 'import os, signal, sys; signal.alarm(1); os.execv(sys.argv[1], sys.argv[1:])' "$QUILL" hi <open 5<&- >/dev/null 2>&1 || code=$?
    [ "$code" -eq 142 ]
    code=0
    python3 -c 'import os, signal, sys; signal.alarm(1); os.execv(sys.argv[1], sys.argv[1:])' \
        "$QUILL" --ignore-eos -n -1 -c 1M -q --isa scalar hi </dev/null >/dev/null 2>&1 || code=$?
    [ "$code" -eq 142 ]
    exec 5<&-
}

@test "an advised -c fits into memory and into the model's training" {
    run "$QUILL" -c 8 "a prompt that is longer than that" </dev/null
    [ "$status" -eq 5 ]
    [[ "$output" =~ "the context 8; shorten the prompt, or start with -c "([0-9]+) ]]
    "$QUILL" -n 1 -c "${BASH_REMATCH[1]}" "a prompt that is longer than that" </dev/null 2>errors
    [ ! -s errors ]
    # longer than the training: what -c would do is said with its price, and -c says it again
    head -c 400 /dev/zero | tr '\0' 'x' >long
    run "$QUILL" -f long </dev/null
    [ "$status" -eq 5 ]
    [[ "$output" =~ ", or start with -c "([0-9]+)"; the model was trained for 256: beyond that length" ]]
    "$QUILL" -n 1 -c "${BASH_REMATCH[1]}" -f long </dev/null 2>errors
    grep -q '^quill: note: -c [0-9]*: the model was trained for a context of 256' errors
    echo '{"prompt":"a"}' | "$QUILL" batch -c 512 -n 1 2>&1 >/dev/null | grep -q 'trained for a context of 256'
    "$QUILL" -q -n 1 -c 512 -f long </dev/null 2>errors
    [ ! -s errors ]
    # more than memory: no number is advised
    run "$QUILL" --kv-mem 64k -f long </dev/null
    [ "$status" -eq 5 ]
    [[ "$output" == *"; --kv-mem has room for a context of "* ]]
    [[ "$output" != *" -c "[0-9]* ]]
}

@test "--verbose fits 80 columns in every mode, and names no GPU in a build without CUDA" {
    cp "$TINY/base.gguf" m.gguf
    printf 'hello hello hello' >text
    echo '{"prompt":"a","max_tokens":3}' >jobs
    for args in "-n 4 hi" "perplexity -f text" "prefill --kv-out out.kv hi" "decode --kv-in out.kv -n 3" \
        "logits -p hi" "batch jobs" "--kv-dir kv -n 4 hi"; do
        "$QUILL" $args -v -m m.gguf </dev/null 2>errors >/dev/null
        [ -s errors ]
        [ "$(wc -L <errors)" -le 80 ]
        not grep -E '[0-9]\.[0-9]{4,} ms' errors
    done
    if "$QUILL" --version | grep -q '^CUDA: no$'; then
        "$QUILL" -v -m m.gguf -n 1 hi </dev/null 2>&1 | grep -q 'on the CPU: this build has no CUDA'
    fi
    [ -e /dev/nvidiactl ] || "$QUILL" -v -m m.gguf -n 1 hi </dev/null 2>&1 | not grep insists
}

@test "control characters of a model's file and of its name do not reach a terminal" {
    needs_terminal
    command=$'\e]0;t\a\xc2\x9b2J'
    export NAME="m$command.gguf"
    "$MAKE_TINY" "$NAME" ctx=256 template=chatml "str:tokenizer.chat_template=T$command" "str:general.name=N$command"
    echo '[{"role":"user","content":"hi"}]' >messages
    cat >commands <<'END'
"$QUILL" -m "$NAME" -n 1 -v --dump-prompt hi
"$QUILL" template -m "$NAME" -f messages
"$QUILL" inspect "$NAME"
"$QUILL" inspect --json "$NAME"
"$QUILL" quantize "$NAME" "out$NAME" Q8_0
"$QUILL" -m "$NAME" -md "$NAME" -v -n 1 hi
END
    while IFS= read -r line; do
        echo "$line </dev/null" >one
        printf 'spawn sh one\nexit 0\n' | drive --show >shown
        [ -s shown ]
        LC_ALL=C not grep -e $'\e]' -e $'\xc2\x9b' shown
    done <commands
    # a pipe gets the bytes
    "$QUILL" template -m "$NAME" -f messages | grep -qF "T$command"
    "$QUILL" -m "$NAME" -n 1 --dump-prompt hi 2>&1 >/dev/null </dev/null | grep -qF "T$command"
    "$QUILL" inspect --json "$NAME" | python3 -c 'import json, sys
assert json.load(sys.stdin)["metadata"]["general.name"] == "N\x1b]0;t\a\x9b2J"'
}

@test "names of options in other programs get a suggestion, and mere look-alikes get none" {
    meant() { # meant FLAG OPTION
        run "$QUILL" "$1" hi </dev/null
        [ "$status" -eq 2 ]
        if [ -n "$2" ]; then [[ "$output" == *"; did you mean $2?" ]]; else [[ "$output" != *"did you mean"* ]]; fi
    }
    meant -V --version
    meant '-?' --help
    meant -T -t
    meant -Q -q
    meant -x ''
    meant -5 ''
    meant --kepe ''
    meant --temprature --temp
    meant --tmep --temp
    meant --thre --threads
    meant --ver '' # verbose, or version
    meant -temp --temp
    meant --num-ctx --ctx-size
    meant -ctl -ctk
    meant --no-color '--color never'
    meant --schema --json-schema
}

@test "a prompt that looks like a command is answered with a note" {
    noted() { # noted TEXT WORDS...
        local text="$1"
        shift
        "$QUILL" "$@" -n 0 --echo </dev/null >out 2>errors
        [ -s out ]
        if [ -n "$text" ]; then
            grep -qF -- "quill: note: \"$1\" is taken as a prompt; $text" errors
            [ "$(wc -l <errors)" -eq 1 ]
        else
            [ ! -s errors ]
        fi
    }
    noted 'quill -h is' help
    noted 'quill models lists' list
    noted '-m or -hf names' run llama3 hi
    noted 'did you mean quill bench?' bnech
    noted 'did you mean quill tokenize?' tokenise
    noted 'did you mean quill tokenize?' tokenise foo bar baz
    noted '' tokenise as fast as you can
    noted '' match these pairs
    noted '' run as fast as you can
    noted '' "help me"
    noted '' match the words to their meaning
    noted "" -n 0 --echo -- help
    noted '' -q help
    noted '' -p help
    noted '' -n 0 --echo -- bench
    # an only word, after options too
    printf 'Dear Ann' >letter.txt
    noted '-f reads the file' letter.txt
    [ "$("$QUILL" -n 0 --echo bench 2>&1 >/dev/null </dev/null)" = 'quill: note: "bench" is taken as a prompt; a mode is the first word: quill bench ...' ]
    noted '' "bench press"
    "$QUILL" tokenize --ids letter.txt 2>&1 >/dev/null | grep -q '"letter.txt" is taken as the text; -f reads the file of this name'
    [ -z "$("$QUILL" tokenize --ids bench 2>&1 >/dev/null)" ]
    echo '[]' >talk.json
    run "$QUILL" template talk.json
    [ "$status" -eq 2 ]
    [[ "$output" == *'a model expected, found "talk.json"; -f talk.json reads the messages from it' ]]
}

@test "decode given a question says where questions belong" {
    "$QUILL" prefill --kv-out f.kv hello </dev/null
    run "$QUILL" decode --kv-in f.kv "what was said?"
    [ "$status" -eq 2 ]
    [[ "$output" == *'"what was said?": a model file expected'*"give the question to quill prefill"* ]]
    [ "$(code "$QUILL" decode --kv-in f.kv -n 1 "$TINY/base.gguf")" -eq 0 ]
    [ ! -s errors ]
    # stdin is not read
    echo "and who has it?" >question
    echo "and who has it?" | { sleep 0.2; "$QUILL" decode --kv-in f.kv -n 1 2>piped >out; }
    grep -q '^quill: note: stdin is not read: decode answers the prompt in the KV file' piped
    "$QUILL" decode --kv-in f.kv -n 1 <question 2>&1 >out | cmp - piped
    for quiet in '-q --kv-in f.kv' '--kv-in -' '--kv-in /dev/stdin'; do
        "$QUILL" decode $quiet -n 1 <f.kv 2>errors >out
        [ ! -s errors ]
    done
    mkfifo open # a pipe that stays open and empty
    sleep 100 >open &
    "$QUILL" decode --kv-in f.kv -n 1 <open 2>errors >out
    kill $!
    [ ! -s errors ]
}

@test "command lines of llama-cli from model cards run" {
    "$MAKE_TINY" chat.gguf arch=qwen2 template=chatml ctx=512
    theirs() { # theirs NOTES ARGS...: runs, with so many notes
        local notes="$1"
        shift
        "$QUILL" --ignore-eos "$@" >out 2>errors </dev/null
        [ -s out ]
        cat errors
        [ "$(wc -l <errors)" -eq "$notes" ]
        not grep -v '^quill: note: -' errors
    }
    theirs 0 -m chat.gguf --jinja -st -fa on --no-display-prompt --no-warmup --color -n 3 -p "hello"
    theirs 0 -m chat.gguf --jinja --color -fa -c 0 -n 3 --temp 0.6 --top-k 20 --top-p 0.95 --min-p 0 --no-context-shift -p hi
    theirs 3 -m chat.gguf -no-cnv -b 512 --keep 4 --threads -1 --mirostat 0 --dry-multiplier 0.0 -n 3 -p hi
    theirs 3 -m chat.gguf -tb 2 --dry-multiplier 0.5 --samplers "top_k;temperature" -n 3 hi
    theirs 0 -m chat.gguf --color on --reasoning-budget 0 -n 3 hi
    theirs 0 -m chat.gguf --reasoning-effort high --chat-template-kwargs '{"reasoning_effort": "low"}' -n 3 hi
    theirs 1 -m chat.gguf --reasoning-effort minimal -n 3 hi
    theirs 0 -m chat.gguf --chat-template-kwargs '{"enable_thinking": false, "reasoning_effort": "low"}' -n 3 hi
    theirs 0 -m chat.gguf --color=off --flash-attn off -n 3 hi
    theirs 0 -m chat.gguf -q -b 5 -n 3 hi
    theirs 0 -m chat.gguf -np 1 --swa-full --no-repack -kvo --fit on --cont-batching -cb -n 3 hi
    theirs 5 -m chat.gguf -np 2 --log-file log -ngld 99 -ctkd q8_0 -ctvd q8_0 -n 3 hi
    [ ! -e log ]
    # they do what they mean
    "$QUILL" -m chat.gguf -no-cnv --verbose-prompt -n 0 -p hi 2>&1 >/dev/null </dev/null | grep -v note | cmp - <(echo hi)
    "$QUILL" -b 512 --keep 4 -tb 1 --mirostat 0 --samplers a -fa 1 -n 0 --display-prompt hi 2>/dev/null </dev/null | cmp - <(echo hi)
    "$QUILL" -n 0 --display-prompt --color hi </dev/null | cmp - <(echo hi)
    "$QUILL" -m chat.gguf -i -st --greedy -n 3 hi </dev/null >one
    "$QUILL" -m chat.gguf --greedy -n 3 hi </dev/null | cmp - one
    printf 'hello\nhello\n' | "$QUILL" -m chat.gguf -cnv --greedy -n 3 >turns
    printf 'hello\nhello\n' | "$QUILL" -m chat.gguf -i --greedy -n 3 | cmp - turns
    # in a mode that lacks what they mean, they are refused as quill's own names are
    for flag in -cnv -st --display-prompt --verbose-prompt; do
        run "$QUILL" batch "$flag" </dev/null
        [ "$status" -eq 2 ]
        [[ "$output" == "quill: $flag (--"*"): not an option of quill batch; it belongs to "* ]]
    done
    run "$QUILL" -hff model.gguf -p hi
    [ "$status" -eq 2 ]
    [[ "$output" == *"-hff: quill fetches by repository: -hf USER/REPO:TYPE"* ]]
    run "$QUILL" --hf-token secret -p hi
    [ "$status" -eq 2 ]
    [[ "$output" == *"set HF_TOKEN"* && "$output" != *secret* ]]
    run "$QUILL" -m chat.gguf --keep
    [ "$status" -eq 2 ]
    run "$QUILL" -m chat.gguf --lora x hi
    [ "$status" -eq 2 ]
}

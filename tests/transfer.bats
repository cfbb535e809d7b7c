#!/usr/bin/env bats
# transfer.bats: a prompt computed by one process and answered by another, over a pipe and by a file; what is refused.

load rig/helpers

models() {
    "$MAKE_TINY" "$TINY/chat.gguf" arch=qwen2 template=chatml ctx=2048
    "$MAKE_TINY" "$TINY/base.gguf" seed=1 ctx=512
    "$MAKE_TINY" "$TINY/other.gguf" seed=2 ctx=512
    printf 'Once upon a time there was a small ship. ' >"$TINY/prompt"
    for _ in 1 2 3 4 5 6 7 8; do cat "$TINY/prompt"; done >"$TINY/long"
}

# prefill | decode says what one process says: MODEL OPTIONS-OF-BOTH OPTIONS-OF-THE-ANSWER
same() {
    # shellcheck disable=SC2086 # words are meant
    "$QUILL" -m "$1" $2 $3 -f "$TINY/long" >one
    # shellcheck disable=SC2086
    "$QUILL" prefill -m "$1" $2 -f "$TINY/long" --kv-out - | "$QUILL" decode -m "$1" $2 $3 --kv-in - >two
    cmp one two
    [ -s one ]
}

# flip.kv: the file $1 with another byte at $2
flip() {
    cp "$1" flip.kv
    printf "\\$(printf %o $((($(od -An -tu1 -j "$2" -N 1 "$1") + 1) % 256)))" | dd of=flip.kv bs=1 seek="$2" conv=notrunc 2>/dev/null
    not cmp -s "$1" flip.kv
}

@test "LongRoPE's factors follow -c, and KV of the other factors is refused" {
    "$MAKE_TINY" phi.gguf arch=phi3 ctx=512 # original context 64
    for c in 40 64 65 300; do "$QUILL" logits -m phi.gguf -c $c --tokens 5,9,270,33,8,40 >$c.f32; done
    cmp 40.f32 64.f32
    cmp 65.f32 300.f32
    not cmp -s 64.f32 65.f32
    "$QUILL" prefill -m phi.gguf --raw -c 50 --kv-out phi.kv Once upon
    "$QUILL" -m phi.gguf --raw -c 64 --greedy -n 9 Once upon >one
    "$QUILL" decode -m phi.gguf -c 64 --greedy -n 9 --kv-in phi.kv >two
    cmp one two
    run -3 --separate-stderr "$QUILL" decode -m phi.gguf -c 65 --greedy -n 9 --kv-in phi.kv
    [[ $stderr == *"RoPE"*"-c"* ]]
}

@test "prefill | decode gives the answer of one process, byte for byte" {
    same "$TINY/base.gguf" '--isa scalar' '--greedy -n 40'
    same "$TINY/base.gguf" '' '-s 5 -n 40 --repeat-penalty 1.3'
    same "$TINY/base.gguf" '-ctk bf16 -ctv f32' '-s 6 -n 40 --stop e'
    same "$TINY/chat.gguf" '' '-s 7 -n 40'
    same "$TINY/chat.gguf" '--raw' '-s 8 -n 40 --special'
    same "$TINY/base.gguf" '-c 400' '-s 9 --ignore-eos' # until the context is full
    same "$TINY/base.gguf" '' '-s 9 -n 1'
    for flags in '--system-prompt Be-kind' '--dump-prompt'; do # the prompt's own
        # shellcheck disable=SC2086
        "$QUILL" -m "$TINY/chat.gguf" $flags -s 3 -n 20 -f "$TINY/long" >one 2>/dev/null
        # shellcheck disable=SC2086
        "$QUILL" prefill -m "$TINY/chat.gguf" $flags -f "$TINY/long" --kv-out a.kv 2>/dev/null
        "$QUILL" decode -m "$TINY/chat.gguf" -s 3 -n 20 --kv-in a.kv >two
        cmp one two
    done
    # words and what is piped in, as for quill itself
    echo 'and a pipe' | "$QUILL" -m "$TINY/base.gguf" --greedy -n 9 some words >one
    echo 'and a pipe' | "$QUILL" prefill -m "$TINY/base.gguf" --kv-out b.kv some words
    "$QUILL" decode -m "$TINY/base.gguf" --greedy -n 9 --kv-in b.kv >two
    cmp one two
}

@test "prefill | decode gives the same answer with quantised KV" {
    for types in '-ctk q8_0 -ctv q8_0' '-ctk fp8 -ctv fp8' '-ctk q8_0 -ctv q4_0 --kv-rotate' '-ctk kivi2 -ctv f16' '-ctk f32 -ctv kivi2'; do
        same "$TINY/base.gguf" "$types" '-s 5 -n 40'
        same "$TINY/base.gguf" "--isa scalar $types" '--greedy -n 40'
        # shellcheck disable=SC2086
        "$QUILL" prefill -m "$TINY/base.gguf" --isa scalar $types -f "$TINY/long" --kv-out a.kv
        # shellcheck disable=SC2086
        "$QUILL" prefill -m "$TINY/base.gguf" --isa scalar $types -ub 7 --kv-layout paged --kv-block 5 -f "$TINY/long" --kv-out b.kv
        cmp a.kv b.kv
        "$QUILL" kv check a.kv | grep -q '^good'
        # A type or a turn that is not the file's, and damage.
        for args in '' '-ctk q8_0 -ctv f16' "$types --kv-rotate"; do
            [ "$args" = "-ctk q8_0 -ctv q4_0 --kv-rotate --kv-rotate" ] && args='-ctk q8_0 -ctv q4_0'
            # shellcheck disable=SC2086
            [ "$(code "$QUILL" decode -m "$TINY/base.gguf" $args --kv-in a.kv)" -eq 3 ]
            [ ! -s out ]
        done
        for at in 70 400 $(($(stat -c %s a.kv) / 2)); do
            flip a.kv "$at"
            # shellcheck disable=SC2086
            [ "$(code "$QUILL" decode -m "$TINY/base.gguf" $types --kv-in flip.kv)" -eq 3 ]
            [ ! -s out ]
        done
    done
}

@test "the KV file and the answer do not depend on layout, step size and threads" {
    "$QUILL" prefill -m "$TINY/base.gguf" --isa scalar -f "$TINY/long" --kv-out a.kv
    "$QUILL" decode -m "$TINY/base.gguf" --isa scalar -s 4 -n 30 --kv-in a.kv >one
    for flags in '-ub 1' '-ub 100 -t 1' '--kv-layout paged --kv-block 5 -ub 33'; do
        # shellcheck disable=SC2086
        "$QUILL" prefill -m "$TINY/base.gguf" --isa scalar $flags -f "$TINY/long" --kv-out b.kv
        cmp a.kv b.kv
        # shellcheck disable=SC2086
        "$QUILL" decode -m "$TINY/base.gguf" --isa scalar $flags -s 4 -n 30 --kv-in a.kv >two
        cmp one two
    done
    "$QUILL" kv diff a.kv b.kv >out
    grep -q '^same' out
}

@test "a prompt computed on a GPU can be answered on the CPU, and the other way round" {
    [ -x "$TWIN" ] || skip "no twin of a GPU is built"
    export QUILL_MODEL="$TINY/base.gguf"
    head -c 200 "$TINY/long" >text # fibers take their time
    cpu='--device cpu --kv-layout paged --kv-block 5'
    gpu='--device cuda --kv-layout paged --kv-block 16'
    for types in '-ctk f16 -ctv f16' '-ctk f32 -ctv bf16'; do
        for from in "$cpu" "$gpu" '-ngl 1'; do
            # shellcheck disable=SC2086
            "$TWIN" prefill -q $from $types -f text --kv-out a.kv
            "$TWIN" kv check a.kv | grep -q '^good'
            for to in "$cpu" "$gpu" '--device cuda' '-ngl 1 --kv-layout paged --kv-block 7'; do
                # shellcheck disable=SC2086
                "$TWIN" decode -v $to $types --greedy -n 12 --kv-in a.kv 2>errors </dev/null >>said
                grep -q '^prefill    0 tokens' errors
            done
        done
        [ "$(wc -l <said)" -eq 12 ]
        [ "$(sort -u said | wc -l)" -eq 1 ]
        rm said
        # Not bit for bit, but near: the rounding of the type and what the kernels add to it.
        # shellcheck disable=SC2086
        "$TWIN" prefill -q --device cpu $types -f text --kv-out a.kv
        # shellcheck disable=SC2086
        "$TWIN" prefill -q --device cuda $types -f text --kv-out b.kv
        "$TWIN" kv diff --tolerance 0.01 a.kv b.kv
        "$TWIN" kv diff a.kv a.kv | grep -q '^same'
    done
}

@test "decode computes no row of the prompt" {
    "$QUILL" prefill -m "$TINY/base.gguf" -f "$TINY/long" --kv-out a.kv
    n=$("$QUILL" kv info a.kv | sed -n 's/^tokens *\([0-9]*\), K and V of .*/\1/p')
    "$QUILL" decode -m "$TINY/base.gguf" -v -n 5 --ignore-eos --kv-in a.kv >/dev/null 2>errors
    grep -q "^prefill    0 tokens, $n cached" errors
    "$QUILL" decode -m "$TINY/base.gguf" --json -n 5 --ignore-eos --kv-in a.kv >out
    grep -q "\"prompt_tokens\":$n,\"cached_tokens\":$n,\"completion_tokens\":5" out
    # Without the logits, one row.
    "$QUILL" kv cut -n 20 --kv-out b.kv a.kv
    "$QUILL" decode -m "$TINY/base.gguf" -v -n 5 --ignore-eos --kv-in b.kv >/dev/null 2>errors
    grep -q '^prefill    1 token, 19 cached' errors
    # Without a token to make: nothing at all.
    "$QUILL" decode -m "$TINY/base.gguf" -n 0 --kv-in a.kv >out
    [ ! -s out ]
}

@test "a damaged or truncated KV file, or that of another model, is refused with exit 3 and no output" {
    "$QUILL" prefill -m "$TINY/base.gguf" -f "$TINY/long" --kv-out a.kv
    size=$(stat -c %s a.kv)
    for n in 0 1 11 12 40 83 84 200 1000 $((size / 2)) $((size - 21)) $((size - 1)); do
        head -c "$n" a.kv >cut.kv
        [ "$(code "$QUILL" decode -m "$TINY/base.gguf" --kv-in cut.kv)" -eq 3 ]
        [ ! -s out ]
        grep -q 'cut.kv: byte .* expected, found the end' errors
        [ "$(wc -l <errors)" -eq 1 ]
    done
    for at in 0 9 13 17 22 70 90 300 $((size / 3)) $((size / 2)) $((size - 30)) $((size - 10)) $((size - 1)); do
        flip a.kv "$at"
        [ "$(code "$QUILL" decode -m "$TINY/base.gguf" --kv-in flip.kv)" -eq 3 ]
        [ ! -s out ]
        [ "$(code "$QUILL" kv check flip.kv)" -eq 3 ]
        [ ! -s out ]
    done
    (cat a.kv; echo more) >more.kv
    for args in '-m TINY/other.gguf' '-m TINY/chat.gguf' '-m TINY/base.gguf -ctk bf16' '-m TINY/base.gguf --kv-in more.kv'; do
        # shellcheck disable=SC2086
        [ "$(code "$QUILL" decode --kv-in a.kv ${args//TINY/$TINY})" -eq 3 ]
        [ ! -s out ]
    done
    grep -q 'the end of the file expected' errors
    [ "$(code "$QUILL" decode -m "$TINY/base.gguf" -c 16 --kv-in a.kv)" -eq 5 ]
    [ ! -s out ]
}

@test "a writer that is killed or stopped is reported by the reader" {
    needs python3
    python3 - <<'PYTHON'
import os, signal, subprocess
quill, model = os.environ["QUILL"], os.environ["TINY"] + "/chat.gguf"
text = open(os.environ["TINY"] + "/long").read() * 5
for number, code in (signal.SIGKILL, -9), (signal.SIGINT, -2), (signal.SIGTERM, 143):
    # SIGINT is ignored where the tests run in the background
    p = subprocess.Popen(["env", "--default-signal=INT", quill, "prefill", "-m", model, "-ub", "1", "--kv-out", "-", "--raw"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdin.write(text.encode())
    p.stdin.close()
    begun = p.stdout.read(100)  # the rest is larger than a pipe
    p.send_signal(number)
    rest = p.stdout.read()
    assert begun.startswith(b"QUILLKV\n") and p.wait() == code and not p.stderr.read(), (number, p.returncode)
    d = subprocess.run([quill, "decode", "-m", model, "--kv-in", "-"], input=begun + rest, capture_output=True)
    assert d.returncode == 3 and d.stdout == b"" and b"stdin: byte" in d.stderr and b"the file was cut" in d.stderr, d
PYTHON
}

@test "KV files appear whole or not at all, and pipes end without a message" {
    echo old >a.kv
    [ "$(code "$QUILL" prefill -m "$TINY/base.gguf" -c 16 -f "$TINY/long" --kv-out a.kv)" -eq 5 ]
    [ "$(cat a.kv)" = old ]
    [ -z "$(ls | grep quill-)" ]
    [ "$(code "$QUILL" prefill -m "$TINY/base.gguf" --kv-out /nowhere/a.kv hello)" -eq 6 ]
    grep -q '^quill: /nowhere/a.kv: cannot create: ' errors
    [ "$(code "$QUILL" prefill -m missing.gguf --kv-out . hello)" -eq 6 ] # before the model is opened
    grep -q '^quill: \.: a file to write expected, found a directory$' errors
    "$QUILL" prefill -m "$TINY/chat.gguf" --raw -f "$TINY/long" --kv-out - 2>errors | head -c 10 >/dev/null
    [ ! -s errors ]
    [ "$(code "$QUILL" prefill -m "$TINY/base.gguf" --kv-out /dev/full hello)" -eq 6 ]
    grep -q '^quill: /dev/full: ' errors
    "$QUILL" prefill -m "$TINY/base.gguf" --kv-out b.kv hello
    [ "$(code "$QUILL" kv cut -n 2 --kv-out /dev/full b.kv)" -eq 6 ]
    grep -q '^quill: /dev/full: ' errors
    python3 - "$QUILL" <<'PYTHON'
import os, subprocess, sys
no_reader, pipe = os.pipe()
os.close(no_reader)
for out in "-", "/dev/fd/1":
    p = subprocess.run([sys.argv[1], "kv", "cut", "-n", "2", "--kv-out", out, "b.kv"], stdout=pipe, stderr=subprocess.PIPE)
    assert p.returncode == 0 and not p.stderr, p
PYTHON
    mkfifo fifo
    "$QUILL" prefill -m "$TINY/base.gguf" --kv-out fifo hello &
    "$QUILL" decode -m "$TINY/base.gguf" --kv-in fifo --greedy -n 5 >two
    wait
    [ -p fifo ]
    "$QUILL" -m "$TINY/base.gguf" --greedy -n 5 hello >one
    cmp one two
}

@test "two signals leave no temporary file, whether the second kills or the first was enough" {
    "$MAKE_TINY" large.gguf ctx=4096 dim=256 n_layers=4 tokens=llama
    for _ in 1 2 3 4 5 6 7 8; do cat "$TINY/long"; done >text
    # with quantised KV a step runs to its end, which takes longer than two signals
    for kv in '' '-ctk q8_0'; do
        for signal in INT TERM; do
            # shellcheck disable=SC2086
            hears_signals "$QUILL" prefill -m large.gguf --isa scalar -t 1 $kv -ub 4096 --raw -f text --kv-out f.kv 2>errors &
            pid=$!
            within 60 compgen -G 'f.kv.quill-tmp-*'
            kill -s "$signal" "$pid"
            sleep 0.05
            kill -s "$signal" "$pid" || true # it may have ended
            ended "$pid"
            [ "$status" -eq "$((128 + $(kill -l "$signal")))" ] || [ -n "$kv" ] # the step may have been the last
            [ -z "$(compgen -G 'f.kv.*')" ]
        done
    done
}

@test "a closed standard stream is not confused with the written file" {
    "$QUILL" prefill -m "$TINY/base.gguf" -v --kv-out a.kv "Once upon" 2>/dev/null
    "$QUILL" prefill -m "$TINY/base.gguf" -v --kv-out b.kv "Once upon" 2>&-
    "$QUILL" prefill -m "$TINY/base.gguf" -v --kv-out c.kv "Once upon" <&- >&- 2>&-
    cmp a.kv b.kv
    cmp a.kv c.kv
}

@test "kv info, check, cut and diff report and change KV files" {
    "$QUILL" prefill -m "$TINY/base.gguf" -f "$TINY/long" --kv-out a.kv
    "$QUILL" prefill -m "$TINY/base.gguf" --kv-out b.kv Once upon a tide
    "$QUILL" prefill -m "$TINY/other.gguf" -f "$TINY/long" --kv-out c.kv
    "$QUILL" kv info a.kv >out
    grep -q '^KV         K in F32, V in F32, exact' out
    "$QUILL" kv check - <a.kv >out
    grep -q '^good .* 320 logits' out
    # Cutting twice is cutting once, over a pipe too.
    "$QUILL" kv cut -n 100 --kv-out d.kv a.kv
    "$QUILL" kv cut -n 7 --kv-out e.kv d.kv
    "$QUILL" kv cut -n 7 --kv-out - a.kv | cmp - e.kv
    "$QUILL" kv check d.kv | grep -q '100 tokens, K and V of 100, 0 logits'
    "$QUILL" kv cut -n 9999 --kv-out f.kv a.kv 2>errors
    cmp a.kv f.kv
    grep -qx 'quill: note: a.kv has [0-9]* tokens: all of them are copied' errors
    cp a.kv same.kv
    [ "$(code "$QUILL" kv cut -n 5 --kv-out same.kv same.kv)" -eq 2 ]
    cmp a.kv same.kv
    [ "$(code "$QUILL" kv diff - -)" -eq 2 ]
    # A shorter file is no other cache, another text is one from its first other token on, another model everywhere.
    rc=0
    "$QUILL" kv diff --tolerance 1 a.kv d.kv >out 2>errors || rc=$?
    [ "$rc" -eq 1 ]
    [ ! -s errors ]
    grep -q '^tokens: .* and 100' out
    not grep -q differ out
    "$QUILL" kv diff --tolerance 1 a.kv b.kv >out || rc=$?$rc
    [ "$rc" -eq 11 ]
    grep -q '^token [1-9][0-9]*: ' out
    not "$QUILL" kv diff --tolerance 9 a.kv c.kv >out
    grep -q '^model: ' out
    grep -q '^layer 0    K: .* differ, from slot 0 on' out
    # Sealed: what it stands for is near what was sealed, turned or not; a group is cut whole.
    for types in '-ctk q8_0 -ctv q8_0' '-ctk q8_0 -ctv q8_0 --kv-rotate'; do
        # shellcheck disable=SC2086
        "$QUILL" prefill -m "$TINY/base.gguf" $types -f "$TINY/long" --kv-out q.kv
        "$QUILL" kv diff --tolerance 0.01 a.kv q.kv >out
        grep -q '^type of K: F32 and Q8_0' out
        [ "$(grep -c 'differ.*relative L2 0.00' out)" -eq 4 ]
        # over the tolerance it is the worst layer that counts
        worst=$(sed -n 's/^most  *relative L2 \([0-9.]*\), [KV] of layer [01]: within the tolerance of 0.01$/\1/p' out)
        [ "$worst" = "$(sed -n 's/.*differ.*relative L2 //p' out | sort -g | tail -1)" ]
        for tolerance in 0 0.001 "$(awk -v w="$worst" 'BEGIN { print 0.99 * w }')"; do
            rc=0
            "$QUILL" kv diff --tolerance "$tolerance" a.kv q.kv >out || rc=$?
            [ "$rc" -eq 1 ]
            grep -q "^most .*: over the tolerance of " out
        done
        "$QUILL" kv diff q.kv q.kv | grep -q '^same'
    done
    "$QUILL" kv info q.kv | grep -q '^KV         K in Q8_0, V in Q8_0, exact; sealed in groups of 32 slots; K rotated'
    "$QUILL" kv cut -n 100 --kv-out r.kv q.kv
    "$QUILL" kv check r.kv | grep -q '100 tokens, K and V of 96, 0 logits'
    "$QUILL" decode -m "$TINY/base.gguf" -ctk q8_0 -ctv q8_0 --kv-rotate -v -n 5 --kv-in r.kv 2>&1 >/dev/null | grep -q '^prefill    4 tokens, 96 cached'
    "$QUILL" kv cut -n 9999 --kv-out s.kv q.kv
    cmp q.kv s.kv
    # what cannot be
    [ "$(code "$QUILL" kv diff --tolerance -1 a.kv a.kv)" -eq 2 ]
    for args in '' 'look a.kv' info 'diff a.kv' 'cut a.kv' 'cut -n 5 a.kv' 'cut -n 0 --kv-out x a.kv'; do
        # shellcheck disable=SC2086
        [ "$(code "$QUILL" kv $args)" -eq 2 ]
    done
    [ "$(code "$QUILL" kv info missing)" -eq 6 ]
    [ "$(code "$QUILL" kv info "$TINY/base.gguf")" -eq 3 ]
    head -c 2000 a.kv >cut.kv
    [ "$(code "$QUILL" kv cut -n 5 --kv-out g.kv cut.kv)" -eq 3 ]
    grep -q '^quill: cut.kv: ' errors # the input is to blame
    [ ! -e g.kv ]
    [ "$(code "$QUILL" prefill hello)" -eq 2 ]
    [ "$(code "$QUILL" decode)" -eq 2 ]
}

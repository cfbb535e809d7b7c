#!/usr/bin/env bats
# kvdir.bats: --kv-dir on the command line: runs that reuse the KV of earlier runs, and directories that cannot be used.

load rig/helpers

models() {
    "$MAKE_TINY" "$TINY/base.gguf" seed=1 ctx=512
    "$MAKE_TINY" "$TINY/other.gguf" seed=2 ctx=512
    "$MAKE_TINY" "$TINY/chat.gguf" arch=qwen2 template=chatml ctx=2048
    export QUILL_MODEL="$TINY/base.gguf"
    for i in $(seq 40); do printf 'word %d. ' "$i"; done >"$TINY/long.txt" # a token a byte, nearly
}

setup() {
    enter
    long="$TINY/long.txt"
}

# The answer of a scalar run to the long text goes to the file $1, what is said about it to `errors`.
run_long() {
    out=$1
    shift
    "$QUILL" --isa scalar --greedy --raw -n 20 -f "$long" "$@" >"$out" 2>errors </dev/null
}

cached() {
    sed -n 's/^prefill .* tokens*, \([0-9]*\) cached.*/\1/p' errors
}

@test "a second run reuses the KV of the first and gives the same answer" {
    run_long want
    run_long first -v --kv-dir kv
    [ "$(cached)" -eq 0 ]
    grep -q '^KV dir     0 slots from kv in .* ms; [0-9]* kept there' errors
    run_long second -v --kv-dir kv
    n=$(cached)
    [ "$n" -gt 200 ]
    [ $((n % 32)) -eq 0 ]
    grep -q "^KV dir     $n slots from kv in .* ms; 0 kept there" errors
    run_long third -v --kv-dir kv,size=1G --kv-layout paged -ub 7 -t 1
    [ "$(cached)" -eq "$n" ]
    run_long fourth --json --kv-dir kv
    grep -q "\"cached_tokens\":$n," fourth
    cmp want first
    cmp want second
    cmp want third
    [ "$(stat -c %a kv)" = 700 ]
    # Sealed KV of whole groups.
    for types in "-ctk q8_0 -ctv q4_0" "-ctk kivi2 -ctv fp8 --kv-rotate"; do
        run_long want $types
        run_long first $types --kv-dir kv
        run_long second $types --kv-dir kv -v -ub 9
        [ "$(cached)" -eq "$n" ]
        cmp want first
        cmp want second
    done
    rc=0
    run_long other -ctk q8_0 --kv-dir kv --kv-block 16 || rc=$?
    [ "$rc" -eq 2 ]
    grep -q '^quill: --kv-dir with .*: blocks of whole groups of 32 slots expected, .* use --kv-block 32$' errors
    # Another beginning, block length, type, model or kernel finds nothing, and adds its own.
    for other in "--isa portable" "--kv-block 16" "-ctk f16" "-m $TINY/other.gguf"; do
        run_long other -v --kv-dir kv $other
        [ "$(cached)" -eq 0 ]
    done
    sed -i '1s/word/Word/' "$long"
    run_long other -v --kv-dir kv
    [ "$(cached)" -eq 0 ]
    sed -i '1s/Word/word/' "$long"
    run_long again -v --kv-dir kv
    [ "$(cached)" -eq "$n" ]
}

@test "a longer text reuses a shorter one, and an interrupted run leaves its blocks" {
    head -c 200 "$long" >short
    "$QUILL" --isa scalar --raw -n 0 -f short --kv-dir kv </dev/null
    run_long out -v --kv-dir kv
    [ "$(cached)" -ge 96 ]
    [ "$(cached)" -lt 200 ]
    rm -r kv
    "$QUILL" --isa scalar --raw --ignore-eos -c 64k -f "$long" --kv-dir kv >stopped 2>errors </dev/null &
    for ((i = 0; i < 300; i++)); do [ -s stopped ] && break || sleep 0.05; done
    kill -TERM $!
    wait $! || true
    run_long out -v --kv-dir kv
    [ "$(cached)" -gt 200 ]
}

@test "a damaged file is named, removed and computed again" {
    run_long want --kv-dir kv
    for damage in 'printf x | dd of="$f" bs=1 seek=500 conv=notrunc' 'truncate -s 700 "$f"' ': >"$f"'; do
        for f in kv/*.kv; do eval "$damage" 2>/dev/null; done
        run_long out -v --kv-dir kv
        cmp want out
        [ "$(cached)" -eq 0 ]
        [ "$(grep -c '^quill: note: --kv-dir: kv/.*computed again' errors)" -eq 1 ]
        rm -r kv
        run_long out --kv-dir kv
    done
    for f in kv/*.kv; do : >"$f"; done
    run_long out -q --kv-dir kv
    [ ! -s errors ]
    cmp want out
}

@test "--kv-dir needs a layer with K and V" {
    "$MAKE_TINY" states.gguf arch=nemotron_h n_layers=1 seed=1
    run -2 "$QUILL" -m states.gguf --raw -n 2 --kv-dir kept hi
    [ "$output" = "quill: --kv-dir: a model with attention expected, found nemotron_h, whose 1 layers have none" ]
}

@test "an unusable --kv-dir is an error" {
    echo x >file
    for dir in file file/x none/x /proc/x; do
        rc=0
        "$QUILL" -n 1 hi --kv-dir "$dir" >out 2>errors </dev/null || rc=$?
        [ "$rc" -eq 6 ]
        [ ! -s out ]
        [ "$(wc -l <errors)" -eq 1 ]
        grep -q "^quill: --kv-dir $dir: " errors
    done
    for value in ,size=1 x,size= x,size=0 x,size=-1 x,size=1x x,size=99999999999999999999 x,sz=1G x,size=1G,max=2; do
        rc=0
        "$QUILL" -n 1 hi --kv-dir "$value" >out 2>errors </dev/null || rc=$?
        [ "$rc" -eq 2 ]
        grep -q '^quill: --kv-dir: .* expected' errors
    done
}

@test "a full disk or a read-only --kv-dir is a note, and the answer comes" {
    run_long want
    unshare -rm true 2>/dev/null || unshare -m true 2>/dev/null || skip "no mount of our own"
    mkdir -p small
    cat >full.sh <<'SH'
mount -t tmpfs -o "$1" tmpfs small || exit 99
shift
"$QUILL" --isa scalar --greedy --raw -n 20 -f "$long" --kv-dir small >out 2>errors </dev/null
SH
    export long
    for how in size=64k,mode=700 ro; do
        rc=0
        unshare -m sh full.sh "$how" 2>/dev/null || rc=$?
        [ "$rc" -ne 99 ] || skip "no mount of our own"
        [ "$rc" -eq 0 ]
        cmp want out
        [ "$(wc -l <errors)" -eq 1 ]
        grep -q '^quill: note: --kv-dir: .*\(No space left\|Read-only\).*the answer is complete' errors
    done
}

@test "--kv-dir stays within its size and keeps the newest prompt" {
    run_long out --kv-dir kv
    one=$(stat -c %s "$(ls kv/*.kv | head -n 1)")
    for i in 1 2 3; do
        sed "1s/word 1/word $i/" "$long" >text
        "$QUILL" --isa scalar --raw -n 1 -f text --kv-dir "kv,size=$((one * 12))" </dev/null >out
        [ "$(cat kv/*.kv | wc -c)" -le $((one * 12)) ]
    done
    "$QUILL" --isa scalar --raw -n 1 -f text -v --kv-dir kv </dev/null 2>errors >out
    [ "$(cached)" -gt 200 ]
}

@test "two runs may use one --kv-dir at once, and a killed run does no harm" {
    run_long want
    for i in 1 2 3; do
        (run_long "out$i" --kv-dir kv) &
    done
    wait
    for i in 1 2 3; do cmp want "out$i"; done
    rm -r kv
    for delay in 0.02 0.03 0.05 0.08; do
        "$QUILL" --isa scalar --raw -n 20 -f "$long" --kv-dir kv >/dev/null 2>&1 </dev/null &
        sleep "$delay"
        kill -9 $! 2>/dev/null || true
        wait $! 2>/dev/null || true
        run_long out --kv-dir kv
        cmp want out
        [ ! -s errors ]
        rm -rf kv
    done
}

@test "a chat reuses the KV of an earlier chat that began alike" {
    export QUILL_MODEL="$TINY/chat.gguf"
    printf '%s\n' 'a message that is long enough for a block of the cache, and for one more' 'and another' >lines
    "$QUILL" -i --isa scalar --greedy -n 8 <lines >want 2>/dev/null
    "$QUILL" -i --isa scalar --greedy -n 8 --kv-dir kv <lines >first 2>/dev/null
    "$QUILL" -i --isa scalar --greedy -n 8 --kv-dir kv -v <lines >second 2>errors
    cmp want first
    cmp want second
    n=$(sed -n 's/.* new tokens*, \([0-9]*\) cached (\1 from --kv-dir); .*/\1/p' errors | head -n 1)
    [ "$n" -ge 32 ]
    [ "$(grep -c ' cached; ' errors)" -eq 1 ] # the second turn has the first one's cache
}

@test "kv info and check read a block of --kv-dir, and kv cut refuses it" {
    run_long out --kv-dir kv -n 1
    "$QUILL" prefill --isa scalar --raw -f "$long" --kv-out whole.kv </dev/null
    n=0
    for f in kv/*.kv; do
        name=$(basename "$f" .kv)
        "$QUILL" kv check "$f" >said
        grep -q "^block      $name of --kv-dir$" said
        "$QUILL" kv info "$f" >said
        grep -q '^tokens     32, K and V of 32' said
        at=$(sed -n 's/^block      of --kv-dir, from slot \([0-9]*\) of a sequence on, after the \(block\|root\) [0-9a-f]*$/\1/p' said)
        [ $((at % 32)) -eq 0 ]
        "$QUILL" kv diff "$f" "$f" | grep -q '^same'
        if [ "$at" -eq 0 ]; then
            # the first one holds what the sequence's file begins with, and says that it is less
            rc=0
            "$QUILL" kv diff "$f" whole.kv >said || rc=$?
            [ "$rc" -eq 1 ]
            grep -q '^block of --kv-dir: yes and no' said
            not grep -q 'differ\|^token ' said
            first=$f
        else other=$f; fi
        n=$((n + 1))
    done
    [ "$n" -gt 6 ]
    rc=0
    "$QUILL" kv diff "$first" "$other" >said || rc=$?
    [ "$rc" -eq 1 ]
    grep -q '^block: from slot 0 after [0-9a-f]* and from slot [1-9]' said
    # under another block's name it is not what the name says
    cp "$first" "moved.kv"
    "$QUILL" kv check moved.kv >said
    mkdir other
    cp "$first" "other/$(basename "$other")"
    run "$QUILL" kv check "other/$(basename "$other")"
    [ "$status" -eq 3 ]
    [[ "$output" == *"the block that the file's name says expected, found block $(basename "$first" .kv)"* ]]
    run "$QUILL" kv cut -n 5 --kv-out cut.kv "$first"
    [ "$status" -eq 2 ]
    [[ "$output" == *"a block of --kv-dir, which cannot be cut; quill prefill --kv-out writes files that can" ]]
    [ ! -e cut.kv ]
    run "$QUILL" decode --kv-in "$first"
    [ "$status" -eq 3 ]
    [[ "$output" == *"a frame TOKS expected, LINK found: this is a block of --kv-dir, not a sequence; give its directory to --kv-dir" ]]
}

@test "beams that take the last blocks beside a job that loads: all are answered as with room" {
    needs_builtin
    python3 - <<'PYTHON'
import json
text = "Once upon a time there was a dog. " + " ".join(f"The big red dog and the cat number {i} sat in the sun." for i in range(60))
sea = "Tom had a boat and he went to the sea with Anna and then they saw a big fish that was very sad and alone in the cold dark water so " * 6
words = text.split(" ")
o = {"id": "O", "prompt": " ".join(words[:49]), "max_tokens": 3, "ignore_eos": True, "raw": True}
r = {"id": "R", "prompt": " ".join(words[:331]), "max_tokens": 2, "raw": True}
b = {"id": "B", "prompt": " ".join(sea.split(" ")[:94]), "max_tokens": 6, "beams": 4, "raw": True}
open("r.jsonl", "w").write(json.dumps(r) + "\n")
open("all.jsonl", "w").write("".join(json.dumps(j) + "\n" for j in (o, r, b)))
PYTHON
    batch() { "$QUILL" batch -m builtin --temp 0 -t 1 --kv-block 16 -ub 40 -c 512 --keep-order "$@"; }
    batch --kv-dir store r.jsonl >first
    for f in store/*; do # O computes the first three blocks, which R shares; R loads the others
        if "$QUILL" kv info "$f" | grep -qE 'from slot (0|16|32) '; then rm "$f"; fi
    done
    batch --kv-mem 1536K --kv-dir store all.jsonl >tight
    batch all.jsonl >roomy
    texts() { sed 's/.*"id":"\([^"]*\)".*"text":"\([^"]*\)".*/\1 \2/' "$1"; }
    [ "$(texts tight)" = "$(texts roomy)" ]
    [ "$(wc -l <tight)" -eq 3 ]
}

#!/usr/bin/env bats
# bad_input.bats: hostile files and prompts at the front door: an exit code and one line, never a crash.

load rig/helpers

models() {
    "$MAKE_TINY" "$TINY/base.gguf" ctx=256
    "$MAKE_TINY" "$TINY/chat.gguf" arch=qwen2 template=chatml ctx=256
}

# refused CODE ARGS...: this exit code and one line on stderr that starts with quill:, nothing on stdout
refused() {
    local expected="$1" found=0
    shift
    "$QUILL" "$@" >out 2>errors </dev/null || found=$?
    if [ "$found" -ne "$expected" ] || [ -s out ] || [ "$(wc -l <errors)" -ne 1 ] || ! grep -q '^quill: ' errors; then
        echo "quill $*: exit $found, $expected expected"
        cat errors
        return 1
    fi
}

@test "a file that is not a model is refused with exit 3 and one line" {
    : >empty
    printf 'GGUF' >magic
    printf 'GGUF\1\0\0\0' >v1
    printf 'GGUF\143\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' >v99
    printf 'FUGG\3\0\0\0' >swapped
    printf 'GGUF\3\0\0\0\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377' >counts
    head -c 5000 /dev/urandom >noise
    mkfifo fifo
    for file in empty magic v1 v99 swapped counts noise missing . /dev/null fifo; do
        refused 3 -m "$file" hi
        refused 3 tokenize -m "$file" hi
        refused 3 perplexity -m "$file" -p hi
    done
    refused 2 -m fifo --no-mmap hi # nobody writes into it
}

@test "a size may have a fraction and a unit with B" {
    size() { # size TEXT BYTES
        "$QUILL" --kv-mem "$1" --kv-dir "d,size=$1" --show-config >out
        grep -q "^kv-mem = $2 " out
        grep -q "^kv-dir = d,size=$2 " out
    }
    size 1.5G 1610612736
    size 100MB 104857600
    size 2GiB 2147483648
    size 3kib 3072
    size 1T 1099511627776
    size 7B 7
    for wrong in 1e5 0x10 1.5 1.2.3M 20000000T -1 1.5Q 1GG .5G nan 2iB; do
        refused 2 --kv-mem "$wrong" hi
        refused 2 --kv-dir "d,size=$wrong" hi
    done
}

@test "endless input and a file of 3 GB are refused, before they fill memory" {
    run -5 bash -c 'yes | "$0" -m "$1" hi' "$QUILL" "$TINY/base.gguf"
    [ "$output" = "quill: stdin: a text of at most 268435456 bytes expected from a pipe or a device, found more" ]
    refused 5 -m "$TINY/base.gguf" -f /dev/zero hi
    truncate -s 3G holes
    refused 5 -m "$TINY/base.gguf" -f holes hi
    grep -q 'holes: a text of at most 2147483647 bytes expected, found more' errors
}

@test "a model file that is truncated anywhere is refused" {
    size="$(stat -c %s "$TINY/base.gguf")"
    for n in 1 4 8 16 23 24 31 100 200 333 1000 2000 4000 5000 8000 $((size / 2)) $((size - 32)) $((size - 1)); do
        head -c "$n" "$TINY/base.gguf" >cut.gguf
        refused 3 -m cut.gguf -n 1 hi
    done
}

@test "impossible metadata is refused" {
    i=0
    for change in u32:llama.block_count=0 u32:llama.block_count=1000000000 u32:llama.attention.head_count=0 \
        u32:llama.attention.head_count_kv=0 u32:llama.attention.head_count_kv=3 u32:llama.attention.head_count=4000000000 \
        u32:llama.embedding_length=0 u32:llama.embedding_length=63 u32:llama.rope.dimension_count=7 \
        u32:llama.rope.dimension_count=4096 f32:llama.attention.layer_norm_rms_epsilon=nan \
        f32:llama.rope.freq_base=0 str:llama.block_count=2 str:general.architecture=nonesuch \
        u32:tokenizer.ggml.bos_token_id=320 u32:tokenizer.ggml.eos_token_id=4294967295 str:tokenizer.ggml.model=nonesuch; do
        "$MAKE_TINY" "bad$((++i)).gguf" "$change"
        "$QUILL" -m "bad$i.gguf" -n 1 hi >out 2>errors </dev/null && found=0 || found=$?
        # An id in an optional role may mean "none"; everything else is refused.
        case "$change" in *token_id*) [ "$found" -eq 0 ] || [ "$found" -eq 3 ] ;; *) [ "$found" -eq 3 ] ;; esac
        [ "$(wc -l <errors)" -le 1 ]
    done
}

@test "a chat template that is not text is refused" {
    "$MAKE_TINY" number.gguf arch=qwen2 u32:tokenizer.chat_template=7
    refused 3 -m number.gguf hi
    "$QUILL" -m number.gguf --raw -n 1 hi </dev/null >/dev/null
}

@test "an option that expects a number refuses anything else" {
    for flag in -n -c -t -ub -s --temp --top-k --top-p --min-p --typical --xtc-probability --xtc-threshold --repeat-penalty --repeat-last-n --kv-block --kv-mem \
        --presence-penalty --frequency-penalty --logprobs -ngl; do
        [[ $flag =~ ^(-ub|--logprobs)$ ]] || refused 2 -m "$TINY/base.gguf" "$flag=" hi # an empty value turns these off
        for value in " " x 1x 1e 0x10 nan inf -inf 1e99999 --5 99999999999999999999999 "$(head -c 3000 /dev/zero | tr '\0' 9)"; do
            refused 2 -m "$TINY/base.gguf" "$flag=$value" hi
        done
    done
}

@test "prompts may contain any bytes" {
    export QUILL_MODEL="$TINY/base.gguf"
    for c in A ' ' '\n' '\0' '\377' '\345'; do
        head -c 200 /dev/zero | tr '\0' "$c" | "$QUILL" -n 2 --raw >/dev/null
        head -c 200 /dev/zero | tr '\0' "$c" | "$QUILL" -m "$TINY/chat.gguf" -n 2 >/dev/null
        head -c 1048576 /dev/zero | tr '\0' "$c" | "$QUILL" tokenize --ids >ids
        [ -s ids ]
        head -c 1048576 /dev/zero | tr '\0' "$c" >mebibyte
        refused 5 -f mebibyte
        refused 5 -m "$TINY/chat.gguf" -f mebibyte
    done
    printf '\357\273\277bom\0nul\346\255' | "$QUILL" -n 2 --echo >out
    printf '\357\273\277bom\0nul\346\255' | cmp -n 12 - out
}

@test "tokenize turns random bytes into valid ids" {
    export QUILL_MODEL="$TINY/base.gguf"
    head -c 4096 /dev/urandom >noise
    ids="$("$QUILL" tokenize --ids -f noise | tr ' ' ',')"
    [ "$(tr ',' '\n' <<<"$ids" | sort -n | tail -n 1)" -lt 320 ]
}

@test "lengths and ids beyond their limits are refused" {
    export QUILL_MODEL="$TINY/base.gguf"
    "$QUILL" -n 2147483647 -c 32 hi </dev/null >/dev/null
    "$QUILL" -n 0 hi </dev/null >out
    [ ! -s out ]
    "$QUILL" -c 1 -n 5 "" </dev/null >/dev/null
    refused 2 -n 2147483648 hi
    refused 2 --logit-bias 320+1 hi
    refused 2 --logit-bias 4294967296+1 hi
    refused 2 logits --tokens 4294967297
    refused 2 logits --tokens 1,2,
    refused 2 logits --tokens ""
    refused 2 -z "$TINY/base.gguf" hi
}

@test "forbidding every token is an error, not a hang" {
    bias=()
    for ((i = 0; i < 320; i++)); do bias+=(--logit-bias "$i-inf"); done
    refused 3 -m "$TINY/base.gguf" "${bias[@]}" hi
    grep -q 'an allowed token expected after [0-9]* tokens, found none' errors
    not_finished="$("$QUILL" -m "$TINY/base.gguf" "${bias[@]}" --json hi 2>/dev/null </dev/null || true)"
    [[ "$not_finished" == *'"finish_reason":"error"'* ]]
}

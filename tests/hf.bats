#!/usr/bin/env bats
# hf.bats: a Hugging Face directory as the model of every mode: its text, what inspect shows, errors.

load rig/helpers

models() {
    "$MAKE_TINY" "$TINY/model.gguf" arch=qwen3 template=chatml ctx=256
    "$MAKE_TINY" "$TINY/model/" arch=qwen3 template=chatml ctx=256
    "$MAKE_TINY" "$TINY/shards/" arch=gemma3 type=BF16 shards=3 tied=1
    "$MAKE_TINY" "$TINY/llama/" type=F16 ctx=256
}

# refused CODE TEXT ARGS...: this exit code and one line on stderr that has the text
refused() {
    local expected="$1" text="$2" found=0
    shift 2
    "$QUILL" "$@" >out 2>errors </dev/null || found=$?
    if [ "$found" -ne "$expected" ] || [ -s out ] || [ "$(wc -l <errors)" -ne 1 ] || ! grep -qF -- "$text" errors; then
        echo "quill $*: exit $found, $expected and \"$text\" expected"
        cat errors
        return 1
    fi
}

@test "a directory gives the text of the GGUF file with the same weights" {
    for how in "hello user" "--raw the users"; do
        # shellcheck disable=SC2086
        "$QUILL" -m "$TINY/model" --greedy -n 30 $how >directory
        # shellcheck disable=SC2086
        "$QUILL" -m "$TINY/model.gguf" --greedy -n 30 $how >file
        cmp directory file
    done
    "$QUILL" tokenize -m "$TINY/model/" --ids "12 the users' things" >directory
    "$QUILL" tokenize -m "$TINY/model.gguf" --ids "12 the users' things" >file
    cmp directory file
    "$QUILL" logits -m "$TINY/model" --tokens 5,6,7 --isa scalar >directory
    "$QUILL" logits -m "$TINY/model.gguf" --tokens 5,6,7 --isa scalar >file
    cmp directory file
}

@test "every mode accepts a directory" {
    "$QUILL" -m "$TINY/llama" --raw --seed 1 -n 8 "the" >out
    "$QUILL" perplexity -m "$TINY/llama" -p "the users and the others and the rest of them" --json >out
    echo '{"prompt": "the users"}' | "$QUILL" batch -m "$TINY/shards" -n 4 >out
    echo hello | "$QUILL" -m "$TINY/model" --chat -n 4 >out
    "$QUILL" prefill -m "$TINY/llama" --raw --kv-out kept "the users and the others" </dev/null
    "$QUILL" decode -m "$TINY/llama" --greedy -n 8 --kv-in kept >passed
    "$QUILL" -m "$TINY/llama" --raw --greedy -n 8 "the users and the others" </dev/null >out
    cmp out passed
    QUILL_MODEL="$TINY/llama" "$QUILL" --raw -n 3 "the" >out
    cd "$TINY/llama"
    "$QUILL" -m . --raw -n 3 "the" >/dev/null
}

@test "quantising a directory gives the file that quantising its GGUF file gives" {
    for how in "shards F16" "model Q8_0" "llama BF16"; do
        # shellcheck disable=SC2086
        set -- $how
        "$QUILL" quantize "$TINY/$1" "$1.gguf" "$2" 2>errors
        [ "$(grep -vc ': other programs do not read it as quill does: ' errors)" -eq 1 ]
        [ "$(grep -c 'rows of Q and K' errors)" -eq 0 ]
        "$QUILL" logits -m "$1.gguf" --tokens 5,6,7 --isa scalar >"$1.out"
    done
    "$QUILL" quantize "$TINY/model.gguf" file.gguf Q8_0 2>errors
    "$QUILL" logits -m file.gguf --tokens 5,6,7 --isa scalar | cmp - model.out
    "$QUILL" tokenize -m shards.gguf --ids "12 the users' things" >file
    "$QUILL" tokenize -m "$TINY/shards" --ids "12 the users' things" | cmp - file
}

@test "quantising a directory writes the keys of other programs, and says what they read otherwise" {
    [ -n "$QUILL_TEST_DATA" ] || skip "needs QUILL_TEST_DATA"
    "$QUILL" quantize "$QUILL_TEST_DATA/golden/hf/qwen3" names.gguf F32 2>errors
    grep -q "names.gguf: other programs do not read it as quill does: the Unicode form of texts$" errors
    "$QUILL" inspect -m names.gguf --json | grep -q '"tokenizer.ggml.pre": *"qwen2"'
    "$QUILL" quantize "$QUILL_TEST_DATA/golden/hf/llama" names.gguf F32 2>errors
    "$QUILL" inspect -m names.gguf --json >out
    grep -q '"tokenizer.ggml.scores"' out
    [ "$(grep -c 'quill.rope.halves' out)" -eq 0 ]
    "$QUILL" quantize names.gguf again.gguf F32 2>errors
    tokens="$(tr -s ' \n' ',,' <"$QUILL_TEST_DATA/golden/hf/tokens.txt" | sed 's/,$//')"
    "$QUILL" logits -m names.gguf --tokens "$tokens" --isa scalar >first
    "$QUILL" logits -m again.gguf --tokens "$tokens" --isa scalar | cmp - first
    "$QUILL" tokenize -m again.gguf --ids "the users' things  <s> 12" >file
    "$QUILL" tokenize -m "$QUILL_TEST_DATA/golden/hf/llama" --ids "the users' things  <s> 12" | cmp - file
}

@test "inspect shows a directory" {
    "$QUILL" inspect -m "$TINY/shards" >out
    grep -q "^file *$TINY/shards, safetensors in 3 files, " out
    grep -q "^model *gemma3, shards, " out
    grep -q "^tokenizer *llama, 320 tokens" out
    grep -q "^types .*BF16: " out
    "$QUILL" inspect -m "$TINY/model/" --json >out
    grep -q '"format": *"safetensors in 1 file"' out
    "$QUILL" inspect -m "$TINY/model.gguf" >out
    grep -q "^file .*, GGUF v3, " out
}

@test "a missing or broken file of a directory is one line that names it" {
    mkdir empty
    refused 3 "without config.json" -m empty hi
    refused 3 "a file, a directory or a model in the cache expected" -m missing hi
    cp -r "$TINY/shards" d
    refused 2 "--no-mmap: a GGUF file expected" -m d --no-mmap hi
    refused 2 "d is a directory and has its own vocabulary" -m d -z tokenizer.bin hi
    refused 3 "a safetensors file; name its directory" -m d/model-00001-of-00003.safetensors hi
    rm d/model-00002-of-00003.safetensors
    refused 3 "model-00002-of-00003.safetensors expected, it is missing" -m d hi
    head -c 2000 "$TINY/shards/model-00002-of-00003.safetensors" >d/model-00002-of-00003.safetensors
    refused 3 "d/model-00002-of-00003.safetensors: " -m d hi
    cp "$TINY/shards/model-00002-of-00003.safetensors" d
    sed -i 's/gemma3_text/gemma7/' d/config.json
    refused 3 "d/config.json: model_type: a supported one expected, " -m d hi
    cp "$TINY/shards/config.json" d
    sed -i 's/"hidden_size": 64/"hidden_size": 32/' d/config.json
    refused 3 "token_embd.weight" -m d hi
    cp "$TINY/shards/config.json" d
    rm d/tokenizer.json
    refused 3 "d: tokenizer.json expected, none found" -m d hi
    "$QUILL" logits -m d --tokens 1,2 >/dev/null # needs none
    echo '{"model": {"type": "Unigram"}}' >d/tokenizer.json
    refused 3 "d/tokenizer.json: model.type: BPE expected, Unigram found" -m d hi
    cp "$TINY/shards/tokenizer.json" d
    echo '{' >d/tokenizer_config.json
    refused 3 "d/tokenizer_config.json: line " -m d hi
    rm d/tokenizer_config.json
    "$QUILL" -m d --raw -n 2 hi >/dev/null
}

@test "TinyStories-656K gives its reference text from its directory" {
    needs_data models/TinyStories-656K
    text="$data/models/golden/TinyStories-656K.greedy.txt"
    for isa in $(isas); do
        "$QUILL" -m "$data/models/TinyStories-656K" --raw --greedy --echo -n 260 --isa "$isa" "Once upon a time" >out </dev/null
        head -c "$(stat -c %s "$text")" out | cmp - "$text"
    done
}

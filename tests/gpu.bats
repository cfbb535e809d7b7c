#!/usr/bin/env bats
# The command line with a GPU, tested without one: quill_twin is quill whose GPU is a twin in host memory.

load rig/helpers

models() {
    "$MAKE_TINY" "$TINY/tiny.gguf" n_layers=3
    export QUILL_MODEL="$TINY/tiny.gguf"
}

setup() {
    enter
    [ -x "$TWIN" ] # built by `make test-build`
}

@test "a text is the same on the GPU, on the CPU, and with layers on both" {
    "$TWIN" --device cpu --greedy -n 12 "a prompt of some length" </dev/null >cpu
    "$TWIN" --device cuda --greedy -n 12 "a prompt of some length" </dev/null >gpu
    "$TWIN" -ngl 2 --greedy -n 12 "a prompt of some length" </dev/null >both 2>errors
    cmp cpu gpu
    cmp cpu both
    grep -q "2 of 3 layers are on the GPU" errors
    [ "$("$TWIN" -q -ngl 2 --greedy -n 2 hi 2>&1 >/dev/null </dev/null)" = "" ]
}

# part WANT GOT: greedy answers in JSON may part only where the first one's two best tokens are close
part() {
    python3 - "$@" <<'PYTHON'
import json, sys
want, got = (json.load(open(f))["tokens"] for f in sys.argv[1:])
for i, (a, b) in enumerate(zip(want, got)):
    if a["id"] != b["id"]:
        margin = a["top"][0]["logprob"] - a["top"][1]["logprob"]
        sys.exit(f"parts at token {i}, where two are {margin} apart" if margin > 0.05 or b["id"] != a["top"][1]["id"] else 0)
sys.exit(len(want) != len(got))
PYTHON
}

@test "every KV type on the GPU, rotated or not, gives the texts of the CPU" {
    head -c 91 /dev/zero | tr '\0' 'b' >prompt # with the answer, over the end of a group of 32 slots
    for types in "-ctk fp8 -ctv fp8" "-ctk q8_0 -ctv q8_0 --kv-rotate" "-ctk q4_0 -ctv q4_0 --kv-layout paged --kv-block 16" \
        "-ctk kivi2 -ctv kivi2" "-ctk q8_0 -ctv q4_0 --kv-rotate" "-ctk kivi2 -ctv f16 --kv-layout paged" "-ctk bf16 -ctv f32 --kv-rotate"; do
        for device in "cpu --isa scalar" cuda "cuda -ub 33" "cuda -ngl 2"; do
            # shellcheck disable=SC2086 # words
            "$TWIN" -q --device $device $types --greedy --ignore-eos --json --logprobs 2 -n 8 -f prompt </dev/null >"${device// /}"
        done
        for device in cuda cuda-ub33 cuda-ngl2; do part cpu--isascalar $device; done
    done
}

@test "KV files of quantised types move from the GPU to the CPU and back" {
    head -c 88 /dev/zero | tr '\0' 'c' >prompt # with the answer, over the end of a group of 32 slots
    for types in "-ctk q8_0 -ctv q4_0" "-ctk fp8 -ctv fp8 --kv-rotate" "-ctk kivi2 -ctv kivi2"; do
        for device in cpu cuda; do
            # shellcheck disable=SC2086
            "$TWIN" prefill --device $device $types -f prompt --kv-out $device.kv
            "$TWIN" kv check $device.kv | grep -q '^good'
        done
        for from in cpu cuda; do
            for to in "cpu --isa scalar" cuda "cuda -ngl 1 --kv-layout paged"; do
                # shellcheck disable=SC2086
                "$TWIN" decode -q --device $to $types --kv-in $from.kv --greedy --ignore-eos --json --logprobs 2 -n 10 >"$from-${to// /}"
            done
            for to in cuda "cuda-ngl1--kv-layoutpaged"; do part "$from-cpu--isascalar" "$from-$to"; done
        done
    done
    for run in 1 2; do # and through a directory
        "$TWIN" --device cuda -ctk kivi2 -ctv q8_0 --kv-dir dir -v --greedy -n 4 -f prompt </dev/null >text$run 2>errors
    done
    grep -q "^KV dir     64 slots from dir" errors
    cmp text1 text2
}

@test "eviction on the GPU removes the slots that it removes on the CPU" {
    "$MAKE_TINY" llama.gguf n_layers=3 ctx=64
    "$MAKE_TINY" gemma2.gguf arch=gemma2 n_layers=3 ctx=64
    for model in llama gemma2; do # the one's layers lie in one pool, the other's in two
        for plan in sinks,window=40 shift,sink=2 h2o,heavy=20,recent=16 snapkv,cap=24,window=8; do
            n=$([ "${plan%%,*}" = shift ] && echo 28 || echo 16) # the prompt has 46 tokens; `shift` begins at 64
            for device in "cpu --isa scalar" cuda "cuda -ngl 1" "cuda --kv-layout paged --kv-block 8 -ub 20"; do
                # shellcheck disable=SC2086
                "$TWIN" -q -m $model.gguf --device $device --evict $plan --greedy --ignore-eos --json --logprobs 2 -n $n \
                    "a prompt of some length, for some have to go" </dev/null >"${device// /}"
            done
            for device in cuda cuda-ngl1 cuda--kv-layoutpaged--kv-block8-ub20; do part cpu--isascalar $device; done
        done
    done
    "$TWIN" -m llama.gguf --device cuda --evict h2o,heavy=20,recent=16 -v --greedy --ignore-eos -n 12 "a prompt of some length, for some have to go" 2>&1 >/dev/null </dev/null |
        grep -Eq '^graphs +[0-9]+ steps of few rows, [1-9][0-9]* graph launches'
}

@test "--verbose names the device of each layer and counts graphs" {
    [ "$(code "$TWIN" --device cuda -v --greedy -n 5 --ignore-eos hi)" -eq 0 ]
    tr -s '\n ' ' ' <errors >line # as wide as it takes
    grep -q " gpu .*GPU twin sm_90: layers 0 to 2 of 3, head, embedding; decode fused kernels in graphs; prefill cuBLAS, not opened" line
    grep -Eq " graphs 5 steps of few rows, 3 graph launches \\(0.60 a step\\), 1 captured" line
    grep -q "on the GPU" errors
    [ "$(code "$TWIN" --device cuda -v -n 1 "a prompt of more rows than the fused kernels take at a time")" -eq 0 ]
    tr -s '\n ' ' ' <errors | grep -q " gpu .*; prefill plain products"
    [ "$(code "$TWIN" -v -n 1 hi)" -eq 0 ]
    grep -q "on the CPU: a small model" errors
    "$TWIN" --version | grep -q "^CUDA: 13.0; GPU twin, sm_90"
}

@test "tokens drawn on the GPU are those that the host draws from the same logits" {
    for how in --greedy --top-k=9 "--temp 1.5 --top-k 0" "--top-p 0.5" "--min-p 0.3 --top-p 1" "--xtc-probability 0.7" \
        "--repeat-penalty 1.4 --presence-penalty 0.3" "--frequency-penalty 0.5 --repeat-last-n -1" --ignore-eos; do
        # shellcheck disable=SC2086 # words
        "$TWIN" --device cuda --seed 5 $how -v --json -n 10 "a prompt of some length" </dev/null >drawn 2>errors
        grep -q "^sampling   [1-9][0-9]* tokens on the GPU, [1-9].* ahead of the host; 0 rows of logits" errors
        # shellcheck disable=SC2086
        "$TWIN" --device cuda --seed 5 $how -v --json --logprobs 0 -n 10 "a prompt of some length" </dev/null >json 2>errors
        grep -q "^sampling   0 tokens on the GPU, .*; [1-9][0-9]* rows of logits" errors
        python3 -c 'import json; a, b = (json.load(open(f))["text"] for f in ("json", "drawn")); assert a and a == b, (a, b)'
    done
    "$TWIN" --device cuda -ngl 2 --seed 5 -v -n 14 "a prompt of some length" </dev/null 2>&1 >/dev/null |
        grep -q "^sampling   [1-9].* tokens on the GPU, 0 of them ahead"
    "$TWIN" --device cuda --typical 0.5 -v -n 14 "a prompt of some length" </dev/null 2>&1 >/dev/null |
        grep -q "^sampling   0 tokens on the GPU"
}

# Jobs of all sorts: with and without logits to be seen, several answers to a prompt, a stop string, more than blocks.
jobs() {
    for i in 1 2 3 4; do
        printf '{"id":"%d","prompt":"a prompt of some length %d","n_predict":%d,"seed":%d,"ignore_eos":true}\n' "$i" "$i" $((10 + 2 * i)) "$i"
    done
    echo '{"id":"5","prompt":"two of it","n":2,"n_predict":6,"seed":5}'
    echo '{"id":"6","prompt":"looked at","logprobs":1,"n_predict":5,"seed":6}'
    echo '{"id":"7","prompt":"looked at","greedy":true,"n_predict":5,"stop":["a"]}'
}
@test "quill batch on the GPU gives the CPU's answers, with preempted sequences and steps begun ahead" {
    jobs >jobs.jsonl
    for i in 8 9; do # some that grow until they are in each other's way
        printf '{"id":"%d","prompt":"a prompt of some length %d","n_predict":26,"seed":%d,"ignore_eos":true}\n' "$i" "$i" "$i"
    done >>jobs.jsonl
    for device in cpu cuda; do
        "$TWIN" batch --device $device -v -c 64 --kv-block 8 --kv-mem 50k jobs.jsonl >$device.jsonl 2>$device.err </dev/null
        grep -q "9 answered, 0 failed" $device.err
        batch_texts $device.jsonl >$device.texts
    done
    grep -Eq "[1-9][0-9]* preemptions" cuda.err
    grep -Eq "^sampling   [1-9].* tokens on the GPU, [1-9].* ahead of the host; [1-9][0-9]* rows" cuda.err
    diff cpu.texts cuda.texts
    for device in "cpu --isa scalar" cuda; do # groups that are sealed, and begun, in steps ahead
        # shellcheck disable=SC2086
        "$TWIN" batch --device $device -v -c 96 -ctk q8_0 -ctv kivi2 --kv-mem 200k jobs.jsonl >sealed.jsonl 2>sealed.err </dev/null
        grep -q "9 answered, 0 failed" sealed.err
        batch_texts sealed.jsonl >"sealed.${device%% *}"
    done
    grep -Eq "^sampling   [1-9].* tokens on the GPU, [1-9].* ahead of the host" sealed.err
    diff sealed.cpu sealed.cuda
    [ "$(code "$TWIN" batch --device cuda --dry-run jobs.jsonl)" -eq 0 ]
    grep -q "on the GPU .* 3 of 3 layers" errors
}

@test "a chat on the GPU gives the CPU's turns, also after /regen and /undo" {
    "$MAKE_TINY" chat.gguf arch=qwen2 template=chatml ctx=512
    for device in cpu cuda; do
        printf 'one\ntwo\n/regen\n/undo\nthree\n' |
            "$TWIN" -i -m chat.gguf --device $device --seed 3 -n 6 -v >$device 2>$device.err
    done
    [ -s cpu ]
    cmp cpu cuda
    grep -q " cached" cuda.err
}

@test "without a usable GPU --device cuda is exit 3 with the reason, and auto uses the CPU" {
    for how in "none:no NVIDIA driver" "old:driver for CUDA 13.0"; do
        export QUILL_TWIN="${how%%:*}"
        [ "$(code "$TWIN" --device cuda hi)" -eq 3 ]
        grep -q "^quill: --device cuda: no usable GPU: .*${how#*:}" errors
        [ "$(wc -l <errors)" -eq 1 ]
        [ "$(code "$TWIN" -ngl 1 hi)" -eq 3 ]
        grep -q "^quill: -ngl: no usable GPU" errors
        [ "$(code env QUILL_DEVICE=cuda "$TWIN" hi)" -eq 3 ]
        [ "$(code "$TWIN" -n 1 hi)" -eq 0 ]
        [ ! -s errors ]
    done
}

@test "GPU options that contradict each other are refused" {
    [ "$(code "$TWIN" --device cpu -ngl 2 hi)" -eq 2 ]
    grep -q -- "-ngl" errors
    [ "$(code "$TWIN" --device cuda -ngl 0 -n 1 hi)" -eq 0 ]
}

@test "too little GPU memory is exit 4 with the budget and advice, or as many layers as fit" {
    export QUILL_TWIN_MEMORY=1000
    [ "$(code "$TWIN" --device cuda hi)" -eq 4 ]
    grep -q "do not fit on the GPU; try" errors
    grep -q "on the GPU .* of 3 layers: weights" errors
    [ "$(code "$TWIN" -ngl all hi)" -eq 4 ]
    [ "$(code "$TWIN" -n 1 hi)" -eq 0 ]
    export QUILL_TWIN_MEMORY=1000000000
    [ "$(code "$TWIN" --device cuda -c 9000000 hi)" -eq 4 ]
    [ "$(code "$TWIN" --device cuda -ngl 1 --dry-run hi)" -eq 0 ]
    grep -q "on the GPU .* 1 of 3 layers" errors
}

@test "a GPU without room for a layer leaves the CPU its whole context" {
    # of a size at which `auto` uses a GPU
    "$MAKE_TINY" large.gguf dim=1024 n_layers=2 ffn=16384 ctx=131072 type=F16 n_heads=8 n_kv_heads=8
    QUILL_TWIN_MEMORY=60000000 "$TWIN" -m large.gguf --dry-run hi 2>out </dev/null
    grep -q " 1 x 131072 slots " out
    QUILL_TWIN_MEMORY=4000000000 "$TWIN" -m large.gguf --dry-run hi 2>out </dev/null
    grep -q "on the GPU .* 2 of 2 layers" out
    rm large.gguf
}

@test "a batch plans the GPU's memory for one context; its pool takes half of what is left" {
    "$MAKE_TINY" long.gguf ctx=65536
    : >none
    # 64 sequences of 8192 slots would take 268 MB
    QUILL_TWIN_MEMORY=420000000 "$TWIN" batch --device cuda -m long.gguf -c 8192 --dry-run none 2>out </dev/null
    grep -q "on the GPU .* 2 of 2 layers: .* KV cache 72.2" out
    QUILL_TWIN_MEMORY=420000000 "$TWIN" batch --device cuda -m long.gguf -c 8192 --kv-mem 100m --dry-run none 2>out </dev/null
    grep -q "on the GPU .* 2 of 2 layers: .* KV cache 10[0-5]" out
    # K and V that are on the GPU may be larger than the host's memory
    QUILL_TWIN_MEMORY=2000000000000 "$TWIN" batch --device cuda -m long.gguf -c 1000000000 -np 1 --dry-run none 2>out </dev/null
    grep -q "on the GPU .* 2 of 2 layers: .* KV cache 512000" out
}

@test "experts stay on the CPU where --cpu-moe or --n-cpu-moe says so, and the text is the same" {
    "$MAKE_TINY" "$TINY/moe.gguf" arch=qwen3moe n_layers=3
    export QUILL_MODEL="$TINY/moe.gguf"
    "$TWIN" --device cpu --greedy -n 8 "a prompt of some length" </dev/null >want
    "$TWIN" --device cuda --greedy -n 8 "a prompt of some length" </dev/null >got
    cmp want got
    [ "$(code "$TWIN" --device cuda --cpu-moe -v --greedy -n 8 "a prompt of some length")" -eq 0 ]
    cmp want out
    unwrapped <errors | grep -q "layers 0 to 2 of 3, experts of 3 on the CPU"
    "$TWIN" --device cuda -ngl 2 --n-cpu-moe 2 --greedy -n 8 "a prompt of some length" </dev/null >got 2>/dev/null
    cmp want got
    # the plan counts what stays
    weights() { "$TWIN" --device cuda --dry-run "$@" hi 2>&1 </dev/null | sed -n 's/.*on the GPU.*weights \([0-9.]*\).*/\1/p'; }
    all=$(weights) kept=$(weights --n-cpu-moe 1) none=$(weights --cpu-moe)
    python3 -c 'import sys; a, b, c = map(float, sys.argv[1:]); sys.exit(not a > b > c > 0)' "$all" "$kept" "$none"
    "$TWIN" --device cuda --dry-run --n-cpu-moe 2 hi 2>&1 </dev/null | grep -q "3 of 3 layers without the experts of 2"
    # beside the CPU alone it changes nothing
    [ "$(code "$TWIN" --device cpu --cpu-moe --greedy -n 8 "a prompt of some length")" -eq 0 ]
    cmp want out
}

@test "without cuBLAS the fused kernels compute everything, and --verbose says so" {
    "$TWIN" --device cuda --greedy -n 8 "a prompt of some length" </dev/null >with
    export QUILL_TWIN=noblas
    [ "$(code "$TWIN" --device cuda -v --greedy -n 8 "a prompt of some length")" -eq 0 ]
    unwrapped <errors | grep -q "fused kernels for prefill too, which is slow: cuBLAS cannot be opened"
    cmp with out
}

@test "bench runs on the GPU" {
    "$TWIN" bench --device cuda -p 10 -n 3 -r 1 -o json </dev/null >j 2>errors
    python3 -c 'import json,sys; m=json.load(open("j"))["model"]; assert m["device"]=="GPU twin" and m["isa"]=="sm_90" and m["gpu_layers"]==3, m'
    "$TWIN" bench --roofline -p 0 -n 0 --device cuda -o json </dev/null >j 2>errors
    python3 -c 'import json; g=json.load(open("j"))["machine"]["gpu"]; assert g["name"]=="GPU twin" and all(v > 0 for v in g.values() if v != g["name"]), g'
}

@test "bench --ops times each operation, on the GPU also as graphs and begun early" {
    "$TWIN" bench --ops --device cuda -d 20,3 --sequences 3 -o json </dev/null >j 2>errors
    "$TWIN" bench --ops --device cpu -d 20 -o json </dev/null >host 2>>errors
    python3 - j host <<'PYTHON'
import json, sys
for name, n in zip(sys.argv[1:], (2, 1)):
    found = json.load(open(name))
    assert len(found) == n, found
    for r in found:
        ops = {o["op"]: o for o in r["operations"]}
        assert list(ops) == ["attn_in", "attention", "attn_out", "ffn_in", "ffn_out", "head", "sampling"], ops
        assert all(o["us"] > 0 and o["bytes"] > 0 and ("early_us" in o) == (name == "j") for o in r["operations"]), ops
    depths = [next(o["bytes"] for o in r["operations"] if o["op"] == "attention") for r in found]
    assert n == 1 or depths[0] > 3 * depths[1], depths
PYTHON
    [ "$(code "$TWIN" bench --ops -ngl 1)" -eq 2 ]
    grep -q 'all layers on one device expected' errors
}

@test "gpu_check.sh says in a line that there is no GPU" {
    command -v nvidia-smi >/dev/null && nvidia-smi >/dev/null 2>&1 && skip "there is a GPU here"
    [ "$(code "$TOP/scripts/gpu_check.sh" "$PWD/results")" -eq 1 ]
    grep -q "^gpu_check: no GPU" errors
    [ "$(wc -l <errors)" -eq 1 ]
    [ ! -e results ]
}

@test "gpu_check.sh keeps its results and its logs, and leaves no files behind" {
    mkdir -p bin tmp tree/scripts tree/tests tree/build/release/tests # in a tree of its own: the real one may have kernel tests
    cp "$TOP/scripts/gpu_check.sh" tree/scripts
    touch tree/tests/test_gpu_one.c
    printf '#!/bin/sh\ncase "$*" in *name*) echo "A GPU" ;; *) echo 580.1 ;; esac\n' >bin/nvidia-smi
    printf '#!/bin/sh\necho "all passed"\n' >tree/build/release/tests/gpu_one
    cat >bin/quill <<'SCRIPT'
#!/bin/bash
args=()
for arg; do
    case $arg in 8b | 1b | dim=*) arg=dim=256,layers=1,heads=2,kv_heads=2,ffn=256,vocab=512 ;; esac
    args+=("$arg")
done
exec "$TWIN" "${args[@]}"
SCRIPT
    chmod +x bin/* tree/build/release/tests/gpu_one
    # few seconds: the models are made, and most of the steps are left out
    TMPDIR="$PWD/tmp" PATH="$PWD/bin:$PATH" QUILL="$PWD/bin/quill" QUILL_TEST_DATA='' SECONDS_FOR_ALL=12 \
        tree/scripts/gpu_check.sh results >output 2>errors || { cat output errors; false; }
    head -n 1 tree/results/gpu_check.md | grep -q '^A GPU, driver 580.1, .*: complete$'
    grep -q '^- left out: no time for the logits of F32' tree/results/gpu_check.md
    tar -tzf tree/results/gpu_check.logs.tar.gz | grep -q '/gpu_one.log$'
    grep -q 'gpu_check.logs.tar.gz$' output
    [ -z "$(ls tmp)" ]
}

@test "--kv-dir: a block is reused on the device that computed it, not on another" {
    printf 'a prompt of some length, longer than a block of thirty-two slots, and then than another one' >prompt
    cached() { "$TWIN" "$@" --kv-dir kv --json -n 2 -f prompt </dev/null | python3 -c 'import json; print(json.load(open(0))["cached_tokens"])'; }
    for how in "--device cpu" "--device cuda" "-ngl 1" "-ngl 2"; do
        # shellcheck disable=SC2086 # words
        [ "$(cached $how)" -eq 0 ]
        # shellcheck disable=SC2086
        [ "$(cached $how)" -ge 64 ]
    done
}

@test "untimed kernels run only if QUILL_GPU_TRY names them" {
    jobs >jobs.jsonl
    head -n 1 jobs.jsonl | "$TWIN" batch --device cuda -v -np 8 2>&1 >/dev/null | unwrapped | grep -q "fused kernels in graphs; prefill"
    "$TWIN" batch --device cuda -v -np 8 jobs.jsonl >jsonl 2>errors </dev/null
    grep -q "7 answered, 0 failed" errors
    QUILL_GPU_TRY=early,ring "$TWIN" --device cuda --seed 5 -v -n 8 "a prompt of some length" </dev/null >early 2>errors
    unwrapped <errors | grep -q "in graphs, weights through a ring, begun early; prefill"
    QUILL_GPU_TRY=wgmma "$TWIN" --device cuda --seed 5 -v -n 8 "a prompt of some length" </dev/null 2>errors >wgmma
    [ "$(grep -c wgmma errors)" -eq 0 ] # which the twin does not support
    "$TWIN" --device cuda --seed 5 -n 8 "a prompt of some length" </dev/null | cmp - early
    export QUILL_GPU_TRY=ring,rings
    [ "$(code "$TWIN" --device cuda hi)" -eq 2 ]
    grep -q '^quill: QUILL_GPU_TRY: ring, wgmma, early, or several of them with commas expected; "rings" found' errors
}

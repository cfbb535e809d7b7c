#!/usr/bin/env bats
# quantize.bats: quill quantize: types, mixes, overrides, what is kept, and bad input.

load rig/helpers

models() {
    "$MAKE_TINY" "$TINY/f32.gguf" dim=256 ffn=512 type=F32 template=chatml
    "$MAKE_TINY" "$TINY/odd.gguf" dim=96 head_dim=24 ffn=90 type=F32
}

# types FILE: the types of its tensors and how many have each.
types() {
    "$QUILL" inspect --json "$1" | python3 -c 'import json, sys
from collections import Counter
print(*sorted("%s:%d" % c for c in Counter(t["type"] for t in json.load(sys.stdin)["tensors"]).items()))'
}

@test "every type is written and read back, and the model answers" {
    for type in F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4 TQ1_0 TQ2_0; do
        "$QUILL" quantize -q "$TINY/f32.gguf" out.gguf $type
        [[ " $(types out.gguf)" == *" $type:"* ]]
        "$QUILL" -m out.gguf --raw --greedy -n 4 -p abc >/dev/null
        "$QUILL" inspect --check-tensors out.gguf >/dev/null
    done
}

@test "F32 to F32 keeps every bit of the weights, and metadata stays" {
    "$QUILL" quantize -q "$TINY/f32.gguf" same.gguf F32
    "$QUILL" logits -m "$TINY/f32.gguf" --tokens 5,6,7 >a
    "$QUILL" logits -m same.gguf --tokens 5,6,7 >b
    cmp a b
    [ "$("$QUILL" -m same.gguf --dump-prompt -n 1 -p hi 2>&1 >/dev/null)" = \
        "$("$QUILL" -m "$TINY/f32.gguf" --dump-prompt -n 1 -p hi 2>&1 >/dev/null)" ]
    "$QUILL" inspect same.gguf | grep -q 'quill.quantize.source .*"f32.gguf"'
    "$QUILL" inspect same.gguf | grep -q 'general.quantization_version .*2'
}

@test "keys of an earlier quantisation do not stay" {
    "$QUILL" quantize -q "$TINY/f32.gguf" first.gguf Q8_0 --tensor 'blk.0.attn_v.weight=F16' --prune 0.5
    "$QUILL" inspect first.gguf | grep -q 'quill.quantize.tensors'
    "$QUILL" quantize -q first.gguf second.gguf Q4_0
    "$QUILL" inspect second.gguf | grep 'quill.quantize' >keys
    grep -q 'type .*"Q4_0"' keys
    not grep -q 'tensors\|prune' keys
}

@test "a tensor that has its type already is copied" {
    "$QUILL" quantize -q "$TINY/f32.gguf" once.gguf Q4_K
    "$QUILL" quantize once.gguf twice.gguf Q4_K 2>said
    "$QUILL" logits -m once.gguf --tokens 5,6,7 >a
    "$QUILL" logits -m twice.gguf --tokens 5,6,7 >b
    cmp a b
    grep -q 'is quantised already' said
}

@test "mixes and patterns choose types by name" {
    needs python3
    "$QUILL" quantize -q "$TINY/f32.gguf" m.gguf q4_k_m
    [[ "$(types m.gguf)" == *Q4_K:*Q6_K:* ]]
    "$QUILL" quantize -q "$TINY/f32.gguf" p.gguf Q4_0 --tensor 'blk.0.ffn_*=Q8_0,output.weight=F16,blk.?.attn_q.weight=q6_k'
    [[ "$(types p.gguf)" == "F16:1 F32:5 Q4_0:10 Q6_K:2 Q8_0:3" ]]
    run "$QUILL" quantize "$TINY/f32.gguf" p.gguf Q4_0 --tensor 'nothing.*=Q8_0'
    [ "$status" -eq 2 ]
    [[ "$output" == *"nothing.*: a pattern that matches a matrix expected"* ]]
}

# layers_of TYPE PART FILE MIX: the layers whose PART gets TYPE
layers_of() {
    "$QUILL" quantize --dry-run "$3" out.gguf "$4" | sed -nE "s/^blk\.([0-9]+)\.$2\.weight .* $1 +[0-9.]+ [KMG]?B$/\1/p" | sort -n | xargs
}

@test "a mix raises the layers that it raises in published files" {
    "$QUILL" bench -q --shape dim=256,layers=32,heads=4,kv_heads=1,ffn=256,vocab=300 --type F16 --save dense.gguf -p 0 -n 0
    all="$(seq 0 31 | xargs)"
    some="0 1 2 3 6 9 12 15 18 21 24 27 28 29 30 31"
    [ "$(layers_of Q5_K attn_v dense.gguf Q3_K_M)" = "0 1" ]
    [ "$(layers_of Q4_K attn_v dense.gguf Q3_K_M)" = "${all#0 1 }" ]
    [ "$(layers_of Q4_K attn_output dense.gguf Q3_K_M)" = "$all" ]
    [ "$(layers_of Q5_K ffn_down dense.gguf Q3_K_M)" = "0 1" ]
    [ "$(layers_of Q4_K ffn_down dense.gguf Q3_K_M)" = "${all#0 1 }" ]
    [ "$(layers_of Q5_K attn_v dense.gguf Q4_K_S)" = "0 1 2 3" ]
    [ "$(layers_of Q5_K ffn_down dense.gguf Q4_K_S)" = "0 1 2 3" ]
    [ "$(layers_of Q4_K ffn_down dense.gguf Q2_K_S)" = "0 1 2 3" ]
    [ "$(layers_of Q6_K attn_v dense.gguf Q4_K_M)" = "$some" ]
    [ "$(layers_of Q6_K ffn_down dense.gguf Q5_K_M)" = "$some" ]
    # of Wv only the layers with attention count
    "$QUILL" bench -q --shape delta-1b,layers=16,dim=256,ffn=256,vocab=300 --type F16 --save hybrid.gguf -p 0 -n 0
    [ "$(layers_of Q5_K attn_v hybrid.gguf Q3_K_M)" = "3 7" ]
    [ "$(layers_of Q5_K ffn_down hybrid.gguf Q3_K_M)" = "0" ]
    # shared experts are like the others
    "$MAKE_TINY" experts.gguf arch=qwen35moe dim=256 ffn=256 n_layers=8 type=F32
    [ "$(layers_of Q6_K ffn_down_exps experts.gguf Q4_K_M)" = "0 3 6 7" ]
    [ "$(layers_of Q6_K ffn_down_shexp experts.gguf Q4_K_M)" = "0 3 6 7" ]
}

@test "the sizes before and after are both those of the tensors" {
    "$QUILL" quantize "$TINY/f32.gguf" same.gguf F32 2>said
    size="$("$QUILL" quantize --dry-run "$TINY/f32.gguf" out.gguf F32 2>/dev/null | sed -nE 's/^[0-9]+ tensors, (.*), .* bits.*/\1/p')"
    grep -qF "same.gguf: F32, $size from $size, " said
}

@test "a dry run writes nothing and shows the types" {
    run "$QUILL" quantize --dry-run "$TINY/f32.gguf" none.gguf Q5_K
    [ "$status" -eq 0 ]
    [[ "${lines[-1]}" == *"bits per weight" ]]
    "$QUILL" quantize -q "$TINY/f32.gguf" there.gguf Q5_K
    [ ! -e none.gguf ]
    echo "$output" | grep -q 'blk.0.ffn_down.weight *512 x 256 *F32 *Q5_K'
}

@test "rows that are not whole blocks get the next type that fits, with one note" {
    run "$QUILL" quantize "$TINY/odd.gguf" odd.gguf Q4_K
    [ "$status" -eq 0 ]
    [[ "$output" == *"rows of 96 weights are not whole blocks of Q4_K: using Q5_0"* ]]
    [[ "$output" == *"rows of 90 weights are not whole blocks of Q4_K: using F16"* ]]
    "$QUILL" -m odd.gguf --raw --greedy -n 4 -p abc >/dev/null
}

@test "threads and the instruction set do not change a byte" {
    "$QUILL" quantize -q -t 1 "$TINY/f32.gguf" one.gguf Q3_K_M
    "$QUILL" quantize -q -t 4 "$TINY/f32.gguf" four.gguf Q3_K_M
    cmp one.gguf four.gguf
}

@test "an importance matrix is made, named in the metadata, and lowers the error on its text" {
    for i in $(seq 60); do echo "Tom went to the mill $i times. He put the blue cup there."; done >text
    "$QUILL" perplexity -m "$TINY/f32.gguf" -f text --imatrix-out i.gguf --kl-base logits >/dev/null
    "$QUILL" quantize -q "$TINY/f32.gguf" plain.gguf Q3_K
    "$QUILL" quantize -q --imatrix i.gguf "$TINY/f32.gguf" with.gguf Q3_K
    "$QUILL" inspect with.gguf | grep -q 'quantize.imatrix.dataset .*"text"'
    not cmp -s plain.gguf with.gguf
    for m in plain with; do "$QUILL" perplexity --json -m $m.gguf -f text --kl logits >$m.json; done
    python3 -c 'import json; p, w = (json.load(open(n + ".json"))["kl"]["mean"] for n in ("plain", "with")); print(p, w); assert 0 < w < p'
    # the sums of a text do not depend on how it is cut into steps
    "$QUILL" perplexity -m "$TINY/f32.gguf" -f text -ub 7 --isa scalar --imatrix-out j.gguf >/dev/null
    python3 -c 'import struct
a, b = (open(n, "rb").read() for n in ("i.gguf", "j.gguf"))
assert len(a) == len(b)
at = len(a) - 4096
for x, y in zip(struct.iter_unpack("<f", a[at:]), struct.iter_unpack("<f", b[at:])):
    assert abs(x[0] - y[0]) <= 1e-3 * abs(x[0]) + 1e-3, (x, y)'
}

@test "the divergence of a model from itself is zero, and another text is refused" {
    echo "Tom went to the mill. He put the blue cup there." >text
    "$QUILL" perplexity -m "$TINY/f32.gguf" -f text --kl-base logits >/dev/null
    run "$QUILL" perplexity -m "$TINY/f32.gguf" -f text --kl logits
    [[ "$output" == *"kl mean 0.000000 +- 0.000000  median 0.000000  99% 0.000000  max 0.000000  same top token 100.00%"* ]]
    echo "Another text." >other
    run "$QUILL" perplexity -m "$TINY/f32.gguf" -f other --kl logits
    [ "$status" -eq 3 ]
    [[ "$output" == *"found those of another text"* ]]
    run "$QUILL" perplexity -m "$TINY/f32.gguf" -f text --kl text
    [ "$status" -eq 3 ]
    [[ "$output" == *"found another format"* ]]
    head -c 100 logits >cut
    run "$QUILL" perplexity -m "$TINY/f32.gguf" -f text --kl cut
    [ "$status" -eq 3 ]
    [[ "$output" == *"bytes expected, found 100"* ]]
}

@test "an importance matrix of another model is refused" {
    echo "Tom went to the mill." >text
    "$QUILL" perplexity -m "$TINY/odd.gguf" -f text --imatrix-out odd.imatrix >/dev/null
    run "$QUILL" quantize --imatrix odd.imatrix "$TINY/f32.gguf" out.gguf Q4_K
    [ "$status" -eq 3 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ "$output" == *"columns expected, found 96: the file was made with another model"* ]]
    run "$QUILL" quantize --imatrix "$TINY/f32.gguf" "$TINY/f32.gguf" out.gguf Q4_K
    [ "$status" -eq 3 ]
    [[ "$output" == *"an importance matrix expected"* ]]
    [ ! -e out.gguf ]
}

@test "pruned weights are zero in the file" {
    echo "Tom went to the mill." >text
    "$QUILL" perplexity -m "$TINY/f32.gguf" -f text --imatrix-out i.gguf >/dev/null
    "$QUILL" quantize -q --prune 2:4 "$TINY/f32.gguf" m.gguf F32
    "$QUILL" quantize -q --prune 0.5 --prune-by wanda --imatrix i.gguf "$TINY/f32.gguf" w.gguf F32
    python3 - m.gguf w.gguf <<'P'
import struct, sys
for name in sys.argv[1:]:
    data = open(name, "rb").read()
    zeros = sum(v == (0.0,) for v in struct.iter_unpack("<f", data[len(data) % 4:]))
    print(name, zeros / (len(data) / 4))
    assert 0.40 < zeros / (len(data) / 4) < 0.5  # all matrices but the embedding and the head
P
    "$QUILL" inspect w.gguf | grep -q 'quill.quantize.prune_by .*"wanda"'
    run "$QUILL" quantize --prune 0.5 --prune-by wanda "$TINY/f32.gguf" x.gguf F32
    [ "$status" -eq 2 ]
    [[ "$output" == *"--imatrix FILE expected"* ]]
    run "$QUILL" quantize --prune-by wanda --imatrix i.gguf "$TINY/f32.gguf" x.gguf F32
    [ "$status" -eq 2 ]
    [ "$output" = 'quill: --prune-by: --prune expected with it, found none' ]
    mkdir -p config/quill
    printf 'prune-by = wanda\n' >config/quill/config # only for runs that prune
    XDG_CONFIG_HOME="$PWD/config" "$QUILL" quantize -q --dry-run "$TINY/f32.gguf" x.gguf F32 >/dev/null
    run "$QUILL" quantize --prune 4:2 "$TINY/f32.gguf" x.gguf F32
    [ "$status" -eq 2 ]
    [ ! -e x.gguf ]
}

@test "bad input is one line, and no file is left" {
    run "$QUILL" quantize "$TINY/f32.gguf" out.gguf
    [ "$status" -eq 2 ]
    run "$QUILL" quantize "$TINY/f32.gguf" out.gguf Q9_X
    [ "$status" -eq 2 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ "$output" == *'found "Q9_X"'* && "$output" == *Q4_K_M* ]]
    cp "$TINY/f32.gguf" in.gguf
    run "$QUILL" quantize in.gguf in.gguf Q8_0
    [ "$status" -eq 2 ]
    [[ "$output" == *"found the same"* ]]
    ln in.gguf link.gguf
    run "$QUILL" quantize in.gguf link.gguf Q8_0
    [ "$status" -eq 2 ]
    cmp in.gguf "$TINY/f32.gguf"
    run "$QUILL" quantize "$TINY/f32.gguf" /dev/full/out.gguf Q8_0
    [ "$status" -eq 6 ]
    [ "${#lines[@]}" -eq 1 ]
    mkdir folder
    for out in /nowhere/s.gguf folder ""; do # before any work, and in the user's words
        run "$QUILL" quantize "$TINY/f32.gguf" "$out" Q8_0
        [ "$status" -ne 0 ]
        [ "${#lines[@]}" -eq 1 ]
        [[ "$output" == "quill: ${out:-the name}"* && "$output" != *.quill-* ]]
    done
    run "$QUILL" quantize missing.gguf out.gguf Q8_0
    [ "$status" -eq 3 ]
    [ ! -e out.gguf ]
}

@test "a FIFO and a link as OUT stay, and a file keeps its mode" {
    "$QUILL" quantize -q "$TINY/f32.gguf" want.gguf Q4_0
    mkfifo fifo
    cat fifo >got.gguf &
    "$QUILL" quantize -q "$TINY/f32.gguf" fifo Q4_0
    wait $!
    [ -p fifo ]
    cmp want.gguf got.gguf
    echo old >old.gguf
    chmod 600 old.gguf
    ln -s old.gguf link.gguf
    "$QUILL" quantize -q "$TINY/f32.gguf" link.gguf Q4_0
    [ -L link.gguf ]
    [ "$(stat -c %a old.gguf)" = 600 ]
    cmp want.gguf old.gguf
    cat fifo >base.kl &
    "$QUILL" perplexity -p "some text for the model" -m want.gguf --kl-base fifo >/dev/null
    wait $!
    run -0 "$QUILL" perplexity -p "some text for the model" -m want.gguf --kl base.kl
    [[ "$output" == *"kl mean 0.000000"* ]]
    run -6 "$QUILL" perplexity -p "some text for the model" -m missing.gguf --imatrix-out /nowhere/i.gguf
    [[ "$output" == "quill: /nowhere/i.gguf: cannot create: "* ]]
    [ -z "$(ls -A | grep quill-)" ]
}

# broken VALUE: a copy of the model whose last four bytes of weights, an element of the last tensor, are that float.
broken() {
    python3 -c 'import struct, sys
b = bytearray(open(sys.argv[1], "rb").read())
b[-4:] = struct.pack("<f", float(sys.argv[2]))
open("broken.gguf", "wb").write(b)' "$TINY/f32.gguf" "$1"
}

@test "weights that are not finite or too large are errors that name the tensor" {
    needs python3
    for value in nan inf -inf; do
        broken "$value"
        run "$QUILL" quantize broken.gguf out.gguf Q4_K
        [ "$status" -eq 3 ]
        [ "${#lines[@]}" -eq 1 ]
        [[ "$output" == *"tensor "*": element "*": a finite weight expected, found "* ]]
        [ "$(ls -A)" = broken.gguf ]
    done
    # 70000 is more than the largest half, and less than it times an integer
    broken 70000
    for type in F16 Q4_1 TQ2_0; do
        run -3 "$QUILL" quantize broken.gguf out.gguf $type
        [ "${#lines[@]}" -eq 1 ]
        [[ "$output" == *"tensor "*": element "*" is 70000, $type holds at most 65504; --tensor '"*"=F32' keeps it" ]]
    done
    for type in F32 BF16 Q8_0 Q4_0 Q5_0 MXFP4 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS; do
        "$QUILL" quantize -q broken.gguf out.gguf $type
    done
    broken 8319009
    run -3 "$QUILL" quantize broken.gguf none.gguf Q8_0
    [[ "$output" == *" is 8319009, Q8_0 holds at most 8319008; "* ]]
}

@test "a full disk leaves no file" {
    (
        ulimit -f 1
        run "$QUILL" quantize -q "$TINY/f32.gguf" out.gguf F16
        [ "$status" -eq 6 ]
        [ "${#lines[@]}" -eq 1 ]
    )
    [ -z "$(ls -A)" ]
}

@test "an interruption leaves no file" {
    "$QUILL" bench --shape dim=512,layers=6,heads=8,ffn=2048,vocab=2000 --type F16 --save big.gguf -p 0 -n 0 2>/dev/null
    "$QUILL" quantize -q -t 1 big.gguf out.gguf IQ4_XS &
    for _ in $(seq 200); do ls | grep -q quill- && break; sleep 0.01; done
    kill -TERM $!
    code=0
    wait $! || code=$?
    [ "$code" -eq 143 ]
    [ "$(ls)" = big.gguf ]
}

@test "the bytes are those of the gguf package of Python" {
    needs python3
    run python3 "$BATS_TEST_DIRNAME/rig/quantize_reference.py" "$QUILL" "$TINY/f32.gguf" F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 MXFP4 TQ1_0 TQ2_0
    [ "$status" -ne 77 ] || skip "$output"
    echo "$output"
    [ "$status" -eq 0 ]
    run -0 python3 "$BATS_TEST_DIRNAME/rig/quantize_reference.py" "$QUILL" "$TINY/f32.gguf" Q8_0=70000 Q8_0=-8319008 Q4_0=458528 Q5_0=-982560 \
        MXFP4=70000 MXFP4=3.4e38 BF16=3.38953139e38 Q5_1=65504 TQ1_0=-65504
}

@test "the values are those of the gguf package of Python" {
    needs python3
    run python3 "$BATS_TEST_DIRNAME/rig/types_reference.py" "$QUILL" "$MAKE_TINY" IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S TQ1_0 TQ2_0 \
        Q4_0 Q8_0 IQ4_NL IQ4_XS MXFP4
    [ "$status" -ne 77 ] || skip "$output"
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "types that are only read can be run, and quantising to them is refused" {
    for type in IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S; do
        "$MAKE_TINY" in.gguf dim=256 ffn=512 type=$type
        [[ " $(types in.gguf)" == *" $type:"* ]]
        "$QUILL" -m in.gguf --raw --greedy -n 4 -p abc >/dev/null
        "$QUILL" inspect --check-tensors in.gguf >/dev/null
        run "$QUILL" quantize "$TINY/f32.gguf" out.gguf $type
        [ "$status" -eq 2 ]
        [ "${#lines[@]}" -eq 1 ]
        [[ "$output" == *"quill reads $type but cannot write it; one of F32, "*TQ2_0* ]]
        [ ! -e out.gguf ]
    done
    run "$QUILL" quantize "$TINY/f32.gguf" out.gguf Q4_0 --tensor 'output.weight=iq2_xs'
    [ "$status" -eq 2 ]
    [[ "$output" == *"--tensor: output.weight: quill reads IQ2_XS but cannot write it"* ]]
}

@test "the codebooks are those of the gguf package" {
    needs python3
    run python3 "$BATS_TEST_DIRNAME/../scripts/codebooks.py" --check
    [ "$status" -ne 77 ] || skip "$output"
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "wanda leaves a prediction head as it is, which an importance matrix does not have" {
    "$MAKE_TINY" head.gguf arch=glm4moe mtp=1 seed=1
    printf 'the ship was on the water and he said to her' >text
    "$QUILL" perplexity -q -m head.gguf -f text --imatrix-out i.gguf
    "$QUILL" quantize -q --prune 2:4 --prune-by wanda --imatrix i.gguf head.gguf pruned.gguf F32
    "$QUILL" -m pruned.gguf --raw -n 2 hi >/dev/null
    "$QUILL" quantize -q --prune 2:4 head.gguf pruned.gguf F32
}

#!/usr/bin/env bash
# Compares quill with karpathy's llama2.c: both generate the same greedy text, alternately; measures from exec to exit.
#
#   scripts/bench_llama2c.sh LLAMA2C_RUN MODEL.bin TOKENIZER.bin QUILL [REPETITIONS [TOKENS]]
#
# LLAMA2C_RUN is run.c of llama2.c, built by you: gcc -O3 -march=native -fopenmp -o run run.c -lm
# THREADS=N fixes the threads of both; otherwise each takes its own default. QUILL_FLAGS adds flags for quill.
set -euo pipefail
export XDG_CONFIG_HOME=/dev/null # ignores the user's configuration

if [ $# -lt 4 ]; then
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
run=$1 model=$2 tokenizer=$3 quill=$4 reps=${5:-7} tokens=${6:-256}
for file in "$run" "$model" "$tokenizer" "$quill"; do
    [ -r "$file" ] || { echo "bench_llama2c.sh: $file: cannot be read" >&2; exit 2; }
done

quill_threads=()
if [ -n "${THREADS:-}" ]; then
    export OMP_NUM_THREADS=$THREADS
    quill_threads=(-t "$THREADS")
fi
read -r -a extra <<<"${QUILL_FLAGS:-}" || true
unset QUILL_MODEL

llama2c() { "$run" "$model" -z "$tokenizer" -t 0 -n "$tokens" -i ""; }
quill() {
    "$quill" -m "$model" -z "$tokenizer" --raw --greedy -n "$tokens" -p "" --no-stdin \
        ${quill_threads[@]+"${quill_threads[@]}"} ${extra[@]+"${extra[@]}"} "$@"
}
median() { sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
field() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"; }

# llama2.c continues after an end-of-text token and quill does not: both generate as many tokens as quill's answer has.
tokens=$(quill --json 2>/dev/null | field completion_tokens)
[ "${tokens:-0}" -gt 0 ] || { echo "bench_llama2c.sh: quill generated nothing" >&2; exit 1; }
theirs=$(llama2c 2>/dev/null) ours=$(quill 2>/dev/null)
same=no
case $theirs in "$ours"*) same=yes ;; esac # llama2.c also prints the token that ends a text

wall_theirs="" wall_ours="" own_theirs="" own_ours=""
for ((i = 0; i < reps; i++)); do
    a=$(date +%s%N)
    llama2c >/dev/null 2>/dev/null
    b=$(date +%s%N)
    quill >/dev/null 2>/dev/null
    c=$(date +%s%N)
    wall_theirs+="$((b - a))"$'\n' wall_ours+="$((c - b))"$'\n'
    own_theirs+="$(llama2c 2>&1 >/dev/null | sed -n 's/^achieved tok\/s: //p')"$'\n'
    own_ours+="$(quill --json 2>/dev/null | field decode_tps)"$'\n'
done

t=$(printf %s "$wall_theirs" | median) o=$(printf %s "$wall_ours" | median)
dt=$(printf %s "$own_theirs" | median) do_=$(printf %s "$own_ours" | median)
echo "$(basename "$model"): $tokens tokens, greedy, medians of $reps; same text: $same"
awk -v t="$t" -v o="$o" -v n="$tokens" -v dt="$dt" -v d="$do_" 'BEGIN {
    printf "%-9s %12s %16s %22s\n", "", "wall ms", "tok/s by wall", "tok/s as it reports"
    printf "%-9s %12.1f %16.0f %22.0f\n", "llama2.c", t / 1e6, n / t * 1e9, dt
    printf "%-9s %12.1f %16.0f %22.0f\n", "quill", o / 1e6, n / o * 1e9, d
    printf "%-9s %12.2f %16.2f %22.2f\n", "ratio", t / o, t / o, d / dt
}'
[ "$same" = yes ]

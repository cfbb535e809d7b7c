#!/usr/bin/env bash
# quill and llama.cpp's llama-bench on the same GGUF file, in turns (A B A B), medians and their ratios.
#
#   scripts/bench_vs.sh LLAMA_BENCH MODEL.gguf QUILL [ROUNDS [PROMPT [TOKENS]]]
#
# LLAMA_BENCH is the llama-bench binary of llama.cpp (or of a fork with its options), built by you. THREADS=N fixes the
# threads of both (the number of processors). `quill bench --shape 1.1b --type Q8_0 --save FILE` makes a model to measure.
set -euo pipefail

if [ $# -lt 3 ]; then
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
llama=$1 model=$2 quill=$3 rounds=${4:-5} prompt=${5:-512} tokens=${6:-64} threads=${THREADS:-$(nproc)}
for file in "$llama" "$model" "$quill"; do
    [ -r "$file" ] || { echo "bench_vs.sh: $file: cannot be read" >&2; exit 2; }
done

# A column of a CSV table by its name, from the rows where another column has a value; quotes around fields are taken off.
column() {
    awk -F, -v want="$1" -v where="$2" -v is="$3" '{ gsub(/"/, "") }
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $at[where] == is { print $at[want] }'
}
median() { sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

theirs_p="" theirs_g="" ours_p="" ours_g=""
for ((i = 0; i < rounds; i++)); do
    a=$("$llama" -m "$model" -t "$threads" -p "$prompt" -n "$tokens" -r 1 -o csv 2>/dev/null)
    b=$("$quill" bench -m "$model" -t "$threads" -p "$prompt" -n "$tokens" -r 1 -o csv 2>/dev/null)
    theirs_p+="$(column avg_ts n_prompt "$prompt" <<<"$a")"$'\n' theirs_g+="$(column avg_ts n_gen "$tokens" <<<"$a")"$'\n'
    ours_p+="$(column tok/s test "pp$prompt" <<<"$b")"$'\n' ours_g+="$(column tok/s test "tg$tokens" <<<"$b")"$'\n'
done

echo "$(basename "$model"), $threads threads, medians of $rounds rounds, tok/s"
awk -v p="$prompt" -v g="$tokens" -v tp="$(printf %s "$theirs_p" | median)" -v tg="$(printf %s "$theirs_g" | median)" \
    -v op="$(printf %s "$ours_p" | median)" -v og="$(printf %s "$ours_g" | median)" 'BEGIN {
    if (tp <= 0 || tg <= 0 || op <= 0 || og <= 0) { print "a figure is missing: run both by hand to see why"; exit 1 }
    printf "%-8s %12s %12s %8s\n", "", "llama-bench", "quill", "ratio"
    printf "%-8s %12.1f %12.1f %8.2f\n", "pp" p, tp, op, op / tp
    printf "%-8s %12.1f %12.1f %8.2f\n", "tg" g, tg, og, og / tg
}'

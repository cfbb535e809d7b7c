#!/usr/bin/env bash
# Compares quill with llama.cpp's llama-bench on the same files, alternately (A B A B ...): quill writes a random model of
# one shape for each type. Prints medians, ratios, and quill's share of this machine's ceilings.
#
#   scripts/bench_vs.sh LLAMA_BENCH QUILL [TYPE ...]
#
# LLAMA_BENCH is the llama-bench binary of llama.cpp (or of a fork with its options), built by you; run `quill bench
# --roofline` once before. Each TYPE (BF16 F16 Q8_0 Q4_0 Q4_K Q6_K) replaces its rows in docs/performance.csv, which
# scripts/plot_performance.py plots; then the table of all types is printed to stdout. MODEL=FILE.gguf measures that file
# instead and stores nothing. ROUNDS=2, THREADS=(processors), SHAPE=1.1b, PROMPT=512, TOKENS=64; KEEP=DIR keeps the files
# for the next run.
set -euo pipefail
export XDG_CONFIG_HOME=/dev/null # ignores the user's configuration

if [ $# -lt 2 ]; then
    sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
llama=$1 quill=$2
shift 2
for file in "$llama" "$quill" ${MODEL:+"$MODEL"}; do
    [ -r "$file" ] || { echo "bench_vs.sh: $file: cannot be read" >&2; exit 2; }
done
rounds=${ROUNDS:-2} threads=${THREADS:-$(nproc)} shape=${SHAPE:-1.1b} prompt=${PROMPT:-512} tokens=${TOKENS:-64}
results=$(dirname "$0")/../docs/performance.csv
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
files=${KEEP:-$scratch}

# Prints a named column of a CSV table, for rows in which another column has a given value; removes quotes around fields.
column() {
    awk -F, -v want="$1" -v where="$2" -v is="$3" '{ gsub(/"/, "") }
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $at[where] == is { print $at[want]; exit }'
}
median() { sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
say() { [ ! -t 2 ] || printf '\r\033[K%s' "$*" >&2; }

# measure FILE: runs all rounds; writes a file of figures for each column of each test: llama.pp, quill.pp, share.pp, and
# the same for tg.
measure() {
    rm -f "$scratch"/*.pp "$scratch"/*.tg
    for ((i = 1; i <= rounds; i++)); do
        say "$(basename "$1"): round $i of $rounds"
        "$llama" -m "$1" -t "$threads" -p "$prompt" -n "$tokens" -r 1 -o csv >"$scratch/llama" 2>"$scratch/errors" ||
            { tail -3 "$scratch/errors" >&2; exit 1; }
        "$quill" bench -q --device cpu -m "$1" -t "$threads" -p "$prompt" -n "$tokens" -r 1 -o csv >"$scratch/quill"
        column avg_ts n_prompt "$prompt" <"$scratch/llama" >>"$scratch/llama.pp"
        column avg_ts n_gen "$tokens" <"$scratch/llama" >>"$scratch/llama.tg"
        for phase in pp tg; do
            test=$phase$([ "$phase" = pp ] && echo "$prompt" || echo "$tokens")
            column tok/s test "$test" <"$scratch/quill" >>"$scratch/quill.$phase"
            column "of peak" test "$test" <"$scratch/quill" >>"$scratch/share.$phase"
        done
    done
    build=$(column build_commit n_prompt "$prompt" <"$scratch/llama")
    say ""
}

touch "$results"
head=type,phase,llama.cpp,quill,share,quill_commit,llama.cpp_commit,date
commit=$(git -C "$(dirname "$0")" rev-parse --short HEAD 2>/dev/null || echo unknown)
# row NAME PHASE: both rates in tok/s, quill's share of the ceiling in percent
row() {
    for who in llama quill; do
        [ "$(median <"$scratch/$who.$2")" != 0 ] && continue
        echo "bench_vs.sh: $1: $who's $2: a figure expected, none found; run it by hand to see why" >&2
        exit 1
    done
    printf '%s,%s,%s,%s,%s,%s,%s,%s\n' "$1" "$2" "$(median <"$scratch/llama.$2")" "$(median <"$scratch/quill.$2")" \
        "$(median <"$scratch/share.$2")" "$commit" "$build" "$(date -u +%Y-%m-%d)"
}

# Prints the rows of stdin as a table.
table() {
    echo "| | llama.cpp pp$prompt | quill | ratio | share | llama.cpp tg$tokens | quill | ratio | share |"
    echo "|---|---|---|---|---|---|---|---|---|"
    awk -F, '$2 == "pp" { theirs[$1] = $3; ours[$1] = $4; share[$1] = $5 }
        $2 == "tg" {
            printf "| %s | %.0f | %.0f | %.1f | %.1f%% | %.1f | %.1f | %.2f | %.1f%% |\n", $1, theirs[$1], ours[$1],
                   ours[$1] / theirs[$1], share[$1], $3, $4, $4 / $3, $5 }'
}

if [ -n "${MODEL:-}" ]; then
    measure "$MODEL"
    { row "$(basename "$MODEL")" pp; row "$(basename "$MODEL")" tg; } | table
    exit
fi

for type in "$@"; do
    file=$files/quill-$shape-$type.gguf
    say "$type: writing a model"
    [ -r "$file" ] || "$quill" bench -q --shape "$shape" --type "$type" -p 0 -n 0 --save "$file"
    cat "$file" >/dev/null # into the page cache
    measure "$file"
    [ -n "${KEEP:-}" ] || rm -f "$file"
    { echo "$head"; grep -v "^type,\|^$type," "$results" || true; row "$type" pp; row "$type" tg; } >"$scratch/results"
    cp "$scratch/results" "$results"
done
table <"$results"

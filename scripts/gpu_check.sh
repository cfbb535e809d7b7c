#!/usr/bin/env bash
# On a machine with a GPU, in under 8 minutes, downloading nothing: builds, tests on the GPU, benchmarks; writes one JSON
# and one markdown table, anew after every step, so that they are there whatever ends it. What it lacks it names, and goes
# on without it.
#   scripts/gpu_check.sh [DIR]         results in DIR (default: build/gpu)
#   QUILL_TEST_DATA=DIR                also the golden logits there (golden/tokens.txt, golden/*/X.gguf with X.f32)
#   SECONDS_FOR_ALL=480                benchmarks that would end later are left out, and named
#   QUILL=FILE                         that binary, instead of building one; build/release/tests/gpu_kernels is run if it
#                                      is there, with a libcmocka.so.0 beside it where the machine has none (`make
#                                      gpu-tests CUDA_ARCH=sm_90` builds both where there is no GPU)
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-build/gpu}
budget=${SECONDS_FOR_ALL:-480}
export QUILL_MODEL='' XDG_CONFIG_HOME=/dev/null XDG_CACHE_HOME
failures=()
left_out=()
results=()
ended='cut short'

say() { printf '%4ds  %s\n' "$SECONDS" "$*"; }
left() { echo $((budget - SECONDS)); }
die() {
  echo "gpu_check: $*" >&2
  exit 1
}
fail() {
  failures+=("$*")
  say "FAILED: $*"
}
skip() {
  left_out+=("$*")
  say "left out: $*"
}

command -v nvidia-smi >/dev/null && gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | sed -n 1p) || gpu=
[ -n "$gpu" ] || die "no GPU: nvidia-smi names none; run it on a machine that has one (make test checks the kernels without)"
command -v python3 >/dev/null || die "no python3, which compares logits and writes the tables"
for nvcc in "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" /usr/local/cuda/bin/nvcc "$(command -v nvcc || true)"; do
  [ -n "$nvcc" ] && [ -x "$nvcc" ] && break
  nvcc=
done

mkdir -p "$out"
out=$(cd "$out" && pwd)
XDG_CACHE_HOME=$out/cache # this run's ceilings are its own
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | sed -n 1p)
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
say "$gpu, driver $driver, $([ -z "$nvcc" ] || "$nvcc" --version | sed -n 's/.*release //p'), commit $commit"

# Models that are run more than once lie in memory, where there is room for them.
models=$(mktemp -d /dev/shm/quill.XXXXXX 2>/dev/null || mktemp -d "$out/models.XXXXXX")

# ---- one JSON, one table ----
report() {
  python3 - "$out" "$gpu" "$driver" "$commit" "$ended" "${#failures[@]}" "${#left_out[@]}" "${failures[@]}" "${left_out[@]}" \
    "${results[@]}" <<'PYTHON' || say "the tables could not be written"
import json, statistics, sys
out, gpu, driver, commit, ended, n_failed, n_left_out, *rest = sys.argv[1:]
failed, rest = rest[:int(n_failed)], rest[int(n_failed):]
left_out, files = rest[:int(n_left_out)], rest[int(n_left_out):]


def load(name):
    try:
        return json.load(open(name))
    except (OSError, ValueError):
        return None


runs = [{"run": f.rsplit("/", 1)[1][:-5], **(load(f) or {"results": []})} for f in files]
everything = {"gpu": gpu, "driver": driver, "commit": commit, "ended": ended, "failed": failed, "left_out": left_out,
              "roofline": load(out + "/roofline.json"), "benchmarks": runs, "transformers": load(out + "/transformers.json")}
json.dump(everything, open(out + "/gpu_check.json", "w"), indent=1)
ceiling = ((everything["roofline"] or {}).get("machine") or {}).get("gpu") or {}
lines = [f"{gpu}, driver {driver}, commit {commit}: {ended}", ""]
lines += [f"- {name}: {value}" for name, value in ceiling.items()] + [""]
lines += ["| run | type | test | tok/s | TFLOP/s | GB/s | of peak |", "|---|---|---|---:|---:|---:|---:|"]
tried = {}  # what -> [plain, tried] -> tok/s of the runs in turns
for run in runs:
    for r in run["results"]:
        if run["run"].startswith("try-"):
            what, how, _ = run["run"].rsplit(".", 2)
            tried.setdefault(f"{what[4:]} {r['test']}", {}).setdefault(how, []).append(r["tok_s"])
            continue
        peak = ceiling.get("copy_gbs" if r["phase"] == "decode" else "product_tflops")
        rate = r["gb_s"] if r["phase"] == "decode" else r["tflop_s"]
        share = f"{100 * rate / peak:.0f}%" if peak else "-"
        lines.append(f"| {run['run']} | {run['model']['type']} | {r['test']} | {r['tok_s']:.1f} | {r['tflop_s']:.1f} "
                     f"| {r['gb_s']:.0f} | {share} |")
for r in (everything["transformers"] or {}).get("results", []):
    lines.append(f"| {r['model']} (transformers, {r['how']}) | BF16 | {r['test']} | {r['tok_s']:.1f} | - | - | - |")
if tried:
    lines += ["", "QUILL_GPU_TRY, in turns with the plain kernels:", "", "| what | plain tok/s | tried tok/s | gain |",
              "|---|---:|---:|---:|"]
for what, how in sorted((w, h) for w, h in tried.items() if len(h) == 2):
    plain, other = (statistics.median(how[k]) for k in ("plain", "tried"))
    lines.append(f"| {what} | {plain:.1f} | {other:.1f} | {100 * (other / plain - 1):+.1f}% |")
lines += [""] + [f"- failed: {f}" for f in failed] + [f"- left out: {f}" for f in left_out]
open(out + "/gpu_check.md", "w").write("\n".join(lines) + "\n")
PYTHON
}
finish() {
  local code=$?
  rm -rf "$models"
  report
  cat "$out/gpu_check.md"
  say "$out/gpu_check.json, $out/gpu_check.md"
  [ ${#failures[@]} -eq 0 ] || echo "gpu_check: ${#failures[@]} checks failed, named above" >&2
  [ ${#failures[@]} -eq 0 ] && [ $code -eq 0 ] || exit 1
}
trap finish EXIT
trap 'exit 1' INT TERM

# ---- build ----
if [ -z "${QUILL:-}" ]; then
  if [ -z "$nvcc" ]; then skip "the build: no nvcc in CUDA_HOME, /usr/local/cuda or PATH"
  elif ! make -j"$(nproc)" CUDA_ARCH=native quill >"$out/build.log" 2>&1; then
    fail "it does not build: $(grep -m1 -i error "$out/build.log" || tail -1 "$out/build.log"); all of it is in $out/build.log"
  elif ! make -j"$(nproc)" CUDA_ARCH=native gpu-tests >>"$out/build.log" 2>&1; then
    skip "the kernels' tests do not build: $(grep -m1 -i error "$out/build.log" || tail -1 "$out/build.log")"
  fi
fi
quill=${QUILL:-./quill}
[ -x "$quill" ] || die "no $quill to go on with"
quill=$(cd "$(dirname "$quill")" && pwd)/$(basename "$quill")
version=$("$quill" --version) || die "$quill does not run here"
say "${version//$'\n'/; }"
[[ $version =~ CUDA:\ [0-9] ]] || die "$quill: a build with CUDA expected, one without found"

# cuBLAS where the loader does not look: beside nvcc, or in a Python package.
libraries=${LD_LIBRARY_PATH:-}
if ! ldconfig -p 2>/dev/null | grep -q 'libcublas\.so\.1[23]'; then
  for file in "${nvcc%/bin/nvcc}"/lib64/libcublas.so.1[23] /usr/local/cuda*/lib64/libcublas.so.1[23] \
    $(python3 -c 'import glob, site, sys
for d in sys.path + site.getsitepackages():
    print(*glob.glob(d + "/nvidia/*/lib/libcublas.so.1[23]"), sep="\n")' 2>/dev/null); do
    [ -f "$file" ] || continue
    say "cuBLAS: $file"
    libraries=$(dirname "$file")${libraries:+:$libraries}
    break
  done
fi
# ---- tests on the GPU ----
run() { # run OPTIONS...: quill, for up to $within seconds
  local code=0
  LD_LIBRARY_PATH=$libraries timeout -k 5 "${within:-60}" "$quill" "$@" || code=$?
  [ $code -ne 124 ] || echo "it took longer than ${within:-60} seconds" >&2
  return $code
}
tiny=$out/tiny
mkdir -p "$tiny"

tests=build/release/tests/gpu_kernels
if [ ! -x $tests ]; then skip "the kernels' own tests: no $tests (make gpu-tests; cmocka is needed)"
elif QUILL_TEST_TMP=$out LD_LIBRARY_PATH=build/release/tests${libraries:+:$libraries} timeout -k 5 120 $tests >"$out/gpu_kernels.log" 2>&1; then say "the kernels' own tests: all passed"
else fail "the kernels' own tests: $(grep -m1 ERROR "$out/gpu_kernels.log" || tail -1 "$out/gpu_kernels.log"); $out/gpu_kernels.log"; fi
report

tokens=1,5,9,17,33,4,8,15,16,23,42,2,7,11,13,19,29,31,37,41
logits() { # logits FILE OUT OPTIONS...
  local file=$1 to=$2
  shift 2
  run logits -m "$file" --tokens "$tokens" "$@" >"$to" 2>"$out/last.err"
}
compare() { # compare NAME LIMIT WANT GOT
  python3 - "$@" <<'PYTHON' || fail "$1"
import array, math, sys
name, limit, *files = sys.argv[1:]
want, got = (array.array("f", open(f, "rb").read()) for f in files)
d = math.sqrt(sum((a - b) ** 2 for a, b in zip(want, got)) / (sum(a * a for a in want) or math.nan))
print(f"       {name:40} {d:.1e}")
sys.exit(not (len(want) == len(got) and d <= float(limit)))
PYTHON
}
near() { # near NAME LIMIT FILE [LAYERS]: the GPU's logits against the scalar CPU's
  if [ "$(left)" -lt 60 ]; then skip "no time for the logits of $1"
  elif logits "$3" "$out/a.f32" --device cpu --isa scalar -ctk f32 -ctv f32 &&
    logits "$3" "$out/b.f32" --device cuda -ngl "${4:-all}"; then
    compare "$1" "$2" "$out/a.f32" "$out/b.f32"
  else fail "$1: $(cat "$out/last.err")"; fi
}
say "logits of small random models, GPU against scalar CPU"
for type in F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS; do
  file=$tiny/$type.gguf
  within=60 run bench --shape dim=512,layers=3,heads=8,kv_heads=2,ffn=1024,vocab=2048 --type $type --save "$file" -p 0 -n 0 -q \
    2>"$out/last.err" || { fail "$type: $(tail -1 "$out/last.err")"; continue; }
  case $type in F32) limit=1e-4 ;; F16 | BF16) limit=2e-2 ;; *) limit=5e-2 ;; esac
  near "$type" $limit "$file"
done
near "Q8_0, 2 of 3 layers on the GPU" 5e-2 "$tiny/Q8_0.gguf" 2
say "the same with every type of KV, over groups that are sealed on the way"
tokens=$(seq -s, 3 102) longer=$tokens
for types in "f16 f16" "f16 f16 --kv-rotate" "fp8 fp8" "q8_0 q8_0" "q4_0 q4_0 --kv-rotate" "kivi2 kivi2" "q8_0 q4_0" "kivi2 f16"; do
  read -r k v rotate <<<"$types"
  # shellcheck disable=SC2086 # no word or one
  logits "$tiny/F32.gguf" "$out/a.f32" --device cpu --isa scalar -ctk "$k" -ctv "$v" $rotate || { fail "KV $types: $(cat "$out/last.err")"; continue; }
  for steps in 2048 40 7; do # in one piece, in tiles that begin inside a group, by the fused kernels
    # shellcheck disable=SC2086
    if logits "$tiny/F32.gguf" "$out/b.f32" --device cuda -ctk "$k" -ctv "$v" $rotate -ub $steps; then
      compare "KV $types, -ub $steps" 1e-2 "$out/a.f32" "$out/b.f32"
    else fail "KV $types: $(cat "$out/last.err")"; fi
  done
done
tokens=1,5,9,17,33,4,8,15,16,23,42,2
for type in F16 BF16 Q8_0 Q4_0 Q4_K Q6_K; do
  case $type in F16 | BF16) limit=2e-2 ;; *) limit=5e-2 ;; esac
  QUILL_GPU_TRY=few near "$type, 12 rows on the matrix unit" $limit "$tiny/$type.gguf"
done
if [ -f "${QUILL_TEST_DATA:-}/golden/tokens.txt" ]; then # logits of a float64 forward from outside
  tokens=$(cat "$QUILL_TEST_DATA/golden/tokens.txt")
  for file in "$QUILL_TEST_DATA"/golden/*/*.gguf; do
    case $file in */arch/* | */F32.gguf) limit=1e-4 ;; */F16.gguf | */BF16.gguf) limit=2e-2 ;; *) limit=5e-2 ;; esac
    if logits "$file" "$out/b.f32" --device cuda; then
      compare "golden $(basename "$file")" $limit "${file%.gguf}.f32" "$out/b.f32"
    else fail "$file: $(cat "$out/last.err")"; fi
  done
fi

say "texts, GPU against scalar CPU"
text() { run --seed "$1" --raw -n 200 --json "${@:2}" "Once upon a time" </dev/null 2>"$out/last.err"; }
part() { # part WANT GOT: greedy texts part only where the specification's two best tokens were closer than int8 rounds
  python3 - "$@" <<'PYTHON'
import json, sys
MARGIN = 0.5
want, got = (json.load(open(f))["tokens"] for f in sys.argv[1:])
for i, (a, b) in enumerate(zip(want, got)):
    if a["id"] == b["id"]:
        continue
    margin = a["top"][0]["logprob"] - a["top"][1]["logprob"]
    print(f"       greedy: parts at token {i}, where the CPU's two best are {margin:.3f} apart (up to {MARGIN} may)")
    sys.exit(margin > MARGIN or b["id"] != a["top"][1]["id"])
print(f"       greedy: all {len(want)} tokens as on the CPU")
sys.exit(len(want) != len(got))
PYTHON
}
same() { # same A B: the texts of two answers in JSON
  python3 -c 'import json, sys; a, b = (json.load(open(f))["text"] for f in sys.argv[1:]); sys.exit(a != b)' "$@"
}
if [[ $version =~ model:\ none ]]; then skip "texts: no model is built in"
elif [ "$(left)" -lt 60 ]; then skip "no time for texts"
else
  if text 1 --device cpu --isa scalar --greedy --logprobs 2 >"$out/cpu.json" &&
    text 1 --device cuda --greedy --logprobs 2 >"$out/gpu.json"; then
    part "$out/cpu.json" "$out/gpu.json" || fail "the greedy text"
  else fail "the greedy text: $(cat "$out/last.err")"; fi
  for how in "-ctk q8_0 -ctv q8_0" "-ctk kivi2 -ctv q4_0 --kv-rotate" "-c 128 --evict sinks,window=96" "-c 128 --evict h2o,heavy=64,recent=48"; do
    # shellcheck disable=SC2086 # words
    if text 1 --device cpu --isa scalar --greedy --logprobs 2 $how >"$out/cpu.json" &&
      text 1 --device cuda --greedy --logprobs 2 $how >"$out/gpu.json"; then
      say "$how"
      part "$out/cpu.json" "$out/gpu.json" || fail "the greedy text with $how"
    else fail "the greedy text with $how: $(cat "$out/last.err")"; fi
  done
  for seed in 1 2 3; do
    if text $seed --device cuda >"$out/gpu.json" && text $seed --device cuda >"$out/again.json" &&
      text $seed --device cuda --logprobs 0 >"$out/host.json" && QUILL_GPU_TRY=early text $seed --device cuda >"$out/early.json"; then
      same "$out/gpu.json" "$out/again.json" || fail "seed $seed: the same run gave another text"
      same "$out/gpu.json" "$out/host.json" || fail "seed $seed: drawn on the GPU and drawn by the host differ"
      same "$out/gpu.json" "$out/early.json" || fail "seed $seed: kernels begun early gave another text"
      say "seed $seed: the same again, and with the host's draws"
    else fail "seed $seed: $(cat "$out/last.err")"; fi
  done
fi

report

if command -v compute-sanitizer >/dev/null && [ "$(left)" -gt 300 ]; then
  for tool in memcheck racecheck; do
    for how in "--tokens 1,2,3,4,5,6,7" "--tokens $longer -ub 40 -ctk kivi2 -ctv q8_0 --kv-rotate"; do
      # shellcheck disable=SC2086 # words
      if LD_LIBRARY_PATH=$libraries timeout -k 5 40 compute-sanitizer --tool $tool --error-exitcode 9 --log-file "$out/$tool.log" \
        "$quill" logits -m "$tiny/Q4_K.gguf" $how --device cuda >/dev/null 2>"$out/last.err"; then
        say "compute-sanitizer $tool: clean"
      elif [ $? -eq 9 ]; then fail "compute-sanitizer $tool: $out/$tool.log"
      else skip "compute-sanitizer $tool does not run here, or is slow ($(tail -1 "$out/last.err"))"; fi
    done
  done
fi

# ---- benchmarks: what is worth most comes first ----
say "ceilings"
if [ "$(left)" -gt 40 ]; then
  within=40 run bench --roofline -p 0 -n 0 --device cuda -o json >"$out/roofline.json" 2>"$out/last.err" ||
    fail "bench --roofline: $(tail -1 "$out/last.err")"
fi

model() { # model SHAPE TYPE: the options that name it; written once, where there is room
  local file=$models/$1-$2.gguf
  [ -f "$file" ] || within=60 run bench --shape "$1" --type "$2" --save "$file" -p 0 -n 0 -q 2>/dev/null || rm -f "$file"
  if [ -f "$file" ]; then echo "-m $file"; else echo "--shape $1 --type $2"; fi
}
bench() { # bench NAME SECONDS SHAPE TYPE OPTIONS...: what it takes at most is left out when there is no time
  local name=$1 seconds=$2 shape=$3 type=$4
  shift 4
  if [ "$(left)" -lt "$seconds" ]; then
    skip "no time for $name"
    return 0
  fi
  # shellcheck disable=SC2046 # words
  if within=$seconds run bench --device cuda -q -o json $(model "$shape" "$type") "$@" >"$out/$name.json" 2>"$out/last.err"; then
    results+=("$out/$name.json")
    say "$name"
    report
  else fail "$name: $(tail -1 "$out/last.err")"; fi
}
# try WHAT NAME SECONDS SHAPE TYPE OPTIONS...: plain kernels and what no GPU has timed, in turns
try() {
  local what=$1 name=$2
  shift 2
  for turn in 1 2; do
    bench "try-$what-$name.plain.$turn" "$@"
    QUILL_GPU_TRY=$what bench "try-$what-$name.tried.$turn" "$@"
  done
}
for type in BF16 Q4_K; do bench "8b-$type" 60 8b $type -p 512 -n 64 -r 3; done
for type in BF16 Q4_K; do try early "8b-$type" 30 8b $type -p 0 -n 64 -r 3; done
for type in BF16 Q4_K; do
  for n in 8 16; do try few "8b-$type-x$n" 30 8b $type -p 0 -n 32 -r 2 --sequences $n -d 64; done
done
for type in BF16 Q8_0 Q4_0 Q4_K; do bench "1b-$type" 30 1b $type -p 512 -n 64 -r 3; done
try early 1b-Q4_K 30 1b Q4_K -p 0 -n 64 -r 3
for type in BF16 Q4_K; do
  bench "8b-$type-pp4096" 30 8b $type -p 4096 -n 0 -r 3
  for depth in 4096 32768; do bench "8b-$type-d$depth" 40 8b $type -p 0 -n 32 -r 2 -d $depth; done
  for kv in q8_0 kivi2; do bench "8b-$type-d32768-$kv" 40 8b $type -p 0 -n 32 -r 2 -d 32768 -ctk $kv -ctv $kv; done
  bench "8b-$type-x32" 40 8b $type -p 0 -n 32 -r 2 --sequences 32 -d 1024
done
rm -f "$models"/*-BF16.gguf
for type in Q8_0 Q4_0; do
  bench "8b-$type" 60 8b $type -p 512 -n 64 -r 3
  try few "8b-$type-x8" 30 8b $type -p 0 -n 32 -r 2 --sequences 8 -d 64
done

if [ "$(left)" -lt 40 ]; then skip "transformers: no time"
elif ! timeout 60 python3 -c 'import torch, transformers' 2>/dev/null; then skip "transformers: not installed"
else
  timeout -k 10 "$(left)" python3 scripts/bench_transformers.py >"$out/transformers.json" 2>"$out/last.err" ||
    fail "transformers: $(tail -1 "$out/last.err")"
fi
ended=complete

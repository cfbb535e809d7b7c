# tests/rig/helpers.bash: loaded by every bats file: programs and paths, a folder for each test, what tests say of a command.
#
# A file that needs models defines `models`, which makes them in $TINY, once for the file, and exports QUILL_MODEL where the
# tests expect one. Each test runs in an empty folder of its own. A file with a `setup` of its own calls `enter` in it.
# Programs come from the environment (`make cli`) or from build/release (`bats tests/repl.bats`):
#   QUILL        the binary                          MAKE_TINY    the maker of random models
#   TWIN         quill whose GPU is a twin in host memory (QUILL_TWIN_BINARY)
#   QUILL_FAULTS the library of rig/faults.c; empty where the build has a sanitizer, which does not run beside it

bats_require_minimum_version 1.5.0

# paths: exports where everything is, and takes away what a user's environment would change.
paths() {
    export TOP TINY="$BATS_FILE_TMPDIR"
    TOP="$(cd "$BATS_TEST_DIRNAME/.." && pwd)"
    export QUILL="${QUILL:-$TOP/quill}" MAKE_TINY="${MAKE_TINY:-$TOP/build/release/tests/make_tiny}"
    export TWIN="${QUILL_TWIN_BINARY:-$TOP/build/release/tests/quill_twin}"
    export QUILL_FAULTS="${QUILL_FAULTS-$TOP/build/release/tests/faults.so}"
    QUILL="$(realpath "$QUILL")"
    MAKE_TINY="$(realpath "$MAKE_TINY")"
    export XDG_CONFIG_HOME=/dev/null PYTHONDONTWRITEBYTECODE=1
    unset QUILL_MODEL QUILL_DEVICE QUILL_HISTORY QUILL_GPU_TRY QUILL_TWIN QUILL_TWIN_MEMORY NO_COLOR
    unset VISUAL EDITOR DISPLAY WAYLAND_DISPLAY
}

models() { :; }

setup_file() {
    paths
    models
}

# enter: into the test's own folder; what quill keeps for its user lies beside it.
enter() {
    cd "$BATS_TEST_TMPDIR" || return 1
    export XDG_STATE_HOME="$BATS_TEST_TMPDIR/.state" XDG_CACHE_HOME="$BATS_TEST_TMPDIR/.cache"
}

setup() {
    enter
}

# ---- what a test cannot do without ----

# needs PROGRAM...: the test is skipped where one of them is missing.
needs() {
    local program
    for program; do
        command -v "$program" >/dev/null || skip "$program is not installed"
    done
}

# needs_data PATH: this part of the outside test data, whose folder is then in $data.
needs_data() {
    [ -n "${QUILL_TEST_DATA:-}" ] || skip "QUILL_TEST_DATA is not set"
    [ -e "$QUILL_TEST_DATA/$1" ] || skip "QUILL_TEST_DATA has no $1"
    data="$QUILL_TEST_DATA"
}

# needs_builtin: the model in the binary, whose name is then in $name.
needs_builtin() {
    name="$("$QUILL" --version | sed -n 's/^model: //p')"
    [ "$name" != none ] || skip "built with NO_MODEL=1"
    unset QUILL_MODEL
}

# needs_terminal: Python and a pseudo-terminal for `drive`; looked for once a file.
needs_terminal() {
    needs python3
    if [ ! -e "$TINY/terminal" ]; then
        echo 'spawn true' | drive >/dev/null 2>&1 && echo yes >"$TINY/terminal" || echo no >"$TINY/terminal"
    fi
    [ "$(cat "$TINY/terminal")" = yes ] || skip "this machine gives no pseudo-terminals"
}

# ---- commands and their ends ----

# drive [--show]: plays the scenario on stdin on a pseudo-terminal (rig/pty_drive.py).
drive() {
    python3 "$BATS_TEST_DIRNAME/rig/pty_drive.py" "$@"
}

# code COMMAND...: its exit code on stdout; its output goes to the files `out` and `errors`.
code() {
    local got=0
    "$@" >out 2>errors </dev/null || got=$?
    echo $got
}

# not COMMAND...: fails if the command succeeds; a bare `!` would not fail a test.
not() {
    ! "$@"
}

# hears_signals COMMAND... &: a command that SIGINT reaches in the background, where a shell without job control has it
# ignored, and SIGHUP under nohup.
hears_signals() {
    exec env --default-signal=INT --default-signal=HUP "$@"
}

# within SECONDS COMMAND...: waits until the command succeeds, or fails after that time.
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.02
    done
}

# asleep PID: every thread of the process waits for something, so that it has done what it could.
asleep() {
    not grep -qs '^State:[[:space:]]*[^S]' /proc/"$1"/task/*/status
}

# ended PID: the exit code of that child in $status; it is killed where it has not ended after 60 seconds.
ended() {
    within 60 not kill -0 "$1" 2>/dev/null || kill -KILL "$1" 2>/dev/null || true
    status=0
    wait "$1" || status=$?
}

# ---- instruction sets ----

# isas: those that this CPU has, scalar first.
isas() {
    "$QUILL" --version | sed -n 's/^CPU: //p' | tr -d ,
}

# fast_isas: those of them that are quick enough for a long text.
fast_isas() {
    isas | tr ' ' '\n' | grep -v -x -e scalar -e portable || echo portable
}

# ---- batches ----

# batch_texts FILE: the answers of a batch, by id.
batch_texts() {
    python3 -c 'import json, sys
for a in sorted(map(json.loads, open(sys.argv[1])), key=lambda a: a["id"]):
    print(a["id"], a["usage"], [(c["text"], c["finish_reason"]) for c in a.get("choices", [a])])' "$1"
}

# same_alone MODEL TOKENS: six jobs, answered four at a time in small blocks, give the texts that they give one by one.
same_alone() {
    local i texts='s/.*"text": *"\(\([^"\\]\|\\.\)*\)".*/\1/'
    for i in 1 2 3 4 5 6; do
        printf '{"id":"%d","prompt":"Once upon a time there was a ship %d","max_tokens":%d,"ignore_eos":true,"temperature":0}\n' \
            $i $((i % 3)) "$2"
    done >jobs
    "$QUILL" batch -m "$1" --raw --deterministic -np 4 --kv-block 8 jobs | sort >together
    "$QUILL" batch -m "$1" --raw --deterministic -np 1 jobs | sort >alone
    [ "$(wc -l <together)" = 6 ]
    [ "$(sed "$texts" together)" = "$(sed "$texts" alone)" ]
}

# --verbose breaks its lines at 80 columns.
unwrapped() { tr -s ' \n' ' '; }

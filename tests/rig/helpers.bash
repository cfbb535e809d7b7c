# helpers.bash: what the command-line tests say of a command, for `load helpers`.

# The user's own configuration has no say in a test.
export XDG_CONFIG_HOME=/dev/null

# The exit code of a command whose output does not matter.
code() {
    "$@" >/dev/null 2>&1 </dev/null && echo 0 || echo $?
}

# A command that SIGINT reaches in the background too, where a shell without job control has it ignored. For `hears_int ... &`.
hears_int() {
    exec env --default-signal=INT "$@"
}

# ended PID: the exit code of that child in $status; it is killed where it has not ended after ten seconds.
ended() {
    local i
    for ((i = 0; i < 100; i++)); do kill -0 "$1" 2>/dev/null && sleep 0.1 || break; done
    kill -KILL "$1" 2>/dev/null || true
    status=0
    wait "$1" || status=$?
}

# Fails if the command succeeds; a bare `!` would not fail a test.
not() {
    ! "$@"
}

# isas: the instruction sets that this CPU has, scalar first.
isas() {
    "$QUILL" --version | sed -n 's/^CPU: //p' | tr -d ,
}

# fast_isas: those of them that are quick enough for a long text.
fast_isas() {
    isas | tr ' ' '\n' | grep -v -x -e scalar -e portable || echo portable
}

# helpers.bash: what the command-line tests say of a command, for `load helpers`.

# The exit code of a command whose output does not matter.
code() {
    "$@" >/dev/null 2>&1 </dev/null && echo 0 || echo $?
}

# Fails if the command succeeds; a bare `!` would not fail a test.
not() {
    ! "$@"
}

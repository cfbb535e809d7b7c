#!/usr/bin/env bats
# docs.bats: the man page and the shells' completions, read by the programs they are for; what make install places.

load helpers

setup() {
    QUILL="${QUILL:-./quill}"
    cd "$BATS_TEST_TMPDIR" || return 1
    case "$QUILL" in /*) ;; *) QUILL="$BATS_TEST_DIRNAME/../$QUILL" ;; esac
    touch model.gguf
    mkdir dir
}

has() { # has PROGRAM: or the test is skipped
    command -v "$1" >/dev/null || skip "no $1 to test with"
}

# What bash would offer for the last of these words; the ones in front are complete.
offered() {
    bash -c 'eval "$("$0" --completions bash)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _quill
        printf "%s\n" "${COMPREPLY[@]}"' "$QUILL" "$@" | sort | xargs
}

@test "the man page has nothing that mandoc or groff would complain about" {
    has mandoc
    has groff
    "$QUILL" --man >quill.1
    mandoc -T lint quill.1
    groff -man -ww -T utf8 quill.1 2>errors >page
    [ ! -s errors ]
    [ "$(groff -man -T ascii -P -cbu quill.1 | wc -L)" -le 80 ]
    for section in NAME SYNOPSIS MODES OPTIONS 'CHAT COMMANDS' 'EXIT STATUS' ENVIRONMENT FILES EXAMPLES; do
        grep -qx ".SH $section" quill.1
    done
}

@test "bash completes modes, options, choices and files" {
    [ "$(offered quill ben)" = bench ]
    [ "$(offered quill --thi)" = --think ]
    [ "$(offered quill --think '')" = "hide off on show" ]
    [ "$(offered quill --think = s)" = show ]
    [ "$(offered quill --device =)" = "auto cpu cuda" ]
    [ "$(offered quill -m mod)" = model.gguf ]
    [ "$(offered quill --file '')" = "dir model.gguf" ]
    [ "$(offered quill inspect m)" = model.gguf ]
    [ "$(offered quill kv info m)" = model.gguf ]
    [ "$(offered quill hello m)" = "" ]
    [ "$(offered quill -p m)" = "" ]
    [ "$(offered quill -- ben)" = "" ]
    # each mode has its own
    [ "$(offered quill bench --roof)" = --roofline ]
    [ "$(offered quill --roof)" = "" ]
    [ "$(offered quill bench -o '')" = "csv json md table" ]
    [ "$(offered quill tokenize --i)" = --ids ]
    [ "$(offered quill --determ)" = --deterministic ]
}

@test "fish completes modes, options, choices and files" {
    has fish
    "$QUILL" --completions fish >quill.fish
    fish --no-execute quill.fish
    offers() { HOME="$PWD" fish -c "source quill.fish; complete -C '$1'" | cut -f 1 | sort | xargs; }
    [ "$(offers 'quill ben')" = bench ]
    [ "$(offers 'quill --think ')" = "hide off on show" ]
    [ "$(offers 'quill --think=s')" = --think=show ]
    [ "$(offers 'quill -m mod')" = model.gguf ]
    [ "$(offers 'quill inspect mod')" = model.gguf ]
    [ "$(offers 'quill kv info mod')" = model.gguf ]
    [ "$(offers 'quill bench --roof')" = --roofline ]
    [ "$(offers 'quill --roof')" = "" ]
}

@test "each mode is one line, in the help and in the completions" {
    "$QUILL" --help | sed -n '/^Other modes/,/^$/p' >modes
    not grep '^[a-z"]' modes
    for mode in decode kv template; do
        "$QUILL" --completions zsh | grep -qE "^        '$mode:[A-Z].*'$"
        "$QUILL" --completions fish | grep -qE -- "-a $mode -d '[A-Z].*'$"
    done
}

@test "zsh reads its completions" {
    has zsh
    "$QUILL" --completions zsh >_quill
    zsh -n _quill
    [ "$(head -n 1 _quill)" = "#compdef quill" ]
    zsh -f -c 'autoload -Uz compinit; compinit -u -D; source ./_quill 2>/dev/null; whence -w _quill' | grep -q 'function'
}

@test "make install places the binary, the page and the completions, and uninstall removes them" {
    case "$QUILL" in */build/release/quill | */../quill) ;; *) skip "another build than the one that is installed" ;; esac
    has make
    top="$BATS_TEST_DIRNAME/.."
    make -C "$top" install DESTDIR="$PWD/root" PREFIX=/usr >/dev/null
    (cd root && find . -type f | sort) >placed
    printf '%s\n' ./usr/bin/quill ./usr/share/bash-completion/completions/quill \
        ./usr/share/fish/vendor_completions.d/quill.fish ./usr/share/man/man1/quill.1 \
        ./usr/share/zsh/site-functions/_quill | cmp - placed
    "$QUILL" --man | cmp - root/usr/share/man/man1/quill.1
    make -C "$top" uninstall DESTDIR="$PWD/root" PREFIX=/usr >/dev/null
    [ -z "$(find root -type f)" ]
}

#!/usr/bin/env bats
# repl.bats: the chat as somebody on a terminal meets it: keys, pastes, signals, the terminal given back.
# pty_drive.py plays the terminal; --dump-prompt shows what the model was given, which is what the keys have made.

load rig/helpers

models() {
    export TERM=xterm NO_COLOR=1 EDITRC=/dev/null
    "$MAKE_TINY" "$TINY/chat.gguf" arch=qwen2 template=chatml ctx=4096
    "$MAKE_TINY" "$TINY/base.gguf" seed=1 ctx=256
    export QUILL_MODEL="$TINY/chat.gguf"
}

setup() {
    enter
    needs_terminal
    export XDG_STATE_HOME="$PWD/state"
}

# talk ARGS...: `quill ARGS...` on a terminal. The scenario on stdin begins at the first prompt and ends with a turn; then
# Ctrl-D leaves, with exit code 0 and the terminal as it was.
talk() {
    {
        printf 'spawn $QUILL %s\nprompt\n' "$*"
        cat
        printf 'prompt\nsend "\\x04"\nexit 0\nmodes usual\n'
    } | drive
}

@test "a chat ignores what the configuration sets for single prompts" {
    mkdir -p config/quill
    export XDG_CONFIG_HOME="$PWD/config"
    for usual in 'beams = 4' 'best-of = 3' 'json = on' 'jsonl = on' 'extract = on' 'echo = on'; do
        echo "$usual" >config/quill/config
        talk --dump-prompt -n 1 <<'EOF'
send "hello\r"
expect "user\r\nhello<|im_end|>"
EOF
    done
    for given in '--beams 4' --json --extract; do
        drive <<EOF
spawn \$QUILL $given
expect "${given%% *}"
exit 2
EOF
    done
}

@test "keys edit a line, and Ctrl-D leaves the terminal as it was" {
    talk --dump-prompt -n 1 <<'EOF'
modes edited
send "wrold\x17hello wrold\x17world\r"
expect "user\r\nhello world<|im_end|>"
prompt
send "bc\x01a\e[C\e[C\e[Cd\e[D\e[D\e[3~\e[FE\e[Hstart \r"
expect "user\r\nstart abdE<|im_end|>"
prompt
send "caf\u00e9 \u2603 \u6f22\u5b57 x\x7f\x7f\x7f\u5b57!\r"
expect "user\r\ncaf\u00e9 \u2603 \u6f22\u5b57!<|im_end|>"
EOF
    # Ctrl-U and Ctrl-K, and bytes that are no UTF-8
    drive <<'EOF'
spawn $QUILL --dump-prompt -n 1
expect "/help lists commands"
prompt
send "gone\x15kept cut\x1b[D\x1b[D\x1b[D\x0b\udcff\r"
expect "user\r\nkept \ufffd<|im_end|>"
prompt
send "/exit\r"
exit 0
modes usual
EOF
}

@test "keys that work on a line work on one line of a message" {
    drive <<'EOF'
spawn $QUILL --dump-prompt -n 1
expect "/help lists commands"
prompt
send "one\ntwo cut\x15TWO\x15\x15three\e[Ha\x05b\x01c\e[Fd\r"
expect "user\r\none\r\ncathreebd<|im_end|>"
prompt
send "one\ntwo gone\nthree\e[A\x01\e[C\e[C\e[C\x0b\x0b\x19\x19\r"
expect "user\r\none\r\ntwo gone gone\r\nthree<|im_end|>"
prompt
send "one\ntwo\e[A\x15ONE \x19\r"
expect "user\r\nONE one\r\ntwo<|im_end|>"
prompt
send "/exit\r"
exit 0
modes usual
EOF
    mkdir -p home
    printf 'bind -v\n' >home/.editrc # vi's keys
    HOME="$PWD/home" talk -n 1 --dump-prompt <<'EOF'
send "one\ntwo cut\x15TWO\r"
expect "user\r\none\r\nTWO<|im_end|>"
EOF
}

@test "unbound keys type nothing" {
    while read -r name keys; do
        printf '%s# %s\nsend "ab%s"\nsend "c\\r"\nexpect "user\\r\\nabc<|im_end|>"\n' "$next" "$name" "$keys"
        next=$'prompt\n'
    done <<'KEYS' | talk --dump-prompt -n 1
PageUp-PageDown \e[5~\e[6~
F1-to-F4 \eOP\eOQ\eOR\eOS
F5-F10-F12 \e[15~\e[21~\e[24~
F1-to-F5-on-the-console \e[[A\e[[B\e[[C\e[[D\e[[E
Shift-F5 \e[15;2~
Insert-Shift-Insert \e[2~\e[2;2~
Ctrl-Delete-at-the-end \e[3;5~
Shift-Up-Shift-Down \e[1;2A\e[1;2B
Ctrl-Up-Alt-Down \e[1;5A\e[1;3B
Shift-Tab \e[Z
Shift-End-twice \e[1;2F\e[1;2F
focus \e[I\e[O
a-reply-about-colours \e]11;rgb:0000/0000/0000\e\\
the-same-ended-by-BEL \e]11;rgb:0000/0000/0000\a
a-reply-about-the-terminal \eP>|xterm(390)\e\\
cursor-position \e[24;80R
device-attributes \e[?62;22c
a-key-without-character-in-CSI-u \e[57441;2u
Alt-and-a-letter-that-is-not-ASCII \eé
a-key-pad's-Alt-PageUp \e\e[5~
KEYS
}

@test "keys move by words, also in their CSI u form" {
    while read -r name keys wanted; do
        printf '%s# %s\nsend "one two three%s"\nsend "X\\r"\n' "$next" "$name" "$keys"
        printf 'expect "user\\r\\n%s<|im_end|>"\n' "$wanted"
        next=$'prompt\n'
    done <<'KEYS' | talk --dump-prompt -n 1
Alt-Left \e[1;3D\e[1;3D one Xtwo three
Alt-Left-then-Alt-Right \e[1;3D\e[1;3D\e[1;3C one twoX three
Ctrl-Left \e[1;5D one two Xthree
Alt-Left-with-two-ESC \e\e[D one two Xthree
rxvt's-Ctrl-Left-Ctrl-Right \eOd\eOd\eOc one twoX three
rxvt's-Home-End \e[7~\e[8~\e[7~ Xone two three
Alt-b-Alt-f \eb\eb\ef one twoX three
Shift-Left \e[1;2D one two threXe
Shift-Home \e[1;2H Xone two three
Shift-Home-then-Shift-End \e[1;2H\e[1;2F one two threeX
Ctrl-Home-then-Ctrl-End \e[1;5H\e[1;5F one two threeX
Ctrl-Delete \e[1;5D\e[1;5D\e[3;5~ one X three
Alt-Backspace \e\x7f one two X
Ctrl-Backspace-in-CSI-u \e[127;5u one two X
Ctrl-a-in-CSI-u \e[97;5u Xone two three
Shift-Space-in-CSI-u \e[32;2u one two three X
Alt-b-in-CSI-u \e[98;3u one two Xthree
Alt-b-in-xterm's-form \e[27;3;98~ one two Xthree
KEYS
}

@test "Ctrl-J, Alt-Enter, Shift-Enter and Ctrl-Enter begin a new line" {
    talk --dump-prompt -n 1 <<'EOF'
send "one\ntwo\e\rthree\e[13;2ufour\e[13;5ufive\e[27;2;13~six\r"
expect "user\r\none\r\ntwo\r\nthree\r\nfour\r\nfive\r\nsix<|im_end|>"
prompt
send "\e[A\e[1;2D!\r"
expect "user\r\none\r\ntwo\r\nthree\r\nfour\r\nfive\r\nsi!x<|im_end|>"
EOF
    echo 'bind -v' >editrc
    EDITRC="$PWD/editrc" talk --dump-prompt -n 1 <<'EOF'
send "ab\e\e"
pause 0.2
send "xiX\e"
pause 0.2
send "A!\r"
expect "user\r\nXa!<|im_end|>"
prompt
send "one\ntwo\e\rthree\e[5~\e[15~ four\r"
expect "user\r\none\r\ntwo\r\nthree four<|im_end|>"
EOF
}

@test "Up and Down go through the lines of a message before they go through the history" {
    talk --dump-prompt -n 1 <<'EOF'
send "earlier\r"
expect "user\r\nearlier<|im_end|>"
prompt
send "one\ntwo and more\nthree\e[AX\e[AY\e[B\e[BZ\r"
expect "user\r\noneY\r\ntwo aXnd more\r\nthreZe<|im_end|>"
prompt
send "a\nb\e[A\e[A\e[A\e[A\e[A!\r"
expect "user\r\nearlier!<|im_end|>"
prompt
send "a\nb\e[A\e[A\e[B?\r"
expect "user\r\na\r\nb?<|im_end|>"
EOF
}

@test "a key sequence may come in pieces, and ESC alone waits for nothing" {
    talk --dump-prompt -n 1 <<'EOF'
send "ab\e"
pause 0.01
send "[1"
pause 0.02
send "5~c\r"
expect "user\r\nabc<|im_end|>"
prompt
send "one two\e"
pause 0.2
send "bX\e[20"
pause 0.7
send "Y\r"
expect "user\r\none XYtwo<|im_end|>"
EOF
}

@test "key bindings of ~/.editrc work" {
    echo 'bind "\e[15~" ed-move-to-beg' >editrc
    EDITRC="$PWD/editrc" talk --dump-prompt -n 1 <<'EOF'
send "ab\e[15~c\e[17~d\r"
expect "user\r\ncdab<|im_end|>"
EOF
}

@test "an arrow ends Ctrl-R's search and types nothing" {
    talk --dump-prompt -n 1 <<'EOF'
send "first thing\r"
expect "user\r\nfirst thing<|im_end|>"
prompt
send "\x12fir\e[C\e[F!\r"
expect "user\r\nfirst thing!<|im_end|>"
EOF
}

@test "text typed during an answer becomes the next messages" {
    talk --dump-prompt -n 200 --ignore-eos <<'EOF'
send "hello\r"
expect "user\r\nhello<|im_end|>"
send "again\rand again\r"
expect "user\r\nagain<|im_end|>"
expect "user\r\nand again<|im_end|>"
EOF
}

@test "history is kept for the next session, and Ctrl-R searches it" {
    talk --dump-prompt -n 1 <<'EOF'
send "first thing\r"
expect "user\r\nfirst thing<|im_end|>"
prompt
send "second thing\r"
expect "user\r\nsecond thing<|im_end|>"
prompt
send "\e[200~two\r\nlines\e[201~\r"
expect "user\r\ntwo\r\nlines<|im_end|>"
EOF
    [ "$(cat state/quill/history)" = 'first thing
second thing
two\nlines' ]
    [ "$(stat -c %a state/quill/history)" = 600 ]
    talk --dump-prompt -n 1 <<'EOF'
send "\e[A\r"
expect "user\r\ntwo\r\nlines<|im_end|>"
prompt
send "\e[A\e[A\e[A\e[A\r"
expect "user\r\nfirst thing<|im_end|>"
prompt
send "\x12secon\r"
expect "user\r\nsecond thing<|im_end|>"
EOF
}

@test "a paste of many lines is one message, and so is a message with continued lines" {
    talk --dump-prompt -n 1 <<'EOF'
send "see: \e[200~one\r\ttwo \\\r\rthree\r\e[201~"
send "end\r"
expect "user\r\nsee: one\r\n\ttwo \\\r\n\r\nthree\r\nend<|im_end|>"
prompt
send "a line \\\r"
expect ". "
send "and more\r"
expect "user\r\na line \r\nand more<|im_end|>"
prompt
send "\"\"\"\r"
expect ". "
send "/exit\r"
expect ". "
send "b\"\"\"\r"
expect "user\r\n/exit\r\nb<|im_end|>"
prompt
send "\"\"\"unclosed\r"
expect ". "
send "\x04"
expect "user\r\nunclosed<|im_end|>"
EOF
}

@test "a paste longer than the screen is one message" {
    {
        printf 'send "\\e[200~'
        for i in $(seq 300); do printf 'line %d of many\\r' "$i"; done
        printf '\\e[201~"\nsend "\\r"\nexpect "user\\r\\nline 1 of many\\r\\nline 2 of"\nexpect "line 300 of many\\r\\n<|im_end|>"\n'
    } | talk --dump-prompt -n 1 -c 32k
}

@test "two Ctrl-C while a long prompt is computed leave the chat and its earlier turns" {
    head -c 60000 /dev/zero | tr '\0' 'x' >long
    drive <<'EOF'
spawn $QUILL --dump-prompt -n 1 -c 128k -ub 4096 -t 1 --isa scalar --greedy
prompt
send "hello\r"
expect "<|im_start|>assistant"
prompt
send "/read long\r"
expect "beginning of the next message"
prompt
send "\r"
expect "xxxxxxxx<|im_end|>"
send "\x03\x03"
expect "stopped before the answer"
prompt
send "/show\r"
expect "messages   2"
prompt
send "\x04"
exit 0
EOF
}

@test "Ctrl-C stops an answer and keeps its beginning; twice on an empty line it ends the chat" {
    export a="$("$QUILL" tokenize --ids a </dev/null)"
    drive <<'EOF'
spawn $QUILL --dump-prompt -n -1 -c 1M --greedy -v --logit-bias $a+10000
prompt
send "hello\r"
expect "aaaaaaaa"
send "\x03"
expect "interrupt"
prompt
send "half a line"
expect "half a line"
send "\x03"
expect "^C"
prompt
send "/set predict 1\r"
prompt
send "again\r"
expect "user\r\nhello<|im_end|>\r\n<|im_start|>assistant\r\naaaaaaaa"
expect "<|im_end|>\r\n<|im_start|>user\r\nagain<|im_end|>"
expect " 1 token at"
prompt
send "\x03"
expect "(press Ctrl-C again or Ctrl-D to leave)"
prompt
send "x"
expect "x"
send "\x03"
expect "^C"
prompt
send "\x03"
expect "(press Ctrl-C again or Ctrl-D to leave)"
prompt
send "\x03"
exit -2
modes usual
EOF
}

@test "Ctrl-C in the middle of a long line leaves nothing of it below" {
    drive <<'EOF'
window 24 40
spawn $QUILL -n 1
prompt
send "0123456789012345678901234567890123456789 0123456789\x01"
expect "0123456789"
send "\x03"
expect "\e[J^C\r\n"
prompt
send "\x04"
exit 0
modes usual
EOF
}

@test "Ctrl-C stops a prefill, and the message is not in the conversation" {
    head -c 300000 /dev/zero | tr '\0' 'x' >long
    talk -c 1M -ub 16 --isa scalar -n 1 -v <<'EOF'
send "/read long\r"
expect "300000 bytes"
prompt
send "\r"
expect "prefill"
send "\x03"
expect "stopped before the answer"
prompt
send "/show\r"
expect "messages   0"
EOF
}

@test "a killed chat restores the terminal" {
    crash="SEGV:-11 ABRT:-6"
    case "$(ldd "$QUILL" 2>&1)" in *asan*) crash= ;; esac # a sanitizer's handlers stay
    for end in TERM:143 HUP:129 QUIT:-3 $crash; do
        drive <<EOF
spawn \$QUILL -n 1
prompt
send "half"
modes edited
signal ${end%:*}
expect "\\e[?2004l"
exit ${end#*:}
modes usual
EOF
    done
    # in the middle of an answer
    drive <<'EOF'
spawn $QUILL --ignore-eos -n -1 -c 1M --dump-prompt
prompt
send "hello\r"
expect "assistant\r\n"
modes usual
signal TERM
exit 143
modes usual
EOF
}

@test "--autosave keeps an answer that the end of the terminal cuts" {
    export XDG_STATE_HOME="$PWD/state"
    drive <<'EOF'
spawn $QUILL --ignore-eos -n -1 -c 1M --autosave
prompt
send "hello\r"
expect "\n"
pause 0.3
signal HUP
signal HUP
exit 129
EOF
    "$QUILL" -c 1M --continue --dump-prompt -n 1 next </dev/null 2>errors >out
    grep -q '^hello<|im_end|>' errors
    [ "$(grep -c 'im_start|>assistant' errors)" -eq 2 ]
}

@test "after Ctrl-Z and fg the typed line is shown again" {
    drive <<'EOF'
spawn bash --norc --noprofile -i
send "PS1='sh''> '\r"
expect "sh> "
send "$QUILL --dump-prompt -n 1\r"
prompt
send "be"
expect "be"
send "\x1a"
expect "Stopped"
expect "sh> "
send "stty -a | tr ' ' '\\n' | grep icanon; fg\r"
expect "\ricanon"
expect "> be"
send "fore\r"
expect "user\r\nbefore<|im_end|>"
prompt
send "\x04"
expect "sh> "
send "exit\r"
exit 0
EOF
}

@test "a stopped chat ends at kill, although it does not have the terminal" {
    for end in TERM:Terminated HUP:Hangup; do
        drive <<EOF
spawn bash --norc --noprofile -i
send "PS1='sh''> '\r"
expect "sh> "
send "\$QUILL -n 1\r"
prompt
send "be\x1a"
expect "Stopped"
expect "sh> "
send "kill -${end%:*} %1; while jobs | grep -qE 'Stopped|Running'; do sleep 0.1; done; jobs\r"
expect "${end#*:}"
send "exit\r"
exit 0
EOF
    done
}

@test "wide characters behind the cursor move by their width" {
    talk -n 1 --dump-prompt <<'EOF'
send "\u6f22\u5b57\u6f22\x01"
send "1"
expect "1\u6f22\u5b57\u6f22"
send "\e[C\x04\r"
expect "user\r\n1\u6f22\u6f22<|im_end|>"
EOF
}

@test "a resize of the window keeps the typed line" {
    talk --dump-prompt -n 1 <<'EOF'
send "a line that is longer than the window will be in a moment, when it changes"
resize 10 30
expect "\e[J"
send ", and more"
resize 40 120
expect "\e[J"
send " still\r"
expect "user\r\na line that is longer than the window will be in a moment, when it changes, and more still<|im_end|>"
EOF
}

@test "Tab completes commands, settings and files" {
    touch notes-of-today.txt 'two words.txt' $'esc\e[2Jape' escort
    mkdir home accents
    touch accents/$'\303\250' accents/$'\303\251'
    touch home/at-home.txt
    HOME="$PWD/home" talk -n 1 --dump-prompt <<'EOF'
send "/sho\t\r"
expect "template   the model's own"
prompt
send "/s\t"
expect "/system"
expect "/save"
send "e\tpres\t1.5\r"
prompt
send "/set\r"
expect "presence-penalty   1.5 (default 0)"
prompt
send "/read no\t\r"
expect "notes-of-today.txt: 0 bytes"
prompt
send "/read two\t\r"
expect "two words.txt: 0 bytes"
prompt
send "/set grammar-file two\t\r"
expect "two words.txt"
prompt
send "/set grammar-file default\r"
prompt
send "/read two wo\t\r"
expect "two words.txt: 0 bytes"
prompt
send "/read ~/at\t\r"
expect "~/at-home.txt: 0 bytes"
prompt
send "/read esc\t"
expect "esc\\x1b[2Jape"
send "\x15/read acc\t\t"
expect "accents/\u00e8  "
never "\ufffd"
send "\x15"
send "a\tb\r"
expect "user\r\na\tb<|im_end|>"
EOF
}

@test "~/.editrc can choose vi's keys" {
    echo 'bind -v' >editrc
    EDITRC="$PWD/editrc" talk --dump-prompt -n 1 <<'EOF'
send "hello wrold\ebcwworld"
expect "world"
send "\e[200~: two\rlines\e[201~ and more\r"
expect "user\r\nhello world: two\r\nlines and more<|im_end|>"
EOF
}

@test "on a dumb terminal the chat is plain" {
    TERM=dumb drive <<'EOF'
spawn $QUILL --dump-prompt -n 1
expect "> "
send "hello\n"
expect "user\r\nhello<|im_end|>"
expect "> "
send "two \\\n"
expect ". "
send "lines\n"
expect "user\r\ntwo \r\nlines<|im_end|>"
expect "> "
send "\"\"\" a block\n"
expect ". "
send "\x04"
expect "user\r\n a block<|im_end|>"
expect "> "
modes usual
send "\x03"
expect "(press Ctrl-C again or Ctrl-D to leave)"
expect "> "
send "/exit\n"
exit 0
EOF
}

@test "/edit and /copy call their programs, and the prompt has colour" {
    printf '#!/bin/sh\ncat "$1" >before; printf "edited text\\n" >"$1"\n' >editor
    chmod +x editor
    unset NO_COLOR
    EDITOR=./editor drive <<'EOF'
spawn $QUILL --dump-prompt -n 1 --greedy
expect "\e[1;32m>\e[0m "
send "typo\r"
expect "user\r\ntypo<|im_end|>"
expect "\e[?2004h"
send "/edit\r"
expect "<|im_start|>user\r\nedited text<|im_end|>\r\n<|im_start|>assistant"
never "typo<|im_end|>"
expect "\e[?2004h"
send "/edit\r"
expect "the message is unchanged: nothing is sent"
expect "\e[?2004h"
send "/copy\r"
expect "\e]52;c;"
expect "bytes to the clipboard, by the terminal"
expect "\e[?2004h"
send "/edit new\r"
expect "user\r\nedited text<|im_end|>"
expect "user\r\nedited text<|im_end|>"
expect "\e[?2004h"
send "\x04"
exit 0
modes usual
EOF
    [ ! -s before ] # of the new message
}

@test "/copy leaves out the thoughts of an answer" {
    printf '#!/bin/sh\ncat >clip\n' >wl-copy
    chmod +x wl-copy
    copied() { # the text of the clipboard for this answer and template
        printf '{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"%s"}]}' "$1" >said.json
        echo /copy | PATH="$PWD:$PATH" WAYLAND_DISPLAY=1 "$QUILL" -i --load said.json ${2:+--chat-template-file "$2"} 2>errors
        grep -q "^$(wc -c <clip) bytes to the clipboard, by wl-copy" errors
        cat clip
    }
    turns='{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}'
    printf '%b' "$turns{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}{# </think> #}" >opened
    printf '%b' "$turns{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}{# <think></think> #}" >open
    [ "$(copied 'hm, well\n</think>\n\nthe answer' opened)" = 'the answer' ]
    [ "$(copied '<think>\nhm\n</think>\n\nthe <think> answer' open)" = 'the <think> answer' ]
    [ "$(copied 'the answer' open)" = 'the answer' ]
    [ "$(copied 'hm, well' opened)" = 'hm, well' ]
    [ "$(copied '<think>hm</think>the answer')" = '<think>hm</think>the answer' ]
}

@test "a message that only an editor'\''s line feed changes is not sent again" {
    printf 'from a file\n' >text
    EDITOR=true talk --dump-prompt -n 1 --greedy <<'EOF'
send "/read text\r"
prompt
send "\r"
expect "user\r\nfrom a file"
prompt
send "/edit\r"
expect "the message is unchanged: nothing is sent"
EOF
}

@test "the text of /read stays for the next message when a message is refused, and /edit new sends it" {
    printf 'from a file\n' >text
    long=$(printf 'word %.0s' $(seq 200))
    printf '#!/bin/sh\nprintf "edited text\\n" >"$1"\n' >editor
    chmod +x editor
    EDITOR=./editor talk -c 96 --dump-prompt -n 1 --greedy <<EOF
send "/read text\r"
prompt
send "$long\r"
expect "write a shorter"
expect "the 12 bytes of /read stay in front of the next message; /undo removes them"
prompt
send "Hello\r"
expect "user\r\nfrom a file\r\n\r\n\r\nHello<|im_end|>"
prompt
send "/clear\r"
prompt
send "/read text\r"
prompt
send "/undo\r"
expect "removed: the 12 bytes that /read put in front of the next message"
prompt
send "/read text\r"
prompt
send "/edit new\r"
expect "user\r\nfrom a file\r\n\r\n\r\nedited text<|im_end|>"
EOF
}

@test "a conversation stays as it was when an edited message does not fit" {
    printf '#!/bin/sh\nfor i in $(seq 4000); do printf "word "; done >"$1"\n' >editor
    chmod +x editor
    EDITOR=./editor drive <<'EOF'
spawn $QUILL -c 64 -n 1 --greedy
expect "> "
send "first words\r"
expect "\e[?2004h"
send "/edit\r"
expect "the context 64; write a shorter"
expect "\e[?2004h"
send "/save talk.json\r"
expect "\e[?2004h"
send "\x04"
exit 0
modes usual
EOF
    jq -e '.messages | map(.role) == ["user", "assistant"] and .[0].content == "first words"' talk.json
}

# ---- conversations that are saved -------------------------------------------------------------------------------------

@test "--autosave saves each turn, and --continue continues it, in a chat and for one answer" {
    run "$QUILL" --continue hi </dev/null
    [ "$status" -eq 2 ]
    [[ "$output" == *"--continue: a conversation with chat expected in "*"/state/quill/conversations, found none"*--autosave* ]]
    printf '%s\n' 'first words' 'second words' | "$QUILL" -i --autosave -n 3 --greedy >out
    [ "$(ls state/quill/conversations | wc -l)" -eq 1 ]
    [ "$(stat -c %a state/quill/conversations)" = 700 ]
    [[ "$(ls state/quill/conversations)" =~ ^[0-9]{8}-[0-9]{6}-chat\.json$ ]]
    # one answer: what was said before is in front of the prompt; both are saved, and the file's settings stay
    jq .settings state/quill/conversations/* >settings
    "$QUILL" --continue --dump-prompt -n 1 'third words' </dev/null 2>errors >out
    grep -q '^first words<|im_end|>' errors
    grep -q '^second words<|im_end|>' errors
    grep -q '^third words<|im_end|>' errors
    jq .settings state/quill/conversations/* | cmp - settings
    [ "$(jq -r '.settings.predict' state/quill/conversations/*)" -eq 3 ]
    # a chat goes on
    printf 'fourth words\n' | "$QUILL" -i --continue -n 3 --greedy >out 2>errors
    grep -q '6 messages' errors
    [ "$(ls state/quill/conversations | wc -l)" -eq 1 ]
    jq -r '.messages[] | select(.role == "user") | .content' state/quill/conversations/* | xargs >said
    grep -qx 'first words second words third words fourth words' said
    # /clear begins another file, and that one is the last then
    printf '%s\n' /clear 'other words' | "$QUILL" -i --continue -n 3 --greedy >out 2>errors
    [ "$(ls state/quill/conversations | wc -l)" -eq 2 ]
    "$QUILL" --continue --dump-prompt -n 1 hi </dev/null 2>errors >out
    grep -q '^other words<|im_end|>' errors
    not grep -q '^first words' errors
    # another model has no part in it
    cp "$QUILL_MODEL" other.gguf
    [ "$(code "$QUILL" -m other.gguf --continue hi)" -eq 2 ]
    # nothing is saved unasked
    printf 'hello\n' | "$QUILL" -i -m other.gguf -n 1 >out
    [ "$(ls state/quill/conversations | wc -l)" -eq 2 ]
}

@test "--autosave saves one answer, and --continue goes on from answer to answer" {
    saved() { jq -c ".messages | $1" state/quill/conversations/*; }
    "$QUILL" --autosave -n 3 --greedy --echo --json 'first words' </dev/null >out
    [ "$(saved 'map(.role)')" = '["user","assistant"]' ]
    [ "$(jq -r .text out)" = "first words"$'\n'"$(saved '.[1].content' | jq -r .)" ] # saved without the echo
    "$QUILL" --continue -n 3 --greedy 'second words' </dev/null >out
    "$QUILL" --continue -n 3 --seed 1 --best-of 2 --json -sys 'Be brief' 'third words' </dev/null >out
    [ "$(saved 'map(.role) | join(" ")')" = '"system user assistant user assistant user assistant"' ]
    [ "$(saved '.[6].content' | jq -r .)" = "$(jq -r .text out)" ]
    # with chunks their text is part of the message
    printf 'a chunk of text' >chunk.txt
    "$QUILL" --continue -n 2 --chunk chunk.txt 'fourth words' </dev/null >out
    [ "$(saved '.[7].content')" = '"a chunk of text\n\nfourth words"' ]
    # what was said before a signal, or before a form was complete, stays
    "$QUILL" --continue -n 1 --regex '[ab]{9}' 'fifth words' </dev/null >out && false || [ $? -eq 7 ]
    [ "$(saved 'length')" -eq 11 ]
    # nothing is saved of a prompt that is refused, by --load, or without being asked
    [ "$(code "$QUILL" --continue --logit-bias 99999999+1 'sixth words')" -eq 2 ]
    cp state/quill/conversations/* talk.json
    "$QUILL" --load talk.json -n 1 'sixth words' </dev/null >out
    "$QUILL" -n 1 'sixth words' </dev/null >out
    cmp talk.json state/quill/conversations/*
    # --load with --autosave begins a new file
    "$QUILL" --load talk.json --autosave -n 1 'sixth words' </dev/null >out
    [ "$(ls state/quill/conversations | wc -l)" -eq 2 ]
    cmp talk.json "$(ls state/quill/conversations/* | head -1)"
    # a folder that cannot be made is an error after the answer
    touch no-folder
    XDG_STATE_HOME="$PWD/no-folder" "$QUILL" --autosave -n 3 hi </dev/null >out 2>errors && false || [ $? -eq 6 ]
    [ -s out ]
    grep -q "no-folder/quill: cannot make this folder" errors
}

@test "an answer whose conversation was saved by another run meanwhile gets a file of its own" {
    "$QUILL" --autosave -n 1 'first words' </dev/null >out
    mkfifo chunk
    "$QUILL" --continue -n 1 --chunk chunk 'third words' </dev/null >out 2>errors &
    exec 9>chunk # waits for the run, which reads the conversation before its chunks
    "$QUILL" --continue -n 1 'fourth words' </dev/null >out.2
    echo 'a chunk' >&9
    exec 9>&-
    ended $!
    [ "$status" -eq 0 ]
    [ "$(ls state/quill/conversations | wc -l)" -eq 2 ]
    grep -q 'fourth words' "$(ls state/quill/conversations/* | head -1)"
    grep -q 'third words' "$(ls state/quill/conversations/* | tail -1)"
    grep -q 'was written by another run meanwhile and stays as it is; this conversation is saved in .*chat.json$' errors
}

@test "chats that begin in the same second save to files of their own" {
    for i in 1 2 3 4 5 6 7 8; do
        printf 'words %s\n' $i | "$QUILL" -i -q --autosave -n 1 >/dev/null 2>errors.$i &
    done
    wait
    [ "$(cat errors.*)" = "" ]
    [ "$(ls state/quill/conversations | wc -l)" -eq 8 ]
    for i in 1 2 3 4 5 6 7 8; do grep -q "words $i" state/quill/conversations/*; done
    # a chat that was killed before it could write has left an empty file
    touch -d tomorrow state/quill/conversations/20990101-000000-chat.json
    "$QUILL" --continue --dump-prompt -n 1 hi </dev/null 2>errors >out
    grep -q '^words [1-8]<|im_end|>' errors
}

@test "two chats that continue one conversation both keep what they said" {
    printf 'first words\n' | "$QUILL" -i --autosave -n 1 >out
    own=$(echo "$PWD"/state/quill/conversations/*)
    mkfifo lines
    "$QUILL" -i --continue -n 1 <lines >out 2>errors &
    exec 9>lines
    printf '%s\n' 'second words' /save >&9 # what the chat itself writes is no reason to leave the file
    within 60 grep -q '^.*chat.json: 4 messages' errors
    printf 'third words\n' | "$QUILL" -i --continue -n 1 >out.2 2>errors.2
    printf '%s\n' 'fourth words' 'fifth words' >&9
    exec 9>&-
    ended $!
    [ "$status" -eq 0 ]
    [ "$(ls state/quill/conversations | wc -l)" -eq 2 ]
    grep -q 'third words' "$own"
    not grep -q 'f.*th words' "$own"
    other=$(grep -L 'third words' state/quill/conversations/*)
    [ "$(grep -c ' words"$' "$other")" -eq 4 ]
    [ "$(grep -c 'another chat has written .*chat.json; this chat leaves that file .* is saved in .*chat.json$' errors)" -eq 1 ]
    not grep -q 'another chat' errors.2
}

@test "a chat that cannot save says so once and continues" {
    touch no-folder
    rc=0
    printf '%s\n' one two | XDG_STATE_HOME="$PWD/no-folder" "$QUILL" -i --autosave -n 3 --dump-prompt >out 2>errors || rc=$?
    [ "$rc" -eq 6 ]
    [ "$(grep -c 'the conversation is not saved any more' errors)" -eq 1 ]
    grep -q "quill: $PWD/no-folder/quill: cannot make this folder for conversations: Not a directory; set XDG_STATE_HOME" errors
    XDG_STATE_HOME="$PWD/no-folder" run "$QUILL" --continue -n 1 hi < <(:)
    [ "$status" -eq 6 ]
    [[ "$output" == *"$PWD/no-folder/quill: cannot make this folder"* ]]
    run env -u HOME XDG_STATE_HOME=state "$QUILL" --continue -n 1 hi < <(:)
    [ "$status" -eq 6 ]
    [[ "$output" == *"an absolute path in XDG_STATE_HOME or HOME expected"* ]]
    grep -q '^two<|im_end|>' errors
}

@test "--load begins a chat or one answer with a saved conversation; flags go before its settings" {
    printf '%s\n' '/system Be kind.' '/set temp 0.25' '/set stop END' '/set n 3' '/set logit-bias 5-inf' 'first words' \
        '/save talk.json' | "$QUILL" -i >out 2>errors
    "$QUILL" --load talk.json --dump-prompt -n 1 'second words' </dev/null 2>errors >out
    grep -q 'Be kind' errors
    grep -q '^first words<|im_end|>' errors
    grep -q '^second words<|im_end|>' errors
    "$QUILL" --load talk.json -sys 'Be brief.' --dump-prompt -n 1 'second words' </dev/null 2>errors >out
    grep -q 'Be brief' errors
    not grep -q 'Be kind' errors
    printf '%s\n' /set | "$QUILL" -i --load talk.json --top-k 7 -n 9 >out 2>errors
    grep -q '^temp  *0.25 (default 0.8)' errors
    grep -q '^stop  *"END"' errors
    grep -q '^logit-bias  *5-inf' errors
    grep -q '^top-k  *7 ' errors
    grep -q '^predict  *9 ' errors
    printf '%s\n' '/set temp 2' '/load talk.json' /set /show | "$QUILL" -i --top-k 7 >out 2>errors
    grep -q '^temp  *0.25' errors
    grep -q '^top-k  *40$' errors
    grep -q '^messages   3' errors
    [ "$(code "$QUILL" --load talk.json --continue hi)" -eq 2 ]
    [ "$(code "$QUILL" --load missing.json hi)" -eq 6 ]
    [ "$(code "$QUILL" --load missing.json -i)" -eq 6 ]
    # a chat on a terminal says where it is saved
    drive <<'EOF'
spawn $QUILL --autosave -n 1
prompt
send "hello\r"
expect "saved after each turn:"
expect "/state/quill/conversations/"
prompt
send "again\r"
prompt
never "saved after each turn"
send "\x04"
exit 0
EOF
    # settings that are none are told by name
    printf '{"messages":[],"settings":{"temp":-1,"tmp":3,"ctx-size":9,"stop":[1,"x"],"top-p":0.5,"greedy":null}}' >odd.json
    printf '/set\n' | "$QUILL" -i --load odd.json >out 2>errors
    [ "$(grep -c 'odd.json: settings: ' errors)" -eq 3 ]
    grep -q '^top-p  *0.5 ' errors
    grep -q '^stop  *"x"' errors
    { printf '\xef\xbb\xbf'; cat odd.json; } >marked.json
    printf '/set\n' | "$QUILL" -i --load marked.json 2>&1 >out | grep -q '^top-p  *0.5 '
}

@test "/load replaces the form, the tools and the seed too" {
    printf '[{"name":"get_weather"}]' >tools.json
    printf '%s\n' hello '/save plain.json' '/set json-object on' '/set seed 7' '/save form.json' | "$QUILL" -i -n 1 >out
    set_before=('/set regex [a-z]{4}' '/set tools tools.json' '/set tool-choice none' '/set seed 4')
    chat=("$QUILL" -i -n 1 --chat-template hermes)
    printf '%s\n' "${set_before[0]}" "${set_before[3]}" '/load plain.json' /set | "${chat[@]}" >out 2>errors
    not grep -q 'settings:' errors
    grep -q '^regex  *none' errors
    grep -q '^seed  *-1$' errors
    printf '%s\n' "${set_before[@]:1:2}" '/load plain.json' /set | "${chat[@]}" >out 2>errors
    not grep -q 'settings:' errors
    grep -q '^tools  *none' errors
    grep -q '^tool-choice  *none' errors
    printf '%s\n' "${set_before[0]}" '/load form.json' /set | "${chat[@]}" >out 2>errors
    not grep -q 'settings:' errors
    grep -q '^regex  *none' errors
    grep -q '^json-object  *on' errors
    grep -q '^seed  *7 ' errors
    # a file whose form is refused, and one without settings, change none
    printf '{"messages":[],"settings":{"regex":"["}}' >bad.json
    printf '{"messages":[]}' >bare.json
    printf '%s\n' "${set_before[0]}" '/load bad.json' '/load bare.json' /set | "${chat[@]}" >out 2>errors
    [ "$(grep -c 'bad.json: settings: ' errors)" -eq 1 ]
    grep -q '^regex  *\[a-z\]{4}$' errors
    # flags of --load stay
    "${chat[@]}" --regex '[a-z]{4}' --seed 4 --load plain.json >out 2>errors < <(echo /set)
    grep -q '^regex  *\[a-z\]{4}$' errors
    grep -q '^seed  *4 ' errors
}

@test "a turn that /undo removes does not stay in the file of --autosave" {
    printf '%s\n' 'my secret' /undo | "$QUILL" -i --autosave -n 3 --greedy >out
    not grep -r secret state/quill/conversations
    "$QUILL" --continue --dump-prompt -n 1 hi </dev/null 2>errors >out
    not grep -q secret errors
    grep -q '^hi<|im_end|>' errors
}

@test "/save asks before it overwrites, and alone it writes where it wrote before" {
    printf 'precious\n' >file
    talk -n 1 <<'EOF'
send "hello\r"
prompt
send "/save file\r"
expect "overwrite file? [y/N] "
send "\r"
expect "/save: file: the file was not overwritten"
prompt
send "/save file\r"
expect "overwrite file? [y/N] "
send "\x03"
expect "/save: file: the file was not overwritten"
prompt
send "/save file\r"
expect "overwrite file? [y/N] "
send "Your name?\r"
expect "/save: file: the file was not overwritten"
EOF
    [ "$(cat file)" = precious ]
    # nobody would see the question
    drive <<'EOF'
spawn sh -c 'exec $QUILL -n 1 2>errors'
send "/save file\r"
send "yes\r"
send "\x04"
exit 0
EOF
    grep -q 'file: a new file expected' errors
    [ "$(cat file)" = precious ]
    talk -n 1 <<'EOF'
send "hello\r"
prompt
send "/save file\r"
expect "overwrite file? [y/N] "
send "y\r"
expect "file: 2 messages"
prompt
send "more\r"
prompt
send "/save\r"
expect "file: 4 messages"
prompt
send "\x1b[A\x1b[A\x1b[A\r"
expect "file: 4 messages"
EOF
    grep -q '"more"' file
    not grep -q '^y$' state/quill/history
}

@test "/save after /clear does not overwrite the conversation before it" {
    run "$QUILL" -i -n 1 < <(printf '%s\n' hello '/save --kv old' /clear /save '/save old' '/save --kv old' other '/save new' /save)
    [[ "$output" == *"old: 2 messages"*"/save: a file expected, found nothing"*"/save: old: a new file expected"*"/save: old: a new"* ]]
    [[ "$output" == *"new: 2 messages"*"new: 2 messages"* ]]
    grep -q '"hello"' old
    grep -q '"other"' new
}

@test "/save writes to a device or a FIFO as it is" {
    printf '%s\n' hello '/save /dev/stdout' | "$QUILL" -i -n 1 2>errors | cat >out
    grep -q '"messages": \[' out
    grep -q '^/dev/stdout: 2 messages$' errors
    printf '%s\n' hello '/save /dev/null' '/save' | "$QUILL" -i -n 1 >out 2>errors
    [ "$(grep -c '^/dev/null: 2 messages$' errors)" -eq 2 ]
    run "$QUILL" -i -n 1 < <(printf '%s\n' hello '/save /dev/full')
    [ "$status" -eq 6 ]
    [[ "$output" == *"/dev/full: "*"No space left on device"* ]]
    mkdir folder
    run "$QUILL" -i -n 1 < <(printf '%s\n' hello '/save folder')
    [ "$status" -eq 6 ]
    [[ "$output" == *"folder: a file to write expected, found a directory"* ]]
    mkfifo fifo
    cat fifo >written &
    printf '%s\n' hello '/save fifo' | "$QUILL" -i -n 1 >out 2>errors
    wait
    grep -q '"messages": \[' written
    [ -p fifo ]
}

@test "/save --kv asks before it overwrites FILE.kv too" {
    printf 'precious\n' >file.kv
    run "$QUILL" -i -n 1 < <(printf 'hello\n/save --kv file\n/save --kv other\n/save --kv other\n')
    [[ "$output" == *"/save: file.kv: a new file expected"*"other: 2 messages"*"other: 2 messages"* ]]
    [ "$(cat file.kv)" = precious ]
    [ ! -e file ]
    printf '%s\n' '/load --kv other' again '/save --kv' | "$QUILL" -i -n 1 2>&1 >/dev/null | grep -q '^other: 4 messages'
    # a file without its KV, beside which another FILE.kv stands
    run "$QUILL" -i -n 1 < <(printf 'hello\n/save file\n/save --kv\n')
    [[ "$output" == *"file: 2 messages"*"/save: file.kv: a new file expected"* ]]
    [ "$(cat file.kv)" = precious ]
}

@test "SIGTERM at the question of /save ends the chat" {
    printf 'precious\n' >file
    drive <<'EOF'
spawn $QUILL -n 1
prompt
send "hello\r"
prompt
send "/save file\r"
expect "overwrite file? [y/N] "
signal TERM
exit 143
modes usual
EOF
    [ "$(cat file)" = precious ]
}

@test "history can be turned off or moved, and leaves out lines with a space in front" {
    keys='spawn $QUILL -n 1
prompt
send "secret\r"
prompt
send "\e[A\r"
prompt
send "\x04"
exit 0'
    (QUILL_HISTORY= drive <<<"$keys")
    [ ! -e state/quill/history ]
    drive <<<"${keys/-n 1/-n 1 --no-history}"
    [ ! -e state/quill/history ]
    (QUILL_HISTORY="$PWD/elsewhere" drive <<<"$keys")
    [ ! -e state/quill/history ]
    [ "$(cat elsewhere)" = secret ]
    printf 'a cut line' >cut # as after a full disk
    (QUILL_HISTORY="$PWD/cut" drive <<<"$keys")
    [ "$(cat cut)" = 'a cut line
secret' ]
    talk -n 1 --dump-prompt <<'EOF'
send "kept\r"
prompt
send " not kept\r"
expect "user\r\n not kept<|im_end|>"
prompt
send "\e[A!\r"
expect "user\r\nkept!<|im_end|>"
EOF
    [ "$(cat state/quill/history)" = 'kept
kept!' ]
}

@test "exit, help and quit alone get a hint, and misspelt commands a suggestion" {
    talk --dump-prompt -n 1 <<'EOF'
send "exit\r"
expect "/exit ends the chat, as Ctrl-D does"
prompt
send "help\r"
expect "/help lists the commands"
prompt
send "quit\r"
expect "/exit ends the chat"
prompt
send " exit\r"
expect "user\r\n exit<|im_end|>"
never "user\r\nexit"
prompt
send "\"\"\"exit\"\"\"\r"
expect "user\r\nexit<|im_end|>"
prompt
send "/q\r"
expect "did you mean /quit?"
prompt
send "/hlep\r"
expect "did you mean /help?"
prompt
send "/regne\r"
expect "did you mean /regen?"
prompt
send "/xyzzy\r"
expect "/help lists them"
EOF
    # a stream says what it says
    printf 'exit\n' | "$QUILL" -i --dump-prompt -n 1 2>&1 >out | grep -q '^exit<|im_end|>'
}

@test "three quotes begin and end one message in a pipe too" {
    printf '%s\n' '"""first' '/second' '' '"""' '"""/one line"""' 'ends in \' 'in """ between' '"""cut off' |
        "$QUILL" -i --dump-prompt -n 1 >out 2>errors
    python3 - errors <<'PYTHON'
import re, sys
last = open(sys.argv[1], "rb").read().decode("utf-8", "replace").split("<|im_start|>user\n")
said = [m.split("<|im_end|>")[0] for m in last]
assert said[-5:] == ["first\n/second\n", "/one line", "ends in \\", 'in """ between', "cut off"], said
PYTHON
}

@test "a line or a message without an end ends the chat" {
    [ "$(code timeout 60 sh -c '"$QUILL" -i </dev/zero')" -eq 5 ]
    grep -qx 'quill: stdin: a line of at most 268435456 bytes expected, found more' errors
    { echo '"""'; yes "$(printf '%60000s' line)"; } | { timeout 60 "$QUILL" -i >out 2>errors || echo $? >rc; }
    [ "$(cat rc)" -eq 5 ]
    grep -qx 'quill: stdin: a message of at most 268435456 bytes expected, found more' errors
}

@test "/set shows one value and knows short names, and /set verbose shows the cost of turns" {
    printf '%s\n' '/set temp' '/set n 1' '/set n' '/set temp 0.5' '/set temp' '/set t 4' '/set markdown off' '/set markdown' \
        '/set verbose' '/set verbose on' hello '/set verbose off' again '/set verbos on' '/set c 9' |
        "$QUILL" -i --greedy >out 2>errors || [ $? -eq 2 ]
    [ "$(grep '^temp' errors)" = 'temp               0.8
temp               0.5 (default 0.8)' ]
    grep -q '^predict            1 (default -1)$' errors
    grep -q '^markdown           off (default auto)$' errors
    grep -q '^verbose            off$' errors
    [ "$(grep -c '^turn ' errors)" -eq 1 ]
    grep -q '^quill: t: not a setting' errors
    grep -q 'did you mean verbose' errors
    grep -q 'start again with -c 9' errors
}

# ---- an answer on a terminal ------------------------------------------------------------------------------------------

# What a terminal of $1 columns shows of `quill ARGS...`: its lines, styles left out.
shown() {
    local columns="$1"
    shift
    printf 'window 24 %d\nspawn %s\nexit 0\n' "$columns" "$*" >scenario
    drive --show <scenario | tr -d '\r' | sed 's/\x1b\[[0-9;]*m//g'
}

text='The **quick** brown fox jumps over `the lazy dog`, and a word that is longer: https://example.org/a/very/long/path/that/does/not/fit/into/forty/columns/at/all
- one *item* that is somewhat longer than forty columns are
# 漢字とかなの混じった文章は、文字の間で折り返されます。「括弧」も、句読点も大丈夫です。
```
int *code = *that + is - never * wrapped, whatever + the + terminal + does;
```'

@test "commands of other chats get the name of quill's" {
    printf '/retry\n/new\n/info\n/temp 0\n/set system Be brief.\n/set parameter temp 0\n' | "$QUILL" -i 2>errors || [ $? -eq 2 ]
    [ "$(sed -n 's/.*did you mean \(.*\)? .*/\1/p' errors | xargs)" = "/regen /clear /show /set temp" ]
    grep -q '^quill: system: not a setting; /system TEXT' errors
    grep -q '^quill: parameter: not a setting; .* /set NAME VALUE$' errors
}

@test "a refused seed changes nothing" {
    printf '%s\n' '/set seed foo' '/set seed' '/set seed 5' '/set seed -2' '/set seed' hello '/save talk.json' | "$QUILL" -i -n 1 >out 2>errors || [ $? -eq 2 ]
    [ "$(grep '^seed' errors)" = 'seed               -1
seed               5 (default -1)' ]
    printf '%s\n' '/set seed foo' hello '/save other.json' | "$QUILL" -i -n 1 >out 2>errors || [ $? -eq 2 ]
    not grep -q '"seed"' other.json
}

@test "/set takes quotes as the configuration file does" {
    printf '%s\n' '/set stop END' '/set stop ""' '/set stop' '/set stop " a b "' '/set stop """' '/set stop "' '/set stop' \
        '/set logit-bias 5-inf' '/set logit-bias ""' '/set logit-bias' hello '/save talk.json' | "$QUILL" -i -n 1 >out 2>errors
    [ "$(grep '^stop\|^logit' errors)" = 'stop               none
stop               " a b " """ """
logit-bias         none' ]
    # the stop strings of a file are taken as they are
    printf '{"messages":[],"settings":{"stop":["\\"x\\""]}}' >quoted.json
    printf '%s\n' '/load quoted.json' '/set stop' | "$QUILL" -i 2>&1 | grep -qx 'stop               ""x""'
}

@test "/set tools default drops tool-choice too" {
    printf '[{"name":"get_weather"}]' >tools.json
    for off in default '""'; do
        printf '%s\n' '/set tools tools.json' '/set tool-choice required' "/set tools $off" '/set tools' '/set tool-choice' hello |
            "$QUILL" -i -n 1 --chat-template hermes >out 2>errors
        [ "$(cat errors)" = 'tools              none
tool-choice        none' ]
    done
}

@test "an answer is wrapped between words at 40, 80 and 200 columns, and never in a pipe" {
    printf '%s' "$text" >prompt.md
    for columns in 40 80 200; do
        shown "$columns" '$QUILL --echo -n 0 -f prompt.md --markdown off' >"plain$columns"
        shown "$columns" '$QUILL --echo -n 0 -f prompt.md --markdown on' >"marked$columns"
        python3 - "$columns" "plain$columns" "marked$columns" <<'PYTHON'
import sys, unicodedata
columns = int(sys.argv[1])
width = lambda s: sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in s)
for name in sys.argv[2:]:
    lines = open(name, encoding="utf-8").read().split("\n")
    for line in lines:  # code and a word longer than the line alone are left to the terminal
        whole = line.lstrip().startswith("https://") or (name.startswith("marked") and line.startswith("int *code"))
        assert width(line) <= columns or whole, line
    text = "".join("".join(lines).split())
    assert "quick" in text and "https://example.org/a/very/long/path/that/does/not/fit/into/forty/columns/at/all" in text
    assert "混じった文章は、文字の間で折り返されます。「括弧」も、句読点も大丈夫です。" in text
    assert not any(line[:1] in "、。」" for line in lines if line), lines
first = open(sys.argv[2], encoding="utf-8").read().split("\n")[0]
assert first == {40: "The **quick** brown fox jumps over `the", 80: "The **quick** brown fox jumps over `the lazy dog`, and a word that is longer:"}.get(columns, first), first
marked = open(sys.argv[3], encoding="utf-8").read()
assert marked.startswith("The quick brown fox jumps over `the") and "\n\u2022 one item" in marked, marked
if columns == 40:
    assert "\n\u2022 one item that is somewhat longer than\n  forty columns are\n" in marked, marked
PYTHON
    done
    "$QUILL" --echo -n 0 -f prompt.md --markdown on --color always >piped
    cmp piped prompt.md || [ "$(cat piped)" = "$text" ]
}

@test "Markdown is rendered if there is colour and a template, and with --markdown on" {
    printf '%s' '**bold** `code`' >prompt.md
    printf 'spawn $QUILL --echo -n 0 -f prompt.md\nexit 0\n' >auto
    show() { drive --show; }
    [[ "$(NO_COLOR= show <auto)" == *$'\e[0;1mbold\e[0m \e[0;36mcode\e[0m'* ]]
    [[ "$(show <auto)" == *'**bold** `code`'* ]]                       # NO_COLOR
    [[ "$(TERM=dumb NO_COLOR= show <auto)" == *'**bold** `code`'* ]]
    [[ "$(sed 's/-n 0/-n 0 --color never/' auto | NO_COLOR= show)" == *'**bold** `code`'* ]]
    [[ "$(sed 's/-n 0/-n 0 --markdown off/' auto | NO_COLOR= show)" == *'**bold** `code`'* ]]
    [[ "$(sed 's/-n 0/-n 0 --raw/' auto | NO_COLOR= show)" == *'**bold** `code`'* ]]
    [[ "$(sed 's/-n 0/-n 0 --json/' auto | NO_COLOR= show)" != *$'\e'* ]]
    [[ "$(sed 's/-n 0/-n 0 --markdown on/' auto | show)" == *$'\e[0;1mbold\e[0m `code`'* ]] # no colour: bold is none
    [[ "$(sed 's/-n 0/-n 0 --markdown on/' auto | TERM=dumb show)" == *'**bold** `code`'* ]]
}

@test "control characters of an answer reach a terminal as text, and a pipe as they are" {
    printf 'a\033]0;title\007b\033[2Jc\302\233d\377e\r\nf' >prompt.md
    shown 80 '$QUILL --raw --echo -n 0 -f prompt.md' | grep -q '^a^\[\]0;title^Gb^\[\[2Jc^\[\[d'$'\357\277\275''e$'
    "$QUILL" --raw --echo -n 0 -f prompt.md >piped
    head -c "$(wc -c <prompt.md)" piped | cmp - prompt.md
}

@test "the lines of /help fit the terminal" {
    for columns in 40 80 200; do
        printf 'window 60 %d\nspawn $QUILL -n 1\nprompt\nsend "/help\\r"\nprompt\nsend "\\x04"\nexit 0\n' "$columns" >scenario
        drive --show <scenario | tr -d '\r' | sed 's/\x1b\[[0-9;?]*[a-z]//g' >page
        [ "$(wc -L <page)" -le "$columns" ]
        grep -q '^/regen' page
        grep -q 'Alt-Enter' page
    done
    grep -q '^/save \[--kv\] \[FILE\]    write conversation and settings as JSON' page
}

# ---- commands, which work over a pipe too -----------------------------------------------------------------------------

@test "every command does what /help says" {
    printf 'a file' >file
    printf '%s\n' hello /stats /tokens /regen /undo /regen hello again /show '/system Be kind.' hi '/save talk.json' \
        /clear /regen '/load talk.json' /regen '/read file' 'and more' '//x' ' /y' '/usr/bin is a path' /help /bye never |
        "$QUILL" -i --greedy -n 3 --dump-prompt >out 2>errors || [ $? -eq 2 ] # of /regen without a message
    for text in 'turn    prompt    cached' 'removed: hello' 'messages   4' '<|im_start|>system' 'Be kind.<|im_end|>' \
        'talk.json: 7 messages' 'a file' 'and more<|im_end|>' '^/x<|im_end|>' '^/y<|im_end|>' \
        '^/usr/bin is a path<|im_end|>' '/regen: a message to answer expected' '^/help '; do
        grep -aq -- "$text" errors
    done
    not grep -aq never errors
    python3 - talk.json <<'PYTHON'
import json, sys
talk = json.load(open(sys.argv[1]))
assert [m["role"] for m in talk["messages"]] == ["system"] + ["user", "assistant"] * 3, talk
assert talk["messages"][1]["content"] == "hello" and talk["model"].endswith("chat.gguf"), talk
PYTHON
}

@test "a conversation saved with its KV continues without being computed again" {
    printf '%s\n' 'hello there my friend' '/save --kv talk.json' | "$QUILL" -i --isa scalar --greedy -n 8 >/dev/null 2>errors
    [ -s talk.json.kv ]
    for kv in '--kv ' ''; do
        printf '%s\n' "/load ${kv}talk.json" 'and now?' | "$QUILL" -i --isa scalar --greedy -n 8 -v >"said$kv" 2>errors
        cached=$(sed -n 's/.* new tokens*, \([0-9]*\) cached.*/\1/p' errors)
        if [ -n "$kv" ]; then [ "$cached" -gt 10 ]; else [ "$cached" -eq 0 ]; fi
    done
    cmp 'said--kv ' said
    # Sealed KV likewise.
    printf '%s\n' 'hello there my friend, of whom I have not heard for a long time' '/save --kv far.json' |
        "$QUILL" -i --isa scalar --greedy -n 8 -ctk q8_0 -ctv kivi2 >/dev/null 2>errors
    for kv in '--kv ' ''; do
        printf '%s\n' "/load ${kv}far.json" 'and now?' | "$QUILL" -i --isa scalar --greedy -n 8 -ctk q8_0 -ctv kivi2 -v >"far$kv" 2>errors
        cached=$(sed -n 's/.* new tokens*, \([0-9]*\) cached.*/\1/p' errors)
        if [ -n "$kv" ]; then [ "$cached" -ge 32 ]; else [ "$cached" -eq 0 ]; fi
    done
    cmp 'far--kv ' far
    printf 'x' | dd of=talk.json.kv bs=1 seek=200 conv=notrunc 2>/dev/null
    rc=0
    printf '%s\n' '/load --kv talk.json' 'and now?' | "$QUILL" -i --isa scalar --greedy -n 8 >broken 2>errors || rc=$?
    [ "$rc" -eq 3 ]
    cmp broken said # refused with a line; the turn computes everything
    grep -q 'talk.json.kv: ' errors
}

@test "/save --kv after /undo, /clear and /load stores the K and V of the conversation alone" {
    say() { printf '%s\n' "$@" | "$QUILL" -i --isa scalar --greedy -n 8 >said 2>errors; }
    tokens() { "$QUILL" kv info "$1" | sed -n 's/^tokens  *\([0-9]*\),.*/\1/p'; }
    say 'hello there' '/save --kv one.json'
    say 'hello there' 'a secret that nobody may read' /undo '/save --kv undone.json'
    [ "$(tokens undone.json.kv)" -eq "$(tokens one.json.kv)" ]
    say 'hello there' 'a secret that nobody may read' '/load one.json' '/save --kv loaded.json'
    [ "$(tokens loaded.json.kv)" -le "$(tokens one.json.kv)" ]
    say 'a secret that nobody may read' /clear '/save --kv none.json'
    [ "$(tokens none.json.kv)" -eq 0 ]
}

@test "wrong commands are errors that say why" {
    printf '{"messages":[{"role":"wizard","content":"x"}]}' >wizard.json
    printf '[' >broken.json
    rc=0
    printf '%s\n' /regn /bogus '/set tmp 3' '/set temp 2000' '/set ctx-size 9' '/set greedy maybe' \
        '/set logit-bias 999999+1' '/load wizard.json' '/load broken.json' '/load missing' '/read missing' /undo \
        '/save' '/exit now' '/load --kv nowhere' '/save /nowhere/x' /regen /copy '/save broken.json' /edit \
        '/read -' '/load -' '/load --kv -' | "$QUILL" -i >out 2>errors || rc=$?
    [ "$rc" -eq 2 ] # of the first of them
    [ ! -s out ]
    not grep -v '^quill: ' errors
    for text in 'did you mean /regen' '/help lists them' 'did you mean temp' 'from 0 to 1000' 'start again with -c 9' \
        'on or off expected' 'a token id below' 'wizard.json: message 1: a role of' 'broken.json: line 1: JSON expected' \
        'missing' '/undo: a message to remove' '/save: a file expected' '/exit: nothing expected' '/regen: a message to answer expected' 'an answer expected' \
        'broken.json: a new file expected' 'a terminal on stdin'; do
        grep -q -- "$text" errors
    done
    [ "$(grep -c 'a file expected, found -' errors)" -eq 3 ]
    [ "$(wc -l <errors)" -eq 23 ]
}

@test "a piped chat ends with the code of its first failed command or answer, a chat on a terminal with 0" {
    fails() { # fails CODE WORDS ARGS...: the lines on stdin make the exit code CODE, and stderr has WORDS
        local rc=0
        "$QUILL" -i -n 1 --greedy "${@:3}" >out 2>errors || rc=$?
        cat errors
        [ "$rc" -eq "$1" ]
        grep -q -- "$2" errors
    }
    printf '{"messages":[' >bad.json
    printf 'hello\n/save bad.json\nmore\n' | fails 2 'bad.json: a new file expected'
    [ "$(wc -l <out)" -eq 2 ] # the chat goes on
    printf '/load bad.json\nhello\n' | fails 2 'bad.json: line 1: JSON expected'
    printf '/load missing.json\n/bogus\n/exit\n' | fails 6 'missing.json: cannot open'
    printf '/bogus\n/load missing.json\n' | fails 2 'no such command'
    printf 'hello\n' | fails 7 'ended before its form was complete' --json-object
    printf 'hello\n/load missing.json\n' | fails 7 'missing.json' --json-object
    printf 'hello\n/show\n' | fails 0 '^messages'
    talk -n 1 --json-object <<'EOF'
send "/load missing.json\r"
expect "missing.json"
prompt
send "hello\r"
expect "before its form was complete"
EOF
}

@test "a command may end in CR LF, as lines that another system has written do; text keeps its bytes" {
    printf '%s\r\n' hello '//x' '/usr/bin is a path' '/save talk.json' '/set temp 0.5' /exit never | "$QUILL" -i -n 1 --dump-prompt >out 2>errors
    [ -e talk.json ]
    jq -e '.messages | map(select(.role == "user").content) == ["hello\r", "/x\r", "/usr/bin is a path\r"]' talk.json
    not grep -aq never errors
    not grep -q '^quill: ' errors
}

@test "a block between quotes may have CR LF at its ends" {
    printf '"""\r\nfirst\r\nsecond\r\n"""\r\nnext\n"""alone"""\r\n/save talk.json\n' | "$QUILL" -i -n 1 >out 2>errors
    jq -e '.messages | map(select(.role == "user").content) == ["first\r\nsecond", "next", "alone"]' talk.json
}

@test "a form that cannot be is refused when it is set, and the next message is answered" {
    printf '[' >broken.json
    rc=0
    printf '%s\n' '/set regex [a-z' '/set tools /nonexist' '/set tools broken.json' '/set tool-choice required' \
        '/set regex [ab]{2}' '/set choice yes,no' '/set regex' hi | "$QUILL" -i >out 2>errors || rc=$?
    [ "$rc" -eq 2 ]
    grep -qxE '[ab]{2}' out
    for text in '--regex: ' '/nonexist: ' 'broken.json: ' 'tools expected with it' '--regex and --choice: one of them'; do
        grep -q -- "$text" errors
    done
    [ "$(grep -c '^quill: ' errors)" -eq 5 ]
    grep -qxE 'regex +\[ab\]\{2\}' errors
    [ "$(code "$QUILL" -i --regex '[a-z' </dev/null)" -eq 2 ] # at the start too
    # a saved conversation
    printf '{"messages":[{"role":"user","content":"x"}],"settings":{"choice":"yes,no","temp":0.5}}' >talk.json
    printf '%s\n' '/set temp' hi | "$QUILL" -i --regex '[ab]{2}' --load talk.json >out 2>errors # the flag stays
    grep -qxE '[ab]{2}' out
    grep -q 'talk.json: settings: --regex and --choice' errors
    grep -qE '^temp +0.5' errors
}

@test "/save and /load refuse options that they do not have" {
    rc=0
    printf '%s\n' hi '/save --foo x' '/save --kv --foo' '/load --kvx' '/save ./--foo' | "$QUILL" -i -n 1 >/dev/null 2>errors || rc=$?
    [ "$rc" -eq 2 ]
    [ "$(grep -c 'a file expected, found --' errors)" -eq 3 ]
    [ -e ./--foo ]
    [ ! -e '--foo x' ]
}

@test "context-shift cannot be set beside --evict" {
    rc=0
    printf '%s\n' '/set context-shift on' '/set context-shift' | "$QUILL" -i --evict shift 2>errors || rc=$?
    [ "$rc" -eq 2 ]
    grep -q 'without --evict expected' errors
    grep -qE '^context-shift +off' errors
}

@test "a refused setting leaves the earlier biases unchanged" {
    set -- -i -n 4 --greedy --logit-bias 70+1000 --logit-bias 71+999 --logit-bias 72+998
    printf '%s\n' one two | "$QUILL" "$@" >expected
    rc=0
    printf '%s\n' one '/set logit-bias 999999+1' two | MALLOC_PERTURB_=85 "$QUILL" "$@" >out || rc=$? # what is freed is overwritten
    [ "$rc" -eq 2 ]
    cmp out expected
}

@test "a full context is reported, and --context-shift leaves out whole turns, also in the middle of an answer" {
    printf 'hello there\n' | "$QUILL" -i -c 64 --ignore-eos --greedy >out 2>errors
    grep -q 'context of 64 tokens is full, so the answer ends here' errors
    for i in 1 2 3 4 5 6; do echo "message number $i"; done >messages
    run "$QUILL" -i -c 96 --ignore-eos -n 20 --greedy <messages
    [ "$status" -eq 5 ]
    [[ "$output" == *"make room with /undo or /clear, /set context-shift on"* ]]
    run "$QUILL" -i -c 96 <<<"$(printf 'word%.0s ' {1..200})"
    [[ "$output" == *"; write a shorter message, or start with -c "* ]] # there is nothing to remove
    "$QUILL" -i -c 96 --ignore-eos -n 20 --greedy --context-shift -v <messages >out 2>errors
    grep -q 'the oldest .* left out from here on' errors
    [ "$(grep -ac '^turn .* 20 tokens' errors)" -eq 6 ]
    # the last answer alone is longer than what is left of the context
    printf '%s\n' one two '/set predict 80' three | "$QUILL" -i -c 110 --ignore-eos -n 20 --greedy --context-shift -v >out 2>errors
    grep -q 'the oldest .* left out from here on' errors
    grep -aq '^turn .* 80 tokens' errors
    [ "$("$QUILL" --context-shift hi </dev/null 2>/dev/null || echo $?)" -eq 2 ]
}

@test "a chat with raw text reuses the KV cache" {
    printf '%s\n' 'Once upon' ' a time' /regen | "$QUILL" -m "$TINY/base.gguf" -i -v -n 8 --greedy >out 2>errors
    [ "$(grep -a '^turn' errors | sed -n '2s/ new.*//p')" = 'turn       6' ] # five, and a sampled token was not in the cache yet
    grep -a '^turn' errors | sed -n 3p | grep -q '^turn       1 new'
}

@test "a chat that suggests a larger context says for which length the model was trained" {
    run -5 --separate-stderr "$QUILL" --no-config -q -i <<<"$(head -c 20000 /dev/zero | tr '\0' a)"
    [[ "$stderr" == *"start with -c "*"; the model was trained for "*": beyond that length it may write nonsense" ]]
}

@test "/load --kv computes nothing again where an encoding begins with a space" {
    "$MAKE_TINY" spaces.gguf arch=llama template=chatml seed=5 ctx=512
    local id bias=()
    for id in $(seq 3 34) $(seq 130 258) 0 1 2 318; do bias+=(--logit-bias "$id-inf"); done # answers in ASCII
    again() { "$QUILL" -m spaces.gguf -i --deterministic --greedy --ignore-eos -n 30 "${bias[@]}"; }
    printf '%s\n' blue '/save --kv talk.json' 'next one' /stats | again >whole 2>errors
    printf '%s\n' '/load --kv talk.json' 'next one' /stats | again >loaded 2>>errors
    tail -n 1 whole | cmp - <(tail -n 1 loaded)
    [ "$(awk '$2 == 79 && $3 == 51' errors | wc -l)" = 2 ]
}

@test "names of files and loaded settings reach stderr without control characters" {
    local odd=$'a\033[31mX'
    echo text >"$odd"
    printf '/read %s\n/undo\nhi\n/save %s.json\n/load %s.json\n/set regex\n/exit\n' "$odd" "$odd" "$odd" |
        "$QUILL" -i -n 2 --regex $'\033?[a-z ]+' >out 2>errors || true
    grep -q 'bytes, the beginning of the next message' errors
    grep -q '2 messages' errors
    grep -q '^regex ' errors
    [ "$(grep -c $'\033' errors)" -eq 0 ]
}

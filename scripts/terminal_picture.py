#!/usr/bin/env python3
"""Draws docs/terminal.svg, README's picture of a terminal after the commands of SCENE, from the real program's output.

    scripts/terminal_picture.py ./quill docs/terminal.svg

Runs the commands in a shell under tmux (needs tmux), waits for each to end, and turns the last screen with its colours into SVG. The
answers are greedy or seeded, so the same build draws the same picture on the same kind of CPU; only times differ.
"""
import html
import os
import re
import subprocess
import sys
import tempfile
import time

COLUMNS, ROWS = 86, 24
LETTER = "Tom went to the mill. The wind was cold. He put the blue cup there. Anna went home.\n"
# Each line to type, and the beginning of the screen's last line when its command has ended.
SCENE = [
    ("cat letter.txt", "$"),
    ("cat letter.txt | quill --greedy - -p 'Where is the blue cup?' | tr a-z A-Z", "$"),
    ("quill --seed 4", ">"),
    ("Hello!", ">"),
    ('"""', "."),
    ("Nora went to the barn. She put the red kite there.", "."),
    ("Where is the red kite?", "."),
    ('"""', ">"),
    ("What is 47 plus 38?", ">"),
    ("/stats", ">"),
]
PALETTE = ["#1d1f21", "#cc6666", "#8fbf6f", "#f0c674", "#81a2be", "#b294bb", "#8abeb7", "#c5c8c6"]
BRIGHT = ["#7c7f82", "#e07b7b", "#b5d68f", "#f7d794", "#a3c4e0", "#cdb0d6", "#a8dcd4", "#ffffff"]
CHAR, LINE, SIZE, MARGIN = 8.43, 19, 14, 16


class Terminal:
    def __init__(self, folder, path):
        self.name = f"quill-picture-{os.getpid()}"
        env = dict(os.environ, PATH=path + os.pathsep + os.environ["PATH"], HOME=folder, LC_ALL="C.UTF-8")
        for name in ("QUILL_MODEL", "NO_COLOR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "TMUX"):
            env.pop(name, None)
        subprocess.run(self.command("-f", "/dev/null", "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS),
                                    "bash --rcfile bashrc"), check=True, env=env, cwd=folder)

    def command(self, *words):
        return ["tmux", "-L", self.name, *words]

    def screen(self, *how):
        text = subprocess.run(self.command("capture-pane", "-p", *how), check=True, capture_output=True, text=True)
        return text.stdout.rstrip("\n").split("\n")

    def type(self, line):
        subprocess.run(self.command("send-keys", "-l", line), check=True)
        subprocess.run(self.command("send-keys", "Enter"), check=True)

    def wait(self, prompt, patience=60):
        """Waits until the last line of the screen is only the prompt, twice in a row."""
        end, calm = time.time() + patience, 0
        while calm < 2:
            time.sleep(0.15)
            calm = calm + 1 if self.screen()[-1].strip() == prompt else 0
            if time.time() > end:
                sys.exit(f"terminal_picture.py: {prompt!r} expected within {patience} s, the screen ends with {self.screen()[-1]!r}")

    def leave_chat(self):
        """Returns when the chat has ended and written its history."""
        subprocess.run(self.command("send-keys", "C-d"), check=True)
        self.wait("$")

    def close(self):
        subprocess.run(self.command("kill-server"), check=False)


def colour(codes, style):
    """Applies the numbers of one SGR sequence to a style (fill, bold, dim)."""
    fill, bold, dim = style
    codes = [int(c or 0) for c in codes.split(";")]
    while codes:
        c = codes.pop(0)
        if c == 0:
            fill, bold, dim = PALETTE[7], False, False
        elif c == 1:
            bold = True
        elif c == 2:
            dim = True
        elif c == 22:
            bold = dim = False
        elif 30 <= c <= 37:
            fill = PALETTE[c - 30]
        elif 90 <= c <= 97:
            fill = BRIGHT[c - 90]
        elif c == 39:
            fill = PALETTE[7]
        elif c == 38 and codes[:1] == [5]:
            number = codes[1]
            fill = (PALETTE + BRIGHT)[number] if number < 16 else PALETTE[7]
            codes = codes[2:]
    return fill, bold, dim


def spans(line, style):
    """The line's text in SVG, and the style behind it."""
    out = ""
    for i, part in enumerate(re.split(r"\x1b\[([0-9;]*)m", line)):
        if i % 2:
            style = colour(part, style)
        elif part:
            fill, bold, dim = style
            more = (' font-weight="bold"' if bold else "") + (' opacity="0.6"' if dim else "")
            out += f'<tspan fill="{fill}"{more}>{html.escape(part, quote=False)}</tspan>'
    return out, style


def draw(lines):
    width, height = round(COLUMNS * CHAR + 2 * MARGIN), LINE * len(lines) + 2 * MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
           "<title>quill in a terminal: a pipe and a chat</title>",
           f'<rect width="{width}" height="{height}" rx="8" fill="{PALETTE[0]}"/>',
           f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="{SIZE}" xml:space="preserve">']
    style = (PALETTE[7], False, False)
    for i, line in enumerate(lines):
        text, style = spans(line, style)
        if text:
            out.append(f'<text x="{MARGIN}" y="{MARGIN + LINE * i + SIZE}" style="white-space:pre">{text}</text>')
    return "\n".join(out + ["</g>", "</svg>"]) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    quill, out = os.path.abspath(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/bin")
        os.symlink(quill, f"{folder}/bin/quill")
        for name, text in (("letter.txt", LETTER), ("bashrc", "PS1='$ '\n")):
            with open(f"{folder}/{name}", "w") as f:
                f.write(text)
        terminal = Terminal(folder, f"{folder}/bin")
        try:
            terminal.wait("$")
            for line, prompt in SCENE:
                terminal.type(line)
                terminal.wait(prompt)
            lines = terminal.screen("-e")
            terminal.leave_chat()
        finally:
            terminal.close()
    with open(out, "w") as f:
        f.write(draw(lines))


if __name__ == "__main__":
    main()

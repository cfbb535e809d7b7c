#!/usr/bin/env python3
"""Drives a program on a pseudo-terminal: a scenario on stdin, a line a step; ends with 1 and the screen where one fails.

  spawn PROGRAM ARGS...   on a terminal of 24 x 80 (shell words)
  send "TEXT"             keys, with Python's escapes: "\\x03" is Ctrl-C, "\\e[A" an arrow
  expect "TEXT"           waits until the terminal has shown it, after what was expected before
  never "TEXT"            what was expected last did not have this before it
  prompt                  waits until a line is edited: pastes in brackets, and the prompt
  window ROWS COLUMNS     of the terminals of later spawns
  resize ROWS COLUMNS
  pause SECONDS           for what the program does when nothing comes
  signal NAME             to the program
  modes usual|edited      waits until the terminal's modes are those before the start, or are not
  exit CODE               waits for the end; -N: by signal N

No other step sleeps for a time: it waits for what it names, QUILL_TEST_PATIENCE seconds (120) at most. Standard library.
With --show all that the terminal got goes to stdout at the end.
"""
import ast, fcntl, os, pty, select, shlex, signal, struct, sys, termios, time

PATIENCE = float(os.environ.get("QUILL_TEST_PATIENCE", "120"))


class Failed(Exception):
    pass


class Driven:
    def __init__(self, words, window):
        self.seen, self.at, self.skipped = b"", 0, b""
        master, slave = pty.openpty()
        self.size(master, *window)
        self.usual = termios.tcgetattr(master)
        self.child = os.fork()
        if self.child == 0:
            try:
                os.setsid()
                fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
                for fd in range(3):
                    os.dup2(slave, fd)
                os.closerange(3, 64)
                for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # ignored under nohup, or in the background
                    signal.signal(number, signal.SIG_DFL)
                os.execvp(words[0], words)
            finally:
                os._exit(127)
        os.close(slave)
        self.master = master

    @staticmethod
    def size(fd, rows, columns):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, until):
        """More output, or False at the end of it."""
        left = until - time.monotonic()
        if left <= 0:
            raise Failed("nothing more came in time")
        if not select.select([self.master], [], [], left)[0]:
            return True
        try:
            more = os.read(self.master, 65536)
        except OSError:  # Linux says so when the last holder of the other end is gone
            more = b""
        self.seen += more
        return bool(more)

    def rest(self):
        """What the terminal got before its program ended."""
        until = time.monotonic() + PATIENCE
        while self.read(until):
            pass

    def send(self, text):
        data, until = text.encode("utf-8", "surrogateescape"), time.monotonic() + PATIENCE
        while data:  # the program's output is taken while it is slow to read
            readable, writable, _ = select.select([self.master], [self.master], [], 1)
            if readable:
                self.read(until)
            if writable:
                data = data[os.write(self.master, data[:512]):]
            if time.monotonic() > until:
                raise Failed("the program does not read")

    def expect(self, text):
        wanted, until = text.encode("utf-8"), time.monotonic() + PATIENCE
        while wanted not in self.seen[self.at:]:
            if not self.read(until):
                raise Failed("the output ended")
        found = self.seen.index(wanted, self.at)
        self.skipped = self.seen[self.at:found]
        self.at = found + len(wanted)

    def modes(self, what):
        until = time.monotonic() + PATIENCE
        while (termios.tcgetattr(self.master) == self.usual) != (what == "usual"):
            self.read(min(until, time.monotonic() + 0.05)) if time.monotonic() < until - 0.05 else self.read(until)

    def exit(self, code):
        until = time.monotonic() + PATIENCE
        while True:
            done, status = os.waitpid(self.child, os.WNOHANG)
            if done:
                break
            if time.monotonic() > until:
                raise Failed("it does not end")
            if select.select([self.master], [], [], 0.05)[0] and not self.read(until):
                time.sleep(0.02)  # the terminal is closed, the process about to end
        found = os.waitstatus_to_exitcode(status)
        if found != code:
            raise Failed(f"exit code {found}")


def text_of(argument):
    return ast.literal_eval(argument.replace("\\e", "\\x1b"))


window = (24, 80)


def step(driven, line):
    global window
    name, _, argument = line.strip().partition(" ")
    if name == "spawn":
        return Driven(shlex.split(os.path.expandvars(argument)), window)
    if name == "window":
        window = tuple(map(int, argument.split()))
        return driven
    if name == "send":
        driven.send(text_of(argument))
    elif name == "expect":
        driven.expect(text_of(argument))
    elif name == "never":
        if text_of(argument).encode() in driven.skipped:
            raise Failed("it is there")
    elif name == "prompt":
        driven.expect("\x1b[?2004h")
        driven.expect("> ")
    elif name == "resize":
        driven.size(driven.master, *map(int, argument.split()))
    elif name == "pause":
        time.sleep(float(argument))
    elif name == "signal":
        os.kill(driven.child, getattr(signal, "SIG" + argument))
    elif name == "modes":
        driven.modes(argument)
    elif name == "exit":
        driven.exit(int(argument))
    else:
        raise Failed("no such step")
    return driven


def main():
    driven = None
    for line in sys.stdin:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            driven = step(driven, line)
        except Failed as why:
            print(f"{line.strip()}: {why}; since the last step came {driven.seen[driven.at:]!r}", file=sys.stderr)
            print(f"all of it: {driven.seen[-3000:]!r}", file=sys.stderr)
            try:
                os.kill(driven.child, signal.SIGKILL)
            except ProcessLookupError:
                pass
            return 1
    if "--show" in sys.argv:
        driven.rest()
        sys.stdout.buffer.write(driven.seen)
    return 0


sys.exit(main())

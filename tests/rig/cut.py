#!/usr/bin/env python3
"""cut.py QUILL BASE.gguf CHAT.gguf: model files that become shorter while quill has them mapped; in an empty folder."""
import json, os, pty, shutil, signal, subprocess, sys, time
signal.alarm(60)  # nothing here takes a second
quill, base, chat = sys.argv[1:]

def cut(path, share): os.truncate(path, int(os.path.getsize(path) * share))
def lines(p): return p.stderr.read().decode().splitlines()
def check(code, errors, name):
    assert code == 3 and len(errors) == 1 and errors[0].startswith("quill: ") and name in errors[0] \
        and "became shorter" in errors[0], (code, errors)

for share in (0, 0.3, 0.6, 0.9):  # one answer
    shutil.copy(base, "m.gguf")
    p = subprocess.Popen([quill, "-m", "m.gguf", "--raw", "--greedy", "--ignore-eos", "--special", "-n", "2000", "-p", "abc"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    begun = os.read(p.stdout.fileno(), 10)
    cut("m.gguf", share)
    rest = p.stdout.read()
    check(p.wait(), lines(p), "m.gguf")

# A batch: what was answered is there, in the order of its lines, and the others say why not.
shutil.copy(chat, "m.gguf")
p = subprocess.Popen([quill, "batch", "-m", "m.gguf", "--greedy", "--ignore-eos", "--keep-order", "-n", "3"], stdin=subprocess.PIPE,
                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
for i in range(3): p.stdin.write(b'{"id":%d,"prompt":"Hello"}\n' % i)
p.stdin.flush()
out = [json.loads(p.stdout.readline()) for i in range(3)]
cut("m.gguf", 0.3)
for i in range(3, 6): p.stdin.write(b'{"id":%d,"prompt":"Hello"}\n' % i)
p.stdin.close()
out += [json.loads(l) for l in p.stdout.read().splitlines()]
errors = lines(p)
assert [o["id"] for o in out[:3]] == [0, 1, 2] and all("text" in o for o in out[:3]), out
assert out[3:] and all(o["error"]["code"] == 3 and "m.gguf" in o["error"]["message"] for o in out[3:]), out
check(p.wait(), errors, "m.gguf")

# prefill: no file; a chat from a pipe; what is kept in --kv-dir is whole.
shutil.copy(base, "m.gguf")
p = subprocess.Popen([quill, "prefill", "-m", "m.gguf", "--raw", "-ub", "1", "-c", "2048", "-p", "word " * 300, "--kv-out", "o.kv"],
                     stderr=subprocess.PIPE)
while not any("quill-" in f for f in os.listdir(".")) and p.poll() is None: time.sleep(0.001)
cut("m.gguf", 0.3)
check(p.wait(), lines(p), "m.gguf")
assert not os.path.exists("o.kv") and not any("quill-" in f for f in os.listdir("."))
shutil.copy(chat, "m.gguf")
p = subprocess.Popen([quill, "-i", "-m", "m.gguf", "--greedy", "--ignore-eos", "-n", "5", "--kv-dir", "kept"], stdin=subprocess.PIPE,
                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
p.stdin.write(b"Hello\n"), p.stdin.flush()
os.read(p.stdout.fileno(), 1)
time.sleep(0.3)
cut("m.gguf", 0.3)
p.stdin.write(("again " * 50 + "\n/save never.json\n").encode()), p.stdin.close()
check(p.wait(), lines(p), "m.gguf")
assert not os.path.exists("never.json")
for f in os.listdir("kept"): subprocess.run([quill, "kv", "check", "kept/" + f], check=True)

# A chat on a terminal, whose modes come back.
shutil.copy(chat, "m.gguf")
pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"], os.environ["HOME"] = "xterm", os.getcwd()
    os.execv(quill, [quill, "-m", "m.gguf", "--greedy", "--ignore-eos", "-n", "20"])
def until(mark):
    seen = b""
    while mark not in seen: seen += os.read(fd, 4096)
    return seen
until(b"m>")
os.write(fd, b"Hello\r")
until(b"m>")
cut("m.gguf", 0.3)
os.write(fd, b"And now\r")
seen = b""
try:
    while True: seen += os.read(fd, 4096)
except OSError: pass
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3 and seen.count(b"became shorter") == 1, seen
assert b"\x1b[?2004l" in seen, seen

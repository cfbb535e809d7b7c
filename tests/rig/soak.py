#!/usr/bin/env python3
"""soak.py: long runs, whose memory must stay flat.

  soak.py --quill ./quill --make-tiny make_tiny [--jobs 5000] [--turns 2000] [--threads 2] [--isa auto] [--growth 2]

A batch of random jobs with cancels, broken lines and a cache so small that sequences give way to each other; and chats of
many turns, begun anew now and then, with the context shifted or tokens given up, and with --kv-dir. Memory is what the process has of its own (RssAnon, the
mapped model left out): in the last tenth of the output no more than --growth MiB above what it was in the first fifth.
"""
import argparse, json, os, random, re, subprocess, sys, tempfile, threading, time



def own_memory(pid):
    for line in open("/proc/%d/status" % pid):
        if line.startswith("RssAnon:"): return int(line.split()[1]) << 10
    return 0


class Watched:
    """A run that is fed by a thread; memory is noted with every piece of its output."""

    def __init__(self, args, lines, folder):
        env = {"HOME": folder, "PATH": os.environ["PATH"]}
        p = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder, env=env)
        self.out, self.seen, said = bytearray(), [], []

        def feed():
            for line in lines: p.stdin.write(line)
            p.stdin.close()

        threads = [threading.Thread(target=feed), threading.Thread(target=lambda: said.append(p.stderr.read().decode()))]
        for t in threads: t.start()
        while True:
            part = os.read(p.stdout.fileno(), 1 << 14)
            if not part: break
            self.out += part
            self.seen.append((len(self.out), own_memory(p.pid)))
        for t in threads: t.join()
        self.code, self.said = p.wait(), said[0]

    def growth(self):
        n = len(self.out)
        early = max([m for at, m in self.seen if at <= 0.2 * n], default=0)
        late = max([m for at, m in self.seen if at > 0.9 * n], default=0)
        return early, late


def jobs(n, seed):
    """n jobs, a twelfth of them called off, some broken; the ids that must have an answer of their own."""
    r, lines, ids = random.Random(seed), [], []
    for i in range(n):
        text = "".join(r.choice("abcdefgh ") for _ in range(r.randrange(1, 60)))
        job = {"id": i, "prompt": text, "max_tokens": r.randrange(1, 40), "seed": i}
        if r.random() < 0.2: job["n"] = r.randrange(2, 4)
        if r.random() < 0.2: job["logprobs"] = 2
        if r.random() < 0.3: job["temperature"] = r.choice([0, 0.5, 2])
        if r.random() < 0.1: job = {"id": i, "messages": [{"role": "user", "content": text}], "max_tokens": 5}
        if r.random() < 0.03: job = {"id": i, "prompt": 5}
        ids.append(i)
        lines.append(json.dumps(job))
        if r.random() < 1 / 12: lines.append('{"cancel":%d}' % max(0, i - r.randrange(6)))
    return [(l + "\n").encode() for l in lines], ids


def check(o, name, run, code, what):
    early, late = run.growth()
    good = run.code == code and late - early <= o.growth * (1 << 20) and what is None
    print("%-34s exit %d, %7d bytes out, memory %.2f MB then %.2f MB%s" %
          (name, run.code, len(run.out), early / 1e6, late / 1e6, "" if good else "  FAILED: %s %s" % (what, run.said[-400:])), flush=True)
    return good


def batch(o, tiny, folder, more, name):
    lines, ids = jobs(o.jobs, 7)
    run = Watched([o.quill, "batch", "-m", tiny, "-v", "-t", str(o.threads), "--isa", o.isa, "-c", "128", "--kv-block", "8", "-np", "6", "-ub", "24", *more], lines, folder)
    try: found = sorted(json.loads(l)["id"] for l in bytes(run.out).splitlines())
    except ValueError as e: found = str(e)
    preempted = re.search(r"(\d+) preempt", run.said)
    what = None
    if found != ids: what = "%d answers of %d" % (len(found), len(ids))
    elif "--kv-mem" in more and not (preempted and int(preempted[1]) > 0): what = "nothing gave way"
    return check(o, name, run, 2, what)


CLEAR = 100  # turns after which a conversation begins anew; all of it is rendered at every turn


def chat(o, tiny, folder, more, name):
    r, file = random.Random(3), name.replace(" ", "-") + ".json"
    lines = [("".join(r.choice("abcdefgh ") for _ in range(r.randrange(1, 40))).strip() + "x\n").encode() for _ in range(o.turns)]
    for i in range(o.turns - o.turns % CLEAR, 0, -CLEAR): lines.insert(i, b"/clear\n")
    run = Watched([o.quill, "-i", "-m", tiny, "-t", str(o.threads), "--isa", o.isa, "-c", "256", "-n", "8", "--seed", "1", "-q", *more], lines + [b"hello\n/save %s\n" % file.encode()], folder)
    try: n = len(json.load(open(os.path.join(folder, file)))["messages"])
    except (OSError, ValueError): n = -1
    want = 2 * (o.turns % CLEAR + 1)
    return check(o, name, run, 0, None if n == want else "%d messages saved, %d expected" % (n, want))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--quill", required=True)
    p.add_argument("--make-tiny", required=True)
    p.add_argument("--jobs", type=int, default=5000)
    p.add_argument("--turns", type=int, default=2000)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--isa", default="auto")
    p.add_argument("--growth", type=float, default=2, help="MiB")
    o = p.parse_args()
    o.quill, o.make_tiny, start = os.path.abspath(o.quill), os.path.abspath(o.make_tiny), time.time()
    with tempfile.TemporaryDirectory(prefix="quill-soak-") as folder:
        tiny = os.path.join(folder, "tiny.gguf")
        subprocess.run([o.make_tiny, tiny, "arch=qwen2", "template=chatml", "dim=32", "ctx=256"], check=True)
        good = [batch(o, tiny, folder, ["--kv-mem", "64k"], "batch, a small cache"),
                batch(o, tiny, folder, ["--kv-dir", "kept,size=1M"], "batch, --kv-dir of 1 MB"),
                chat(o, tiny, folder, ["--context-shift"], "chat, --context-shift"),
                chat(o, tiny, folder, ["--evict", "sinks,sink=4,window=64"], "chat, --evict sinks"),
                chat(o, tiny, folder, ["--context-shift", "--kv-dir", "talks,size=1M"], "chat, --kv-dir of 1 MB")]
    print("%d of %d held, %.0f s" % (sum(good), len(good), time.time() - start))
    return not all(good)


sys.exit(main())

#!/usr/bin/env python3
"""faults.py: every way of running quill, with every call of the system that can fail made to fail once.

  faults.py --quill ./quill --make-tiny make_tiny --preload faults.so [--sample N] [--only MODE[/CLASS]] [--jobs 2]

A run that meets a failure must end in one of these ways:
  - exit code 0, with the same answer and the same files as an undisturbed run; stderr has notes alone,
  - a documented exit code (1 to 6; 4 where memory was refused), one line on stderr, beginning with "quill: ",
    and with code 4 perhaps the memory budget after it.
Files that it leaves must be gone after the next undisturbed run. --sample N takes N injections a mode and class, chosen
by a fixed seed; without it all of them are made.
"""
import argparse, concurrent.futures, ctypes, json, os, random, re, shutil, subprocess, sys, tempfile, threading, time

import hub_server

CLASSES = ["alloc", "mmap", "open", "read", "write", "fsync", "rename", "stat", "thread",
           "short-read", "short-write", "again-read", "again-write", "break-read", "break-write"]
HARMLESS = {"short-read", "short-write", "again-read", "again-write", "break-read", "break-write"}
DOCUMENTED = {0, 1, 2, 3, 4, 5, 6}
BUDGET = re.compile(r"  (weights|KV cache|of it|scratch|draft|available) ")  # its lines, by memory_plan_explain
PATIENCE = 60  # seconds of one run

CHAT = "Hello there.\n/save talk.json\nTell me more.\n/load talk.json\nAnd then?\n/save end.json\n"
JOBS = "".join(json.dumps(j) + "\n" for j in [
    {"id": "a", "prompt": "One fine day", "max_tokens": 5},
    {"id": "b", "messages": [{"role": "user", "content": "Who is \u00e9?"}], "max_tokens": 5, "n": 2},
    {"id": "c", "prompt": 7},
    {"custom_id": "d", "url": "/v1/chat/completions", "method": "POST",
     "body": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "logprobs": True, "top_logprobs": 1}},
    {"id": 6, "prompt": "Two", "max_tokens": 4, "beams": 2, "n": 2},
    {"id": 5, "prompt": "Two", "max_tokens": 3, "logprobs": 1}])
MESSAGES = json.dumps([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is it?"}])


class Mode:
    """args: of quill; given: its stdin; made: files that an undisturbed run leaves; before: runs that prepare a folder;
    foreign: libraries work beside quill, whose want of memory may become any documented failure; may_keep: how names end
    of files that a run may leave besides, since it went another way; noted: a run that says a note may print something
    else."""

    def __init__(self, name, args, given="", made=(), before=(), json_out=False, code=0, varies=(), foreign=False,
                 may_keep="/", noted=False):
        self.name, self.args, self.given, self.made = name, args, given, set(made)
        self.before, self.json_out, self.code, self.varies = before, json_out, code, set(varies)
        self.foreign, self.may_keep, self.noted = foreign, may_keep, noted


def has_libcurl():
    try:
        return bool(ctypes.CDLL("libcurl.so.4"))
    except OSError:
        print("skipped what fetches models: libcurl.so.4 is not installed")
        return False


def modes(tiny):
    few = ["-t", "2", "--isa", "avx2", "--greedy", "--seed", "1"]
    text = "The quick brown fox jumps over the lazy dog, and goes on to do it again and again."
    prefill = ["prefill", "-m", tiny, *few[:4], "--kv-out", "o.kv", "--raw", "-p", text]
    kept = ["-m", tiny, *few, "--raw", "-n", "5", "--kv-dir", "kept", "-p", text]
    imatrix = ["perplexity", "-m", tiny, *few[:4], "-p", text, "--imatrix-out", "i.gguf"]
    # All of it computed again: the answer is the same whether a chunk's file could be read or not.
    chunk = ["-m", tiny, *few, "--raw", "-n", "5", "--deterministic", "--blend", "cacheblend,ratio=1", "--kv-dir", "kept",
             "--chunk", "-", "-p", "And then?"]
    return [
        Mode("one-shot", [*few, "-n", "8", "-p", "Hello"]),
        Mode("json", [*few, "-n", "4", "--json", "--logprobs", "2", "-p", "Hello"], json_out=True),
        Mode("beams", [*few, "-n", "6", "--beams", "3", "--json", "--logprobs", "1", "-p", "Hello"], json_out=True),
        Mode("best-of", [*few[:4], "--seed", "1", "-n", "5", "--best-of", "3", "-p", "Hello"]),
        Mode("chat", ["-i", *few, "-n", "6"], CHAT, ["talk.json", "end.json"]),
        Mode("batch", ["batch", *few, "--keep-order", "-np", "2", "-"], JOBS, json_out=True, code=2),
        Mode("prefill", prefill, made=["o.kv"]),
        Mode("decode", ["decode", "-m", tiny, *few, "-n", "5", "--kv-in", "o.kv"], made=["o.kv"], before=[prefill]),
        Mode("kv-dir-write", kept, made=["kept"], varies=["kept"]),
        Mode("kv-dir-read", kept, made=["kept"], before=[kept], varies=["kept"]),
        Mode("inspect", ["inspect", "-m", tiny, "--json"], json_out=True),
        Mode("inspect-text", ["inspect", "-m", tiny]),
        Mode("gguf", ["-m", tiny, *few, "--raw", "-n", "4", "-p", "abc"]),
        Mode("no-mmap", ["-m", tiny, *few, "--raw", "--no-mmap", "-n", "4", "-p", "abc"]),
        Mode("template", ["template", "--chat-template", "llama3"], MESSAGES),
        Mode("tokenize", ["tokenize", "-m", tiny, "-f", "-"], "Some text, 123.\n"),
        Mode("chat-kv", ["-i", *few, "-n", "4"], "Hello.\n/save --kv t.json\n/load --kv t.json\nMore.\n", ["t.json", "t.json.kv"]),
        Mode("kv-cut", ["kv", "cut", "-n", "10", "--kv-out", "p.kv", "o.kv"], made=["o.kv", "p.kv"], before=[prefill]),
        Mode("batch-kv-dir", ["batch", "-m", tiny, *few, "--keep-order", "--kv-dir", "kept", "-"], JOBS, ["kept"],
             json_out=True, code=2, varies=["kept"]),
        # a prompt whose chunks cannot be had is computed as any other, and its blocks are kept
        Mode("chunk-write", chunk, text, ["kept"], varies=["kept"], may_keep=".kv"),
        Mode("chunk-read", chunk, text, ["kept"], before=[chunk], varies=["kept"], may_keep=".kv"),
        Mode("chunk-add", ["chunk", "add", "-q", "-m", tiny, *few[:4], "--kv-dir", "kept", "-"], text, ["kept"], varies=["kept"]),
        Mode("perplexity", ["perplexity", "-m", tiny, *few[:4], "-p", text]),
        Mode("logits", ["logits", "-m", tiny, *few[:4], "--tokens", "5,6,7"]),
        Mode("quantize", ["quantize", "-t", "2", tiny, "o.gguf", "Q5_0"], made=["o.gguf"]),
        Mode("quantize-imatrix", ["quantize", "-t", "2", "--imatrix", "i.gguf", "--prune", "2:4", "--prune-by", "wanda", tiny,
             "o.gguf", "Q4_0"], made=["o.gguf", "i.gguf"], before=[imatrix]),
        Mode("imatrix", [*imatrix, "--kl-base", "logits"], made=["i.gguf", "logits"]),
        Mode("kl", ["perplexity", "-m", tiny, *few[:4], "-p", text, "--kl", "logits"], made=["i.gguf", "logits"],
             before=[[*imatrix, "--kl-base", "logits"]]),
        Mode("help", ["--help"]),
    ] + ([] if not has_libcurl() else [
        Mode("pull", ["pull", "me/tiny"], made=["hf"], varies=["hf"], foreign=True),
        Mode("models", ["models"], made=["hf"], before=[["pull", "-q", "me/tiny"]], noted=True),
        Mode("models-rm", ["models", "rm", "-y", "-q", "me/tiny"], made=["hf"], before=[["pull", "-q", "me/tiny"]], varies=["hf"]),
        Mode("cached", ["-m", "me/tiny", *few, "--raw", "-n", "4", "-p", "abc"], made=["hf"], before=[["pull", "-q", "me/tiny"]]),
    ])


def plain(value):
    """What JSON says apart from times."""
    if isinstance(value, list): return [plain(v) for v in value]
    if not isinstance(value, dict): return value
    ends = ("_ms", "_tps", "_tflops", "_gbs")
    return {k: plain(v) for k, v in value.items() if not k.endswith(ends) and k not in ("created",)}


def meaning(mode, out):
    if not mode.json_out: return out
    try:
        return [plain(json.loads(line)) for line in out.decode().splitlines()]
    except ValueError as e:
        return "no JSON: %s: %r" % (e, out[:200])


def content(path):
    if not os.path.isdir(path): return open(path, "rb").read()
    return {name: content(os.path.join(path, name)) for name in sorted(os.listdir(path))}


class Rig:
    def __init__(self, o):
        self.o, self.lock = o, threading.Lock()
        self.tmp = tempfile.mkdtemp(prefix="quill-faults-")
        self.tiny = os.path.join(self.tmp, "tiny.gguf")
        subprocess.run([o.make_tiny, self.tiny, "arch=qwen2", "template=chatml", "ctx=512"], check=True)
        self.count = 0
        os.makedirs(os.path.join(self.tmp, "hub/me/tiny"))
        shutil.copy(self.tiny, os.path.join(self.tmp, "hub/me/tiny/tiny-Q8_0.gguf"))
        self.hub = hub_server.Hub(os.path.join(self.tmp, "hub"))

    def folder(self):
        with self.lock:
            self.count += 1
            path = os.path.join(self.tmp, "run%d" % self.count)
        os.mkdir(path)
        return path

    def run(self, args, given, folder, fault=None):
        env = {"HOME": folder, "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HF_HOME": "hf",
               "HF_ENDPOINT": self.hub.endpoint(), "HF_HUB_DOWNLOAD_TIMEOUT": "2", "no_proxy": "*"}
        if fault: env.update(LD_PRELOAD=self.o.preload, FAULT_CLASS=fault[0], FAULT_N=str(fault[1]), FAULT_COUNT=folder + ".n")
        return subprocess.run([self.o.quill, *args], input=given.encode(), capture_output=True, cwd=folder, env=env,
                              timeout=PATIENCE)

    def prepared(self, mode):
        folder = self.folder()
        for args in mode.before:
            done = self.run(args, mode.given, folder)
            if done.returncode: sys.exit("%s: cannot prepare: %s" % (mode.name, done.stderr.decode()))
        return folder

    def undisturbed(self, mode):
        """stdout and files of a run without failures."""
        folder = self.prepared(mode)
        done = self.run(mode.args, mode.given, folder)
        if done.returncode != mode.code: sys.exit("%s: exit code %d: %s" % (mode.name, done.returncode, done.stderr.decode()))
        files = {name: content(os.path.join(folder, name)) for name in os.listdir(folder)}
        if set(files) != mode.made: sys.exit("%s: leaves %s" % (mode.name, sorted(files)))
        shutil.rmtree(folder)
        return meaning(mode, done.stdout), files

    def calls(self, mode, kind):
        folder = self.prepared(mode)
        self.run(mode.args, mode.given, folder, (kind, 0))
        n = int(open(folder + ".n").read())
        os.unlink(folder + ".n")
        shutil.rmtree(folder)
        return n

    def judge(self, mode, kind, done, out, files, folder):
        """What is wrong with a run; None: nothing."""
        code, lines = done.returncode, done.stderr.decode(errors="replace").splitlines()
        said = [l for l in lines if not l.startswith("quill: note: ")]
        if mode.foreign: said = [l for l in said if l.startswith("quill: ")]  # GnuTLS speaks where it is loaded without memory
        if mode.name.startswith("chat"): said = [l for l in said if not l.endswith(" messages")]  # what /save and /load say
        if code not in DOCUMENTED: return "exit code %d: %s" % (code, lines[-1:])
        if code != mode.code or kind in HARMLESS:
            if kind in HARMLESS and code != mode.code: return "exit code %d: %s" % (code, lines)
            if kind == "alloc" and code != 4 and not mode.foreign: return "exit code %d for want of memory: %s" % (code, said)
        if mode.name.startswith("chat") and code == 6: said = said[:1]  # a line for every command that failed
        if code == 4: said = said[:1] + [l for l in said[1:] if not BUDGET.match(l)]
        if code and (len(said) != 1 or not said[0].startswith("quill: ")): return "exit code %d, stderr %s" % (code, said)
        if code and code != mode.code: return None
        if code == 0 and said: return "exit code 0, stderr %s" % said
        noted = mode.noted and len(lines) > len(said)
        if meaning(mode, done.stdout) != out and not noted: return "exit code %d, another answer: %r" % (code, done.stdout[:300])
        for name in mode.made - mode.varies:
            path = os.path.join(folder, name)
            if not os.path.exists(path): return "exit code %d without %s" % (code, name)
            if content(path) != files[name]: return "exit code %d, %s differs" % (code, name)
        return None

    def leftovers(self, mode, folder, files):
        def extra():
            found = set(os.listdir(folder)) - mode.made
            for name in mode.varies:  # a temporary file is anything that an undisturbed run does not leave there
                path = os.path.join(folder, name)
                if os.path.isdir(path): found |= set(os.listdir(path)) - set(files[name])
            return {name for name in found if not name.endswith(mode.may_keep)}
        if not extra(): return None
        for name in mode.made - mode.varies:  # /save writes new files alone
            if os.path.exists(os.path.join(folder, name)): os.unlink(os.path.join(folder, name))
        for args in mode.before: self.run(args, "", folder)
        self.run(mode.args, mode.given, folder)
        return "left after the next run: %s" % sorted(extra()) if extra() else None

    def inject(self, mode, kind, n, out, files):
        folder = self.prepared(mode)
        try:
            done = self.run(mode.args, mode.given, folder, (kind, n))
            wrong = self.judge(mode, kind, done, out, files, folder) or self.leftovers(mode, folder, files)
        except subprocess.TimeoutExpired:
            wrong = "no end within %d s" % PATIENCE
        shutil.rmtree(folder)
        if os.path.exists(folder + ".n"): os.unlink(folder + ".n")
        return wrong


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--quill", required=True)
    p.add_argument("--make-tiny", required=True)
    p.add_argument("--preload", required=True)
    p.add_argument("--sample", type=int, default=0)
    p.add_argument("--only", default="")
    p.add_argument("--jobs", type=int, default=2)
    o = p.parse_args()
    o.quill, o.make_tiny, o.preload = map(os.path.abspath, (o.quill, o.make_tiny, o.preload))
    rig, start, all_n, bad = Rig(o), time.time(), 0, 0
    only_mode, _, only_class = o.only.partition("/")
    print("%-14s" % "mode", "".join("%12s" % k for k in CLASSES))
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        for mode in modes(rig.tiny):
            if only_mode and mode.name != only_mode: continue
            out, files = rig.undisturbed(mode)
            row, wrongs = [], []
            for kind in CLASSES:
                if only_class and kind != only_class: continue
                turns = list(range(1, rig.calls(mode, kind) + 1))
                if o.sample: turns = sorted(random.Random("%s %s" % (mode.name, kind)).sample(turns, min(o.sample, len(turns))))
                results = list(pool.map(lambda n: rig.inject(mode, kind, n, out, files), turns))
                good = results.count(None)
                row.append("%d/%d" % (good, len(turns)))
                all_n, bad = all_n + len(turns), bad + len(turns) - good
                wrongs += ["%s %s %d: %s" % (mode.name, kind, n, w) for n, w in zip(turns, results) if w]
            print("%-14s" % mode.name, "".join("%12s" % r for r in row), flush=True)
            for w in wrongs: print("  " + w, flush=True)
    shutil.rmtree(rig.tmp)
    print("%d injections, %d clean ends, %.0f s" % (all_n, all_n - bad, time.time() - start))
    return bad > 0


sys.exit(main())

#!/usr/bin/env python3
"""hub_server.py: a Hugging Face Hub for tests, on this machine: repositories from a folder, and every fault a network has.

  hub_server.py ROOT            # ROOT/user/repo/FILE are the files; writes ROOT/port (of the Hub, of the other host)

Files of LARGE bytes and more are answered as the Hub answers those of LFS: a redirect to another host, with X-Linked-Etag
(SHA-256) and X-Linked-Size; smaller ones with a relative redirect and the SHA-1 of a git blob. ROOT/fault has the fault
of the moment, a word and its numbers, read with each request; ROOT/log gets a line a request:
  hub|other METHOD PATH range=BYTES auth=TOKEN
"""
import hashlib, http.server, json, os, sys, threading, time, urllib.parse

LARGE = 1000
COMMIT = "c0ffee" + "0" * 34


def sha256(data): return hashlib.sha256(data).hexdigest()
def git_sha1(data): return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    """Two servers, the Hub and the host that its large files lie on, in threads of this process."""

    def __init__(self, root):
        self.root, self.lock = root, threading.Lock()
        self.fault_text, self.used = None, 0
        self.servers = [self.serve(name) for name in ("hub", "other")]
        self.ports = [s.server_address[1] for s in self.servers]

    def serve(self, name):
        handler = type("Handler", (Handler,), {"hub": self, "name": name})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        server.handle_error = lambda request, address: None  # clients that are killed are what tests do
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def endpoint(self): return "http://127.0.0.1:%d" % self.ports[0]

    def fault(self):
        """The fault's words; none where the file is not there."""
        try:
            text = open(os.path.join(self.root, "fault")).read()
        except OSError:
            text = ""
        with self.lock:
            if text != self.fault_text: self.fault_text, self.used = text, 0
        return text.split() or [""]

    def strike(self, times):
        """Whether the fault is still to come: it comes so many times."""
        with self.lock:
            self.used += 1
            return self.used <= times

    def log(self, line):
        with self.lock, open(os.path.join(self.root, "log"), "a") as f: f.write(line + "\n")

    def commit(self, repo):
        try:
            return open(os.path.join(self.root, repo, ".commit")).read().strip()
        except OSError:
            return COMMIT

    def own_name(self, repo):
        """The repository's name in its own case, as the Hub finds it."""
        user, _, name = repo.partition("/")
        users = [u for u in os.listdir(self.root) if u.lower() == user.lower() and os.path.isdir(os.path.join(self.root, u))]
        names = [u + "/" + n for u in users for n in os.listdir(os.path.join(self.root, u)) if n.lower() == name.lower()]
        return names[0] if names else repo

    def files(self, repo):
        top = os.path.join(self.root, repo)
        names = [os.path.relpath(os.path.join(d, f), top) for d, _, fs in os.walk(top) for f in fs]
        return sorted(n for n in names if n != ".commit")

    def read(self, repo, path):
        try:
            return open(os.path.join(self.root, repo, path), "rb").read()
        except OSError:
            return None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args): pass

    def answer(self, status, headers=(), body=b""):
        self.send_response(status)
        for k, v in headers: self.send_header(k, str(v))
        if not any(k == "Content-Length" for k, _ in headers): self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD": self.wfile.write(body)

    def do_HEAD(self): self.do_GET()

    def do_GET(self):
        self.log_request_line()
        fault = self.hub.fault()
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path)
        try:
            if self.early(fault): return
            if self.name == "other": return self.send_file(fault, *path.strip("/").split("/", 2))
            if path.startswith("/api/models/"): return self.api(fault, path[len("/api/models/"):])
            if path.startswith("/api/resolve-cache/"): return self.small(path[len("/api/resolve-cache/"):])
            return self.resolve(fault, path)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def log_request_line(self):
        auth = self.headers.get("Authorization", "").replace("Bearer ", "") or "none"
        self.hub.log("%s %s %s range=%s auth=%s" % (self.name, self.command, self.path, self.headers.get("Range", "none"), auth))

    def early(self, fault):
        """Faults of a whole answer."""
        word, hub = fault[0], self.hub
        if word == "token" and self.name == "hub" and self.headers.get("Authorization") != "Bearer " + fault[1]:
            self.answer(401, [("X-Error-Code", "RepoNotFound")], b'{"error":"Repository not found"}')
        elif word == "gated" and self.name == "hub" and "/resolve/" in self.path:
            self.answer(403, [("X-Error-Code", "GatedRepo")])
        elif word == "busy" and hub.strike(int(fault[1])): self.answer(429, [("Retry-After", fault[2])])
        elif word == "limited" and hub.strike(int(fault[1])): self.answer(429, [("RateLimit", '"api";r=0;t=' + fault[2])])
        elif word == "dated" and hub.strike(int(fault[1])):
            self.answer(429, [("Retry-After", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 1)))])
        elif word == "status" and hub.strike(int(fault[2])): self.answer(int(fault[1]))
        elif word == "drop" and hub.strike(int(fault[1])): self.close_connection = True
        elif word == "gone" and "/resolve/" in self.path: self.answer(404, [("X-Error-Code", "EntryNotFound")])
        elif word == "loop" and self.name == "hub": self.answer(302, [("Location", self.path)])
        elif word == "file": self.answer(302, [("Location", "file:///etc/passwd")])
        elif word == "junk" and self.path.startswith("/api/"): self.answer(200, [], b"<html>hello</html>")
        else: return False
        return True

    def api(self, fault, rest):
        repo = self.hub.own_name("/".join(rest.split("/")[:2]))
        if not os.path.isdir(os.path.join(self.hub.root, repo)): return self.answer(404, [("X-Error-Code", "RepoNotFound")])
        siblings, tree = [], []
        for name in self.hub.files(repo):
            data = self.hub.read(repo, name)
            tree.append({"type": "file", "path": name, "size": len(data), "oid": git_sha1(data)})
            if len(data) >= LARGE: tree[-1]["lfs"] = {"oid": sha256(data), "size": len(data), "pointerSize": 134}
            one = {"rfilename": name, "size": len(data), "blobId": git_sha1(data)}
            if len(data) >= LARGE: one["lfs"] = {"sha256": sha256(data), "size": len(data), "pointerSize": 134}
            siblings.append(one)
        if rest.split("/")[2:3] == ["tree"]: return self.answer(200, [("Content-Type", "application/json")], json.dumps(tree).encode())
        if fault[0] == "escape": siblings += [{"rfilename": p, "size": 5} for p in ("../../x-Q4_K_M.gguf", "/tmp/x-Q4_K_M.gguf", "a//b.gguf")]
        if fault[0] == "many": siblings += [{}] * int(fault[1])
        body = json.dumps({"id": repo, "sha": self.hub.commit(repo), "siblings": siblings}).encode()
        self.answer(200, [("Content-Type", "application/json")], body)

    def resolve(self, fault, path):
        parts = path.strip("/").split("/", 4)
        repo, name = "/".join(parts[:2]), parts[4] if len(parts) == 5 else ""
        data = self.hub.read(repo, name)
        if len(parts) < 5 or parts[2] != "resolve" or data is None: return self.answer(404, [("X-Error-Code", "EntryNotFound")])
        head = [("X-Repo-Commit", self.hub.commit(repo))]
        if len(data) < LARGE:
            return self.answer(307, head + [("Location", "/api/resolve-cache/%s/%s" % (repo, urllib.parse.quote(name)))])
        if fault[0] != "noetag": head.append(("X-Linked-Etag", '"%s"' % sha256(data)))
        head.append(("X-Linked-Size", len(data)))
        # another host by its name and by its port
        self.answer(302, head + [("Location", "http://localhost:%d/%s/%s" % (self.hub.ports[1], repo, urllib.parse.quote(name)))])

    def small(self, rest):
        repo, name = "/".join(rest.split("/")[:2]), rest.split("/", 2)[2]
        data = self.hub.read(repo, name)
        self.answer(200, [("ETag", 'W/"%s"' % git_sha1(data)), ("X-Repo-Commit", self.hub.commit(repo))], data)

    def send_file(self, fault, user, repo, name):
        """A large file's bytes, from the other host."""
        word, data = fault[0], self.hub.read(user + "/" + repo, name)
        if self.headers.get("Authorization"): return self.answer(400)  # storage hosts refuse a second authorization
        if data is None: return self.answer(404)
        if word == "wrong" and self.hub.strike(int(fault[1])): data = bytes([data[0] ^ 1]) + data[1:]
        if word == "short" and self.hub.strike(int(fault[1])): data = data[:-7]
        if word == "long" and self.hub.strike(int(fault[1])): data = data + b"x" * 100000
        first, whole = 0, len(data)
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes=") and word != "norange": first = int(asked[6:].split("-")[0])
        if first > whole or (first == whole and whole): return self.answer(416, [("Content-Range", "bytes */%d" % whole)])
        body = data[first:]
        self.send_response(206 if first else 200)
        if first: self.send_header("Content-Range", "bytes %d-%d/%d" % (first, whole - 1, whole))
        if word == "chunked": self.send_header("Transfer-Encoding", "chunked")
        else: self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.send_body(fault, body)

    def send_body(self, fault, body):
        word = fault[0]
        if word == "chunked":
            for i in range(0, len(body), 5000):
                part = body[i:i + 5000]
                self.wfile.write(b"%x\r\n" % len(part) + part + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
        elif word in ("cut", "stall"):  # so many bytes of each answer, so many times
            often = int(fault[2]) if len(fault) > 2 else 1 << 30
            if not self.hub.strike(often): return self.wfile.write(body)
            self.wfile.write(body[:int(fault[1])])
            self.wfile.flush()
            if word == "stall": time.sleep(30)
            self.close_connection = True
        elif word == "slow":  # so many bytes in each hundredth of a second
            for i in range(0, len(body), int(fault[1])):
                self.wfile.write(body[i:i + int(fault[1])])
                self.wfile.flush()
                time.sleep(0.01)
        else: self.wfile.write(body)


def main():
    root = os.path.abspath(sys.argv[1])
    hub = Hub(root)
    with open(os.path.join(root, "port.new"), "w") as f: f.write("%d %d\n" % tuple(hub.ports))
    os.rename(os.path.join(root, "port.new"), os.path.join(root, "port"))
    parent = os.getppid()
    while os.getppid() == parent: time.sleep(0.5)  # ends with the test that started it


if __name__ == "__main__": main()

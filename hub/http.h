// hub/http.h: requests to the Hub: HTTP by libcurl, redirects, the token, patience with servers that are busy.
//
// The token goes to the endpoint's own scheme, host and port and to no other; a redirect away from it loses the token
// for good. Plain http is spoken only where the endpoint itself is http://, and certificates are always checked. A
// signal of base/signals.h ends a request within a second.
#ifndef QUILL_HUB_HTTP_H
#define QUILL_HUB_HTTP_H

#include "base/base.h"

typedef struct {
    char *endpoint; // "https://huggingface.co", or what HF_ENDPOINT says; no slash at its end
    char *token;    // HF_TOKEN, or what $HF_HOME/token has; NULL: none
    int patience;   // seconds without a byte after which a request has failed; HF_HUB_DOWNLOAD_TIMEOUT, 10
    bool quiet;     // no notes
    void *handle;   // of libcurl, kept from request to request
} HubHttp;

// What the last answer's head says.
typedef struct {
    long status;                  // 200, ...; 0: there was none
    bool is_transient;            // it failed in a way that may pass: no connection, a cut one, silence, a busy server
    bool is_unreachable;          // the host has no address, or nobody answers there
    char etag[256];               // X-Linked-Etag, else ETag; without quotes and W/
    char commit[65];              // X-Repo-Commit
    int64_t size;                 // X-Linked-Size, else Content-Length; -1: not said
    int64_t from;                 // 206: the first byte, by Content-Range; -1: not said
    int64_t wait;                 // seconds that the server wants one to wait; -1: not said
    char code[64];                // X-Error-Code: GatedRepo, RepoNotFound, ...
    bool linked_etag, has_linked; // the etag, the size are those of X-Linked-
} HubReply;

typedef struct {
    const char *url;
    bool head;                // no body, and redirects to other hosts are not followed: the reply describes the file
    uint64_t from;            // the body from this byte on, as far as the server can
    void (*begin)(void *arg); // before each try of hub_http_get; NULL: nothing
    // Takes the body of a reply that was a success, in pieces. An error ends the request.
    Status (*take)(void *arg, const HubReply *reply, const void *bytes, size_t n);
    void (*tick)(void *arg); // about once a second, and oftener while bytes come; NULL: nothing
    void *arg;               // of all three
} HubRequest;

// Reads the environment and opens libcurl. QUILL_USAGE: an endpoint or a token that cannot be; QUILL_IO: no libcurl.
Status hub_http_open(bool quiet, HubHttp *out);
void hub_http_close(HubHttp *h);
// One request and its redirects. An error: no answer, or one whose body stopped before its end (reply->is_transient
// says whether to try again), what `take` said, or a signal. Any status that came is a success here.
Status hub_http_do(HubHttp *h, const HubRequest *q, HubReply *reply);
// The same, tried again where that may help (not where the host cannot be reached): after a while, or after the time
// that a busy server asks for. Then an answer other than 2xx is an error: QUILL_MODEL for 401, 403 and 404, QUILL_IO
// for others (a `head` that leads to another host is none). `what` begins the message: "user/repo", or
// "user/repo:FILE".
Status hub_http_get(HubHttp *h, const char *what, const HubRequest *q, HubReply *reply);
// The part of that which waits: OK means try again. failures: counted on; 0 where something was gained.
Status hub_http_wait(HubHttp *h, const char *what, Status failure, const HubReply *reply, int *failures);
// What an answer means. OK: 2xx.
Status hub_http_judge(const HubHttp *h, const char *what, const HubReply *reply);
// The whole body, at most `most` bytes.
Status hub_http_read(HubHttp *h, const char *what, const char *url, size_t most, Buf *out);
void hub_http_escape(const char *path, Buf *out); // as a part of a URL; / stays

// ---- for the tests and the fuzzer ----

void hub_http_header(Str line, HubReply *reply); // reads one line of an answer's head
bool hub_http_same_origin(const char *a, const char *b);

#endif

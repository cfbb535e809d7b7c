// hub/http.h: requests to the Hub: HTTP with libcurl, redirects, the token, retries when a server is busy.
//
// The token is sent only to the endpoint's own scheme, host and port; after a redirect elsewhere it is not sent again.
// Plain http is used only if the endpoint itself is http://. Certificates are always checked. A signal of
// base/signals.h ends a request within a second.
#ifndef QUILL_HUB_HTTP_H
#define QUILL_HUB_HTTP_H

#include "base/base.h"

typedef struct {
    char *endpoint; // HF_ENDPOINT, or "https://huggingface.co"; no slash at its end
    char *token;    // HF_TOKEN, or the content of $HF_HOME/token; NULL: none
    int patience;   // seconds without a byte after which a request has failed; HF_HUB_DOWNLOAD_TIMEOUT, 10
    bool quiet;     // no notes
    void *handle;   // libcurl's handle, reused for all requests
    bool answered;  // a request has had an answer
} HubHttp;

// The head of the last answer.
typedef struct {
    long status;         // 200, ...; 0: no answer
    bool is_transient;   // a failure that may pass: no connection, an interrupted one, a timeout, a busy server
    bool is_unreachable; // the host has no address, or has not answered any request
    char etag[256];      // X-Linked-Etag, else ETag; without quotes and W/
    int64_t size;        // X-Linked-Size, else Content-Length; -1: unknown
    int64_t from;        // 206: the first byte, from Content-Range; -1: unknown
    int64_t wait;        // seconds that the server asks the client to wait; -1: unknown
    char code[64];       // X-Error-Code: GatedRepo, RepoNotFound, ...
    bool linked_etag, has_linked; // `etag` comes from X-Linked-Etag; `size` from X-Linked-Size
} HubReply;

typedef struct {
    const char *url;
    bool head;                // no body, and redirects to other hosts are not followed: the reply describes the file
    uint64_t from;            // asks for the body from this byte on; servers without ranges send everything
    void (*begin)(void *arg); // called before each try of hub_http_get; NULL: not called
    // Called with each piece of a successful reply's body. An error ends the request.
    Status (*take)(void *arg, const HubReply *reply, const void *bytes, size_t n);
    void (*tick)(void *arg); // called about once a second, and more often while bytes arrive; NULL: not called
    void *arg;               // argument of all three
} HubRequest;

// Reads the environment and opens libcurl. QUILL_USAGE: an invalid endpoint or token; QUILL_IO: no libcurl.
Status hub_http_open(bool quiet, HubHttp *out);
void hub_http_close(HubHttp *h);
// Makes one request and follows redirects. Errors: no answer, or a body that stopped before its end
// (reply->is_transient: a retry may help); an error of `take`; a signal. An answer with any HTTP status is a success.
Status hub_http_do(HubHttp *h, const HubRequest *q, HubReply *reply);
// The same with retries if they may help (not if the host is unreachable), after a pause or after the time that a busy
// server asks for. An answer other than 2xx is an error: QUILL_MODEL for 401, 403 and 404, otherwise QUILL_IO; a `head`
// that redirects to another host is a success. `what` begins the message: "user/repo", or "user/repo:FILE".
Status hub_http_get(HubHttp *h, const char *what, const HubRequest *q, HubReply *reply);
// Waits before a retry. OK: try again; otherwise `failure` or a signal. *failures is incremented; the caller sets it to
// 0 after progress.
Status hub_http_wait(HubHttp *h, const char *what, Status failure, const HubReply *reply, int *failures);
// Turns an answer's status into a Status: OK for 2xx, otherwise an error with advice.
Status hub_http_judge(const HubHttp *h, const char *what, const HubReply *reply);
// Reads the whole body, at most `most` bytes.
Status hub_http_read(HubHttp *h, const char *what, const char *url, size_t most, Buf *out);
void hub_http_escape(const char *path, Buf *out); // appends the path with URL escapes; / stays

// ---- for the tests and the fuzzer ----

void hub_http_header(Str line, HubReply *reply); // reads one line of an answer's head
bool hub_http_same_origin(const char *a, const char *b);

#endif

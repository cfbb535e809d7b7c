// hub/http.c: see hub/http.h.
#define _GNU_SOURCE
#include "hub/http.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/note.h"
#include "base/signals.h"
#include "hub/curl.h"
#include "hub/places.h"

enum {
    HOPS = 10,       // redirects of one request
    TRIES = 5,       // failures in a row, with pauses of 1/20, 1/10, 1/5 and 2/5 of HubHttp.patience between them
    MOST_WAIT = 600, // the longest wait, in seconds, that a server may demand
};

// ---- headers --------------------------------------------------------------------------------------------------------

// The number at the beginning of s; -1: none, or too large.
static int64_t number(Str s) {
    int64_t n = 0;
    size_t i = 0;
    for (; i < s.n && isdigit((unsigned char)s.data[i]); i++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, s.data[i] - '0', &n)) return -1;
    return i ? n : -1;
}

static void set(char *out, size_t size, Str s) { snprintf(out, size, "%.*s", s.n < size ? (int)s.n : 0, s.data); }

// Removes the quotes and the prefix W/: W/"abc" and "abc" give abc.
static Str plain_etag(Str s) {
    if (str_has_prefix(s, "W/")) s.data += 2, s.n -= 2;
    if (s.n >= 2 && s.data[0] == '"' && s.data[s.n - 1] == '"') s.data++, s.n -= 2;
    return s;
}

// Parses Retry-After: seconds, or an HTTP date. Returns the seconds from now.
static int64_t read_wait(Str s) {
    int64_t n = number(s);
    char text[64];
    struct tm when = {0};
    if (n >= 0) return n;
    set(text, sizeof text, s);
    if (!strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &when)) return -1;
    int64_t wait = (int64_t)timegm(&when) - (int64_t)time(NULL);
    return wait > 0 ? wait : 0;
}

// Parses the seconds t of a header such as RateLimit: "api";r=0;t=55; -1: none.
static int64_t read_rate_limit(Str s) {
    for (size_t i = 0; i + 2 < s.n; i++)
        if (memcmp(s.data + i, ";t=", 3) == 0) return number((Str){s.data + i + 3, s.n - i - 3});
    return -1;
}

static void read_linked(HubReply *r, Str etag, int64_t size) {
    if (etag.n) set(r->etag, sizeof r->etag, plain_etag(etag));
    if (size >= 0) r->size = size, r->has_linked = true;
}

void hub_http_header(Str line, HubReply *r) {
    line = str_trim(line);
    if (str_has_prefix(line, "HTTP/")) { // a proxy and redirects have heads too: the last one counts
        *r = (HubReply){.size = -1, .from = -1, .wait = -1};
        return;
    }
    const char *colon = line.n ? memchr(line.data, ':', line.n) : NULL;
    if (!colon) return;
    size_t n = (size_t)(colon - line.data);
    Str value = str_trim((Str){colon + 1, line.n - n - 1});
    char name[32];
    set(name, sizeof name, (Str){line.data, n});
    for (char *c = name; *c; c++) *c = (char)tolower((unsigned char)*c);
    if (strcmp(name, "x-linked-etag") == 0) r->etag[0] = 0, read_linked(r, value, -1), r->linked_etag = true;
    else if (strcmp(name, "x-linked-size") == 0) read_linked(r, (Str){0}, number(value));
    else if (strcmp(name, "etag") == 0 && !r->linked_etag) set(r->etag, sizeof r->etag, plain_etag(value));
    else if (strcmp(name, "content-length") == 0 && !r->has_linked) r->size = number(value);
    else if (strcmp(name, "x-error-code") == 0) set(r->code, sizeof r->code, value);
    else if (strcmp(name, "retry-after") == 0) r->wait = read_wait(value);
    else if (strcmp(name, "ratelimit") == 0 && r->wait < 0) r->wait = read_rate_limit(value);
    else if (strcmp(name, "content-range") == 0 && str_has_prefix(value, "bytes "))
        r->from = number((Str){value.data + 6, value.n - 6});
}

// ---- one exchange ---------------------------------------------------------------------------------------------------

typedef struct {
    const HubCurl *curl;
    HubHttp *h;
    const HubRequest *q;
    HubReply *reply;
    Status st; // the result of `take`
} Exchange;

static size_t on_header(char *bytes, size_t one, size_t n, void *arg) {
    Exchange *x = arg;
    hub_http_header((Str){bytes, n}, x->reply);
    (void)one;
    return n;
}

// libcurl's callback for the body. Bodies of redirects and errors are ignored.
static size_t on_body(char *bytes, size_t one, size_t n, void *arg) {
    Exchange *x = arg;
    (void)one;
    x->curl->easy_getinfo(x->h->handle, HUB_CURL_RESPONSE_CODE, &x->reply->status);
    if (x->reply->status / 100 != 2 || !x->q->take) return n;
    x->st = x->q->take(x->q->arg, x->reply, bytes, n);
    return x->st.code ? 0 : n;
}

static int on_tick(void *arg, int64_t all, int64_t now, int64_t all_up, int64_t now_up) {
    Exchange *x = arg;
    (void)all, (void)now, (void)all_up, (void)now_up;
    if (x->q->tick) x->q->tick(x->q->arg);
    return signals_caught() != 0;
}

static void set_options(Exchange *x, const char *url, HubCurlList *headers, const char *range, char *why) {
    const HubCurl *c = x->curl;
    void *e = x->h->handle;
    bool plain = strncmp(x->h->endpoint, "http://", 7) == 0;
    c->easy_setopt(e, HUB_CURL_URL, url);
    c->easy_setopt(e, HUB_CURL_PROTOCOLS, (long)(HUB_CURL_HTTPS | (plain ? HUB_CURL_HTTP : 0)));
    c->easy_setopt(e, HUB_CURL_NOSIGNAL, 1L);
    c->easy_setopt(e, HUB_CURL_FOLLOWLOCATION, 0L);
    c->easy_setopt(e, HUB_CURL_HTTPGET, 1L);
    c->easy_setopt(e, HUB_CURL_NOBODY, (long)x->q->head);
    c->easy_setopt(e, HUB_CURL_RANGE, range);
    c->easy_setopt(e, HUB_CURL_HTTPHEADER, headers);
    c->easy_setopt(e, HUB_CURL_USERAGENT, "quill");
    c->easy_setopt(e, HUB_CURL_CONNECTTIMEOUT, (long)x->h->patience);
    c->easy_setopt(e, HUB_CURL_LOW_SPEED_LIMIT, 1L);
    c->easy_setopt(e, HUB_CURL_LOW_SPEED_TIME, (long)x->h->patience);
    c->easy_setopt(e, HUB_CURL_ERRORBUFFER, why);
    c->easy_setopt(e, HUB_CURL_HEADERFUNCTION, on_header);
    c->easy_setopt(e, HUB_CURL_HEADERDATA, x);
    c->easy_setopt(e, HUB_CURL_WRITEFUNCTION, on_body);
    c->easy_setopt(e, HUB_CURL_WRITEDATA, x);
    c->easy_setopt(e, HUB_CURL_XFERINFOFUNCTION, on_tick);
    c->easy_setopt(e, HUB_CURL_XFERINFODATA, x);
    c->easy_setopt(e, HUB_CURL_NOPROGRESS, 0L);
}

static Status host_failure(const char *url, const char *why) {
    const char *host = strstr(url, "://") ? strstr(url, "://") + 3 : url;
    return status_error(QUILL_IO, "%.*s: %.300s; check the network, and HF_ENDPOINT if it is set",
                        (int)strcspn(host, "/"), host, why);
}

// Appends a header to the list, and ends quill if memory is short: slist_append returns NULL then.
static HubCurlList *add_header(const HubCurl *c, HubCurlList *list, const char *header) {
    HubCurlList *longer = c->slist_append(list, header);
    if (!longer) mem_refused(1);
    return longer;
}

// Makes one request without following redirects.
static Status exchange(Exchange *x, const char *url, bool with_token) {
    char range[32], why[HUB_CURL_ERROR_SIZE] = "";
    Buf bearer = {0};
    HubCurlList *headers = add_header(x->curl, NULL, "Accept-Encoding: identity");
    if (with_token) {
        buf_printf(&bearer, "Authorization: Bearer %s", x->h->token);
        headers = add_header(x->curl, headers, bearer.data);
    }
    snprintf(range, sizeof range, "%" PRIu64 "-", x->q->from);
    *x->reply = (HubReply){.size = -1, .from = -1, .wait = -1};
    set_options(x, url, headers, x->q->from ? range : NULL, why);
    int code = x->curl->easy_perform(x->h->handle);
    x->curl->easy_getinfo(x->h->handle, HUB_CURL_RESPONSE_CODE, &x->reply->status);
    x->curl->easy_setopt(x->h->handle, HUB_CURL_HTTPHEADER, NULL);
    x->curl->easy_setopt(x->h->handle, HUB_CURL_ERRORBUFFER, NULL);
    x->curl->slist_free_all(headers);
    buf_free(&bearer);
    x->h->answered |= x->reply->status != 0;
    if (x->st.code) return x->st;
    if (code != HUB_CURLE_OK && signals_caught()) return fd_stopped();
    if (code == HUB_CURLE_OUT_OF_MEMORY) mem_refused(1);
    if (code == HUB_CURLE_OK) return OK;
    x->reply->is_unreachable = code == HUB_CURLE_NO_PROXY || code == HUB_CURLE_NO_HOST ||
                               code == HUB_CURLE_NO_CONNECTION || (code == HUB_CURLE_TIMEOUT && !x->h->answered);
    x->reply->is_transient = code != HUB_CURLE_PEER_FAILED_VERIFICATION && code != HUB_CURLE_FAILED_INIT;
    return host_failure(url, why[0] ? why : x->curl->easy_strerror(code));
}

// Length of scheme, host and port; 0: no such URL, or one with a user name before the host.
static size_t origin_length(const char *url) {
    const char *host = strstr(url, "://");
    size_t n = host ? strcspn(host + 3, "/?#") : 0;
    return host && !memchr(host + 3, '@', n) ? (size_t)(host - url) + 3 + n : 0;
}

bool hub_http_same_origin(const char *a, const char *b) {
    size_t n = origin_length(a);
    return n > 0 && n == origin_length(b) && strncasecmp(a, b, n) == 0;
}

static Status check_redirect(const HubHttp *h, const char *from, const char *to) {
    bool plain = strncmp(h->endpoint, "http://", 7) == 0 && strncasecmp(to, "http://", 7) == 0;
    if (plain || strncasecmp(to, "https://", 8) == 0) return OK;
    return host_failure(from, "a redirect to https:// expected, one to another protocol found: refused");
}

Status hub_http_do(HubHttp *h, const HubRequest *q, HubReply *reply) {
    Exchange x = {.h = h, .q = q, .reply = reply};
    TRY(hub_curl_open(&x.curl));
    char *url = mem_copy(q->url, strlen(q->url));
    bool with_token = h->token && hub_http_same_origin(url, h->endpoint);
    Status st = OK;
    for (int hop = 0;; hop++) {
        char *next = NULL;
        st = exchange(&x, url, with_token);
        if (st.code || reply->status / 100 != 3) break;
        x.curl->easy_getinfo(h->handle, HUB_CURL_REDIRECT_URL, &next);
        if (!next || (q->head && !hub_http_same_origin(url, next))) break;
        st = check_redirect(h, url, next);
        if (!st.code && hop == HOPS) st = host_failure(url, "at most 10 redirects expected, more found");
        if (st.code) break;
        with_token = with_token && hub_http_same_origin(url, next);
        char *copy = mem_copy(next, strlen(next));
        free(url);
        url = copy;
    }
    free(url);
    return st;
}

// ---- errors and waiting ---------------------------------------------------------------------------------------------

static Status not_allowed(const HubHttp *h, const char *what, const HubReply *r) {
    bool gated = strcmp(r->code, "GatedRepo") == 0;
    if (gated)
        return status_error(QUILL_MODEL,
                            "%s: %ld: its owner asks for an agreement: accept it at %s/%.*s, then set HF_TOKEN to a "
                            "token of that account",
                            what, r->status, h->endpoint, (int)strcspn(what, ":"), what);
    if (h->token)
        return status_error(QUILL_MODEL,
                            "%s: %ld: no such repository, or the token (HF_TOKEN, $HF_HOME/token) may not read it",
                            what, r->status);
    return status_error(QUILL_MODEL,
                        "%s: %ld: no such repository, or one that needs a token: check the name, or set HF_TOKEN", what,
                        r->status);
}

Status hub_http_judge(const HubHttp *h, const char *what, const HubReply *r) {
    if (r->status / 100 == 2) return OK;
    if (r->status == 401 || r->status == 403) return not_allowed(h, what, r);
    if (r->status == 404)
        return status_error(QUILL_MODEL, "%s: 404: %s expected at %s, none found: check the name", what,
                            strchr(what, ':') ? "a file" : "a repository", h->endpoint);
    if (r->status == 429)
        return status_error(QUILL_IO, "%s: 429: the server has had too many requests; try again later, or set HF_TOKEN",
                            what);
    return status_error(QUILL_IO, "%s: %s answers %ld; try again later", what, h->endpoint, r->status);
}

static bool is_busy(const HubReply *r) {
    return r->status == 408 || r->status == 429 || (r->status >= 500 && r->status <= 504 && r->status != 501);
}

// Waits; a signal ends the wait early.
static Status pause_for(double seconds) {
    double end = clock_now() + seconds;
    for (double left = seconds; left > 0 && !signals_caught(); left = end - clock_now())
        poll(NULL, 0, left > 0.2 ? 200 : 1 + (int)(1000 * left));
    return signals_caught() ? fd_stopped() : OK;
}

Status hub_http_wait(HubHttp *h, const char *what, Status failure, const HubReply *r, int *failures) {
    if (!(failure.code == QUILL_IO && (r->is_transient || is_busy(r)))) return failure;
    if (++*failures >= TRIES) return failure;
    double wait = h->patience * (1 << *failures) / 40.0;
    if (r->wait > MOST_WAIT)
        return status_error(QUILL_IO, "%s: %ld: the server asks to wait %" PRId64 " s; try again then", what, r->status,
                            r->wait);
    if (is_busy(r) && r->wait >= 0) wait = (double)r->wait;
    char why[48] = "the connection broke";
    if (r->status && r->status / 100 != 2) snprintf(why, sizeof why, "the server answers %ld", r->status);
    if (wait >= 1) note_print(h->quiet, "%s: %s: waiting %.0f s", what, why, wait);
    return pause_for(wait);
}

Status hub_http_get(HubHttp *h, const char *what, const HubRequest *q, HubReply *reply) {
    for (int failures = 0;;) {
        if (q->begin) q->begin(q->arg);
        Status st = hub_http_do(h, q, reply);
        if (!st.code && q->head && reply->status / 100 == 3)
            return OK; // a redirect to another host: its head is enough
        if (!st.code) st = hub_http_judge(h, what, reply);
        if (!st.code) return OK;
        if (reply->is_unreachable) return st; // no retry: the caller may use the cache
        TRY(hub_http_wait(h, what, st, reply, &failures));
    }
}

// ---- whole bodies ---------------------------------------------------------------------------------------------------

typedef struct {
    const char *what;
    size_t most;
    Buf *out;
} Body;

static void begin_body(void *arg) { ((Body *)arg)->out->n = 0; } // drops what an earlier try has read

static Status take_body(void *arg, const HubReply *reply, const void *bytes, size_t n) {
    Body *b = arg;
    (void)reply;
    if (b->out->n + n > b->most)
        return status_error(QUILL_IO, "%s: an answer of at most %zu bytes expected, found more", b->what, b->most);
    buf_append(b->out, bytes, n);
    return OK;
}

Status hub_http_read(HubHttp *h, const char *what, const char *url, size_t most, Buf *out) {
    Body body = {.what = what, .most = most, .out = out};
    HubRequest q = {.url = url, .begin = begin_body, .take = take_body, .arg = &body};
    HubReply reply;
    return hub_http_get(h, what, &q, &reply);
}

void hub_http_escape(const char *path, Buf *out) {
    for (const char *c = path; *c; c++) {
        if (isalnum((unsigned char)*c) || strchr("/._-~", *c)) buf_append(out, c, 1);
        else buf_printf(out, "%%%02X", (unsigned)(unsigned char)*c);
    }
}

// ---- the environment ------------------------------------------------------------------------------------------------

static Status set_endpoint(HubHttp *h) {
    const char *said = getenv("HF_ENDPOINT"), *text = said && *said ? said : "https://huggingface.co";
    size_t n = strlen(text);
    while (n && text[n - 1] == '/') n--;
    h->endpoint = mem_copy(text, n);
    bool known = strncmp(text, "https://", 8) == 0 || strncmp(text, "http://", 7) == 0;
    if (known && origin_length(h->endpoint) && strcspn(h->endpoint, " \t\r\n\"<>") == n) return OK;
    return status_error(QUILL_USAGE, "HF_ENDPOINT: https://HOST expected, found \"%.200s\"", text);
}

Status hub_http_open(bool quiet, HubHttp *out) {
    const HubCurl *curl;
    const char *patience = getenv("HF_HUB_DOWNLOAD_TIMEOUT");
    *out = (HubHttp){.quiet = quiet, .patience = patience ? atoi(patience) : 0};
    if (out->patience < 1) out->patience = 10;
    Status st = set_endpoint(out);
    if (!st.code) st = hub_places_token(&out->token);
    if (!st.code) st = hub_curl_open(&curl);
    if (!st.code) out->handle = curl->easy_init();
    if (!st.code && !out->handle) st = status_error(QUILL_IO, "libcurl cannot be started");
    if (st.code) hub_http_close(out);
    return st;
}

void hub_http_close(HubHttp *h) {
    const HubCurl *curl;
    if (h->handle && !hub_curl_open(&curl).code) curl->easy_cleanup(h->handle);
    free(h->endpoint);
    if (h->token) explicit_bzero(h->token, strlen(h->token));
    free(h->token);
    *h = (HubHttp){0};
}

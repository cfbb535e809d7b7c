// look/kl.c: see look/kl.h.
#include "look/kl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/stats.h"

static const char magic[8] = "quillkl1";

typedef struct {
    char magic[8];
    uint32_t n_vocab, n_rows;
    uint64_t text;
} KlHead;

Status kl_write(KlRun *k, const char *path, int n_vocab, int n_rows, uint64_t text_hash) {
    *k = (KlRun){.n_vocab = n_vocab, .n_rows = n_rows};
    KlHead head = {.n_vocab = (uint32_t)n_vocab, .n_rows = (uint32_t)n_rows, .text = text_hash};
    memcpy(head.magic, magic, sizeof magic);
    TRY(tempfile_open(path, 0666, &k->out));
    Status st = fd_write_all(k->out.fd, &head, sizeof head);
    return st.code ? kl_end(k, st) : OK;
}

static Status check_head(const KlRun *k, const char *path, const KlHead *h, uint64_t text_hash) {
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return status_error(QUILL_MODEL, "%s: a file of quill perplexity --kl-base expected, found another format",
                            path);
    if (h->n_vocab != (uint32_t)k->n_vocab)
        return status_error(QUILL_MODEL, "%s: a vocabulary of %d tokens expected, found %u: logits of another model",
                            path, k->n_vocab, h->n_vocab);
    if (h->n_rows != (uint32_t)k->n_rows || h->text != text_hash)
        return status_error(QUILL_MODEL,
                            "%s: logits of this text in these chunks expected, found those of another text, -c or "
                            "--no-bos",
                            path);
    size_t bytes = sizeof *h + (size_t)k->n_rows * (size_t)k->n_vocab * sizeof(float);
    if (k->map.n != bytes) return status_error(QUILL_MODEL, "%s: %zu bytes expected, found %zu", path, bytes, k->map.n);
    return OK;
}

Status kl_open(KlRun *k, const char *path, int n_vocab, int n_rows, uint64_t text_hash) {
    *k = (KlRun){.n_vocab = n_vocab, .n_rows = n_rows};
    KlHead head = {0};
    TRY(file_map(path, &k->map));
    if (k->map.n >= sizeof head) memcpy(&head, k->map.data, sizeof head);
    Status st = check_head(k, path, &head, text_hash);
    if (st.code) return kl_end(k, st);
    k->base = (const float *)(const void *)(k->map.data + sizeof head); // aligned to 8 bytes
    k->kl = mem_alloc((size_t)n_rows * sizeof *k->kl);
    k->agrees = mem_alloc((size_t)n_rows * sizeof *k->agrees);
    return OK;
}

Status kl_put(KlRun *k, const float *logits) {
    return fd_write_all(k->out.fd, logits, (size_t)k->n_vocab * sizeof *logits);
}

// Returns the most likely token; *log_sum is log(sum(exp(logits))).
static int normaliser(const float *logits, int n, double *log_sum) {
    int top = 0;
    double sum = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[top]) top = i;
    for (int i = 0; i < n; i++) sum += exp((double)logits[i] - (double)logits[top]);
    *log_sum = log(sum) + (double)logits[top];
    return top;
}

void kl_compare(KlRun *k, int row, const float *logits) {
    const float *base = k->base + (size_t)row * (size_t)k->n_vocab;
    double from, to, sum = 0;
    k->agrees[row] = normaliser(base, k->n_vocab, &from) == normaliser(logits, k->n_vocab, &to);
    for (int i = 0; i < k->n_vocab; i++) {
        double p = (double)base[i] - from, q = (double)logits[i] - to;
        if (p > -700) sum += exp(p) * (p - q); // a token of probability 0 adds nothing
    }
    k->kl[row] = fmax(sum, 0); // only rounding can make the sum negative
}

Status kl_end(KlRun *k, Status st) {
    if (k->out.path) st = tempfile_publish(&k->out, st);
    file_unmap(&k->map);
    free(k->kl);
    free(k->agrees);
    *k = (KlRun){0};
    return st;
}

KlSummary kl_summary(const KlRun *k, int n_rows) {
    KlSummary s = {0};
    double squares = 0;
    float *sorted = mem_alloc((size_t)int_max(n_rows, 1) * sizeof *sorted);
    for (int i = 0; i < n_rows; i++) {
        s.mean += k->kl[i] / n_rows;
        squares += k->kl[i] * k->kl[i] / n_rows;
        s.same += (double)k->agrees[i] / n_rows;
        s.most = fmax(s.most, k->kl[i]);
        sorted[i] = (float)k->kl[i];
    }
    s.error = n_rows > 1 ? sqrt(fmax(0, squares - s.mean * s.mean) / (n_rows - 1)) : 0;
    s.median = stats_percentile(sorted, n_rows, 50);
    s.p99 = stats_percentile(sorted, n_rows, 99);
    free(sorted);
    return s;
}

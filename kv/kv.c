// kv/kv.c: see kv/kv.h.
#include "kv/kv.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/note.h"
#include "base/output.h"
#include "cli/outputs.h"
#include "cli/table.h"
#include "cli/values.h"
#include "kv/chain.h"
#include "kv/kvdiff.h"
#include "kv/kvfile.h"
#include "kv/kvinput.h"
#include "kv/kvlist.h"
#include "kv/kvstore.h"

// ---- info, check ----------------------------------------------------------------------------------------------------

// Bytes of one slot in all layers.
static size_t slot_bytes(const KvHead *h) {
    size_t n = 0;
    for (uint32_t i = 0; i < h->n_layers; i++) n += kv_frame_rows(h, i, h->group);
    return n / h->group;
}

// Prints "2 KV heads of 64 elements", and V's elements if they differ.
static void print_shape(Buf *out, KvLayerShape s) {
    buf_printf(out, "%d KV heads of %d elements", s.n_kv_heads, s.k_dim);
    if (s.v_dim == 0) buf_str(out, ", V in K");
    else if (s.v_dim != s.k_dim) buf_printf(out, ", V of %d", s.v_dim);
}

// Begins the output of one of several files.
static void print_file(const Options *o, const char *path, Buf *out) {
    if (o->kv.n_words <= 2) return;
    buf_str(out, "file       ");
    utf8_escape(out, path, strlen(path));
    buf_str(out, "\n");
}

static Status info(const Options *o, const char *path) {
    KvInput in;
    Status st = kvinput_open(&in, path);
    if (!st.code) {
        const KvHead *h = &in.r.s.head;
        Buf out = {0};
        print_file(o, path, &out);
        buf_printf(&out, "model      %016llx, tokenizer %016llx, RoPE %016llx\n", (unsigned long long)h->model,
                   (unsigned long long)h->tokenizer, (unsigned long long)h->rope);
        buf_printf(&out, "KV         K in %s, V in %s, exact", type_name((int)h->type_k), type_name((int)h->type_v));
        if (h->group > 1) buf_printf(&out, "; sealed in groups of %u slots", h->group);
        buf_str(&out, h->rotated ? "; K rotated\n" : "\n");
        buf_printf(&out, "shape      %u layers, ", h->n_layers);
        print_shape(&out, kv_layer_shape(h, 0));
        if (!kvinput_same_shape(kv_layer_shape(h, 0), kv_layer_shape(h, h->n_layers - 1))) {
            buf_printf(&out, "; the last %u with a window, ", h->n_windowed);
            print_shape(&out, kv_layer_shape(h, h->n_layers - 1));
        }
        buf_str(&out, "\n");
        buf_printf(&out, "tokens     %u, K and V of %u, %zu bytes each\n", h->n_tokens, h->n_slots, slot_bytes(h));
        if (in.is_block) {
            buf_printf(&out, "block      of --kv-dir, from slot %u of a sequence on, after the %s ", in.link.first,
                       in.link.first ? "block" : "root");
            kvinput_print_name(&out, in.link.parent);
            buf_str(&out, "\n");
        }
        st = output_buf(&out);
    }
    kvinput_close(&in);
    return st;
}

// Computes the name that a block's file must have; "" if this is not a block. A file with another name is an error.
static Status check_name(const KvInput *in, const int *tokens, Buf *name) {
    const char *file = file_base(in->r.name);
    ChainHash parent;
    if (!in->is_block) return OK;
    memcpy(parent.bytes, in->link.parent, sizeof parent.bytes);
    kvinput_print_name(name, chain_next(&parent, tokens, (int)in->r.s.head.n_tokens).bytes);
    bool named = strspn(file, "0123456789abcdef") == name->n && strcmp(file + name->n, KVSTORE_BLOCK) == 0;
    if (!named || memcmp(file, name->data, name->n) == 0) return OK;
    return status_error(
        QUILL_MODEL, "%.300s: the block that the file's name says expected, found block %s; rename or remove the file",
        in->r.name, name->data);
}

static Status check_frames(KvInput *in, Buf *name, int *n_logits) {
    KvReader *r = &in->r;
    const int *tokens;
    const float *logits;
    TRY(kvreader_tokens(r, INT_MAX, &tokens));
    TRY(check_name(in, tokens, name));
    TRY(kvinput_skip_rows(r));
    TRY(kvinput_skip_states(r));
    TRY(kvreader_last(r, 0, &logits, n_logits));
    TRY(kvreader_end(r));
    return kvreader_eof(r);
}

static Status check(const Options *o, const char *path) {
    KvInput in;
    Buf name = {0};
    int n_logits;
    Status st = kvinput_open(&in, path);
    if (!st.code) st = check_frames(&in, &name, &n_logits);
    if (!st.code) {
        Buf out = {0};
        print_file(o, path, &out);
        buf_printf(&out, "good       %u frames, %zu bytes; %u tokens, K and V of %u, %d logits after them\n",
                   in.r.s.n_frames, in.r.at, in.r.s.head.n_tokens, in.r.s.head.n_slots, n_logits);
        if (name.n) buf_printf(&out, "block      %s of --kv-dir\n", name.data);
        st = output_buf(&out);
    }
    buf_free(&name);
    kvinput_close(&in);
    return st;
}

// Runs a verb on each file. A file that fails is reported, and the others follow; the first failure is the exit code.
static Status each_file(const Options *o, const char *const *files, Status (*run)(const Options *o, const char *path)) {
    int n = o->kv.n_words - 1, first = QUILL_OK;
    for (int i = 0; i < n; i++) {
        Status st = run(o, files[i]);
        if (n == 1) return st;
        if (st.code) fprintf(stderr, "quill: %s\n", st.message);
        if (!first) first = st.code;
    }
    return (Status){.code = first};
}

static Status info_all(const Options *o, const char *const *files) { return each_file(o, files, info); }
static Status check_all(const Options *o, const char *const *files) { return each_file(o, files, check); }

// ---- cut ------------------------------------------------------------------------------------------------------------

// Copies the chunk's slots below n_slots.
static Status copy_chunk(KvWriter *w, const KvChunk *c, const uint8_t *rows, uint32_t n_slots) {
    if (c->first >= n_slots) return OK;
    KvChunk kept = *c;
    if (kept.n > n_slots - c->first) kept.n = n_slots - c->first;
    const KvHead *h = &w->s.head;
    size_t k = kv_frame_keys(h, c->layer, kept.n);
    uint8_t *room = kvwriter_room(w, kept);
    memcpy(room, rows, k);
    memcpy(room + k, rows + kv_frame_keys(h, c->layer, c->n), kv_frame_rows(h, c->layer, kept.n) - k);
    return kvwriter_rows(w);
}

// Copies the recurrent states. A file has them only after its last slot, so that a sequence with states cannot be cut.
static Status copy_states(KvReader *r, KvWriter *w, bool whole) {
    const float *values;
    size_t n = 0;
    for (uint32_t layer = 0;; layer++, n = 0) {
        TRY(kvreader_state(r, layer, &values, &n));
        if (!values) return OK;
        if (!whole)
            return status_error(
                QUILL_USAGE,
                "quill kv cut: %.300s: a file without states of recurrent layers expected, found states, which belong "
                "to its last token only; compute the shorter prompt with quill prefill instead",
                r->name);
        TRY(kvwriter_state(w, layer, values, n));
    }
}

// Reads the input to its end, so that a damaged file is an error even if the damage is in the part that is cut off.
// *pipe_closed: as KvWriter.pipe_closed.
static Status cut_stream(KvReader *r, uint32_t n, int fd, bool *pipe_closed) {
    const KvHead *h = &r->s.head;
    const int *tokens;
    const float *logits;
    int n_logits;
    KvHead head = *h;
    if (n < head.n_tokens) head.n_tokens = n;
    if (n < head.n_slots) head.n_slots = n / head.group * head.group; // keeps only whole sealed groups
    KvWriter w = {.fd = fd};
    TRY(kvreader_tokens(r, INT_MAX, &tokens));
    Status st = kvwriter_head(&w, &head);
    if (!st.code) st = kvwriter_tokens(&w, tokens);
    while (!st.code && kvreader_more(r)) {
        KvChunk c;
        const uint8_t *rows;
        st = kvreader_rows(r, &c, &rows);
        if (!st.code) st = copy_chunk(&w, &c, rows, head.n_slots);
    }
    if (!st.code) st = copy_states(r, &w, head.n_slots == h->n_slots);
    if (!st.code) st = kvreader_last(r, 0, &logits, &n_logits);
    if (!st.code && logits && head.n_tokens == h->n_tokens) st = kvwriter_last(&w, logits, n_logits);
    if (!st.code) st = kvreader_end(r);
    if (!st.code) st = kvreader_eof(r);
    if (!st.code) st = kvwriter_end(&w);
    *pipe_closed = w.pipe_closed;
    kvwriter_free(&w);
    return st;
}

static Status cut(const Options *o, const char *const *files) {
    if (!o->kv.out || o->kv.n_tokens < 1)
        return status_error(QUILL_USAGE, "quill kv cut: -n N and --kv-out FILE expected, one of them is missing");
    KvInput in;
    TempFile temp;
    bool pipe_closed = false;
    if (strcmp(o->kv.out, "-") != 0) TRY(outputs_check(o, "--kv-out", o->kv.out));
    Status st = kvinput_open(&in, files[0]);
    if (!st.code && in.is_block)
        st = status_error(QUILL_USAGE,
                          "quill kv cut: %.300s: the KV of a whole sequence expected, found a block of --kv-dir, which "
                          "cannot be cut; quill prefill --kv-out writes files that can",
                          in.r.name);
    if (!st.code && (uint32_t)o->kv.n_tokens > in.r.s.head.n_tokens)
        note_print(o->answer.quiet, "%.300s has %u tokens: all of them are copied", in.r.name, in.r.s.head.n_tokens);
    if (!st.code) st = kvfile_create(o->kv.out, &temp);
    if (!st.code) st = tempfile_publish(&temp, cut_stream(&in.r, (uint32_t)o->kv.n_tokens, temp.fd, &pipe_closed));
    kvinput_close(&in);
    return pipe_closed ? OK : st; // a closed pipe is no error
}

// ---- the mode -------------------------------------------------------------------------------------------------------

enum { AT_LEAST_ONE = -1 };

Status kv_run(const Options *o) {
    static const struct {
        const char *name;
        int n_files; // arguments; AT_LEAST_ONE: any number but 0
        const char *expected;
        Status (*run)(const Options *o, const char *const *files);
        const char *options; // that only some verbs have
    } verbs[] = {
        {"info", AT_LEAST_ONE, "files", info_all, ""},
        {"check", AT_LEAST_ONE, "files", check_all, ""},
        {"cut", 1, "1 file", cut, "-n --kv-out"},
        {"diff", 2, "2 files", kvdiff_run, "--tolerance"},
        {"list", 1, "1 directory", kvlist_run, "--json"},
        {"remove", AT_LEAST_ONE, "files of a --kv-dir directory", kvlist_remove, ""},
    };
    const char *word = o->kv.n_words ? o->kv.words[0] : "nothing";
    int n_files = o->kv.n_words - 1;
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        if (strcmp(word, verbs[i].name) != 0) continue;
        bool right = verbs[i].n_files == AT_LEAST_ONE ? n_files > 0 : n_files == verbs[i].n_files;
        if (!right)
            return status_error(QUILL_USAGE, "quill kv %s: %s expected, found %d", word, verbs[i].expected, n_files);
        for (size_t k = 0; k < ARRAY_LEN(verbs); k++) {
            char name[32];
            for (const char *at = verbs[k].options; k != i && (at = cli_next_name(at, name));)
                if (!cli_is_usual(o, name))
                    return status_error(QUILL_USAGE, "%s: an option of quill kv %s expected, found one of quill kv %s",
                                        name, word, verbs[k].name);
        }
        return verbs[i].run(o, o->kv.words + 1);
    }
    return status_error(QUILL_USAGE, "quill kv: info, check, cut, diff, list or remove expected, found %.100s", word);
}

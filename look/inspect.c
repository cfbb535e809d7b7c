// look/inspect.c: `quill inspect`: the contents of a model file and the cost of running it, as text or as JSON.
#include "look/look.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer/chat_template.h"
#include "base/jsonio.h"
#include "base/output.h"
#include "base/units.h"
#include "costs.h"
#include "cpu/backend.h"
#include "engine_file.h"
#include "gpu/cuda.h"
#include "memory_plan.h"

// What inspect found. If the model or the tokenizer could not be loaded, its Status says why.
typedef struct {
    Gguf *g;
    Model model;
    Tokenizer *tok;
    Status model_status, tok_status;
    const char *template; // name
} Inspection;

static const char *const type_names[GGUF_N_TYPES] = {
    [GGUF_U8] = "u8",   [GGUF_I8] = "i8",   [GGUF_U16] = "u16",   [GGUF_I16] = "i16", [GGUF_U32] = "u32",
    [GGUF_I32] = "i32", [GGUF_F32] = "f32", [GGUF_BOOL] = "bool", [GGUF_STR] = "str", [GGUF_ARRAY] = "array",
    [GGUF_U64] = "u64", [GGUF_I64] = "i64", [GGUF_F64] = "f64",
};

// ---- metadata -------------------------------------------------------------------------------------------------------

// The number with the fewest significant digits that is v as an f32; null if v is not finite.
static json_t *f32_json(float v) {
    double number = (double)v;
    if (!isfinite(v)) return json_null();
    for (int digits = 6; digits < 10; digits++) {
        char text[32];
        snprintf(text, sizeof text, "%.*g", digits, (double)v);
        number = strtod(text, NULL);
        if ((float)number == v) break;
    }
    return json_real(number);
}

// One little-endian element as a JSON value; returns the bytes it takes. Lengths were checked when the file was opened.
static size_t element(GgufType type, const uint8_t *at, json_t **out) {
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
        float f32;
        double f64;
    } v = {0};
    static const uint8_t sizes[GGUF_N_TYPES] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_BOOL] = 1, [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4,
        [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_U64] = 8,  [GGUF_I64] = 8, [GGUF_F64] = 8, [GGUF_STR] = 8,
    };
    memcpy(&v, at, sizes[type]);
    switch (type) {
    case GGUF_U8: *out = json_integer(v.u8); break;
    case GGUF_I8: *out = json_integer(v.i8); break;
    case GGUF_U16: *out = json_integer(v.u16); break;
    case GGUF_I16: *out = json_integer(v.i16); break;
    case GGUF_U32: *out = json_integer(v.u32); break;
    case GGUF_I32: *out = json_integer(v.i32); break;
    case GGUF_U64: *out = v.u64 > INT64_MAX ? json_real((double)v.u64) : json_integer((json_int_t)v.u64); break;
    case GGUF_I64: *out = json_integer(v.i64); break;
    case GGUF_F32: *out = f32_json(v.f32); break;
    case GGUF_F64: *out = isfinite(v.f64) ? json_real(v.f64) : json_null(); break;
    case GGUF_BOOL: *out = json_boolean(v.u8); break;
    case GGUF_STR: *out = jsonio_text((Str){(const char *)at + 8, (size_t)v.u64}); return 8 + (size_t)v.u64;
    default: *out = json_null(); break; // arrays of arrays are not shown
    }
    return sizes[type];
}

// A scalar, or an array with at most `most` elements; *more: elements were left out.
static json_t *value_json(const GgufValue *v, uint64_t most, bool *more) {
    json_t *one;
    *more = false;
    if (v->type != GGUF_ARRAY) {
        element(v->type, v->data, &one);
        return one;
    }
    json_t *list = json_array();
    const uint8_t *at = v->data;
    *more = v->n > most || v->elem_type == GGUF_ARRAY;
    for (uint64_t i = 0; i < v->n && i < most && v->elem_type != GGUF_ARRAY; i++) {
        at += element(v->elem_type, at, &one);
        jsonio_append(list, one);
    }
    return list;
}

// u64: the element itself if it has this type, because a JSON integer ends at 2^63; otherwise NULL.
static void print_element(const json_t *v, const uint8_t *u64, Buf *out) {
    uint64_t whole;
    if (u64) {
        memcpy(&whole, u64, sizeof whole);
        buf_printf(out, "%" PRIu64, whole);
    } else if (json_is_string(v)) {
        size_t n = json_string_length(v), shown = n > 60 ? utf8_whole(json_string_value(v), 60) : n;
        buf_str(out, "\"");
        utf8_escape(out, json_string_value(v), shown);
        buf_str(out, shown < n ? "...\"" : "\"");
        if (shown < n) buf_printf(out, " (%zu bytes)", n);
    } else if (json_is_real(v)) buf_printf(out, "%.15g", json_real_value(v));
    else if (json_is_integer(v)) buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else buf_str(out, json_is_true(v) ? "true" : json_is_false(v) ? "false" : "?");
}

static void print_metadata(const Inspection *in, Buf *out) {
    buf_printf(out, "\nmetadata (%d)\n", gguf_n_values(in->g));
    for (int i = 0; i < gguf_n_values(in->g); i++) {
        const GgufValue *v = gguf_value_at(in->g, i);
        bool array = v->type == GGUF_ARRAY, more;
        char type[48];
        snprintf(type, sizeof type, "%s", type_names[v->elem_type]);
        if (array) snprintf(type, sizeof type, "%s[%" PRIu64 "]", type_names[v->elem_type], v->n);
        buf_str(out, "  ");
        size_t at = out->n;
        utf8_escape(out, v->key.data, v->key.n);
        buf_printf(out, "%*s %-12s ", out->n - at < 42 ? (int)(42 - (out->n - at)) : 0, "", type);
        json_t *value = value_json(v, 4, &more);
        const uint8_t *u64 = v->elem_type == GGUF_U64 ? v->data : NULL;
        if (!array) print_element(value, u64, out);
        for (size_t k = 0; array && k < json_array_size(value); k++) {
            buf_str(out, k ? ", " : "");
            print_element(json_array_get(value, k), u64 ? u64 + k * sizeof(uint64_t) : NULL, out);
        }
        buf_str(out, more ? ", ...\n" : "\n");
        json_decref(value);
    }
}

// ---- tensors --------------------------------------------------------------------------------------------------------

static void shape_text(const GgufTensor *t, Buf *out) {
    for (int d = 0; d < t->n_dims; d++) buf_printf(out, "%s%" PRIu64, d ? " x " : "", t->dims[d]);
}

static void print_tensors(const Inspection *in, Buf *out) {
    buf_printf(out, "\ntensors (%d)\n", gguf_n_tensors(in->g));
    for (int i = 0; i < gguf_n_tensors(in->g); i++) {
        const GgufTensor *t = gguf_tensor_at(in->g, i);
        Buf name = {0}, shape = {0};
        char size[24];
        utf8_escape(&name, t->name.data, t->name.n);
        shape_text(t, &shape);
        buf_printf(out, "  %-34s %-7s %-18s %10s%s\n", name.data, type_name(t->type), shape.data,
                   units_bytes((double)gguf_tensor_bytes(t), size),
                   in->model_status.code || model_uses(&in->model, i) ? "" : "  not used");
        buf_free(&name);
        buf_free(&shape);
    }
}

typedef struct {
    int type, n;
    size_t bytes;
} TypeCount;

// Counts the tensors and bytes of each tensor type, in the order of their first tensors.
static int count_types(const Gguf *g, TypeCount types[N_TYPES]) {
    int n = 0;
    for (int i = 0; i < gguf_n_tensors(g); i++) {
        const GgufTensor *t = gguf_tensor_at(g, i);
        int k = 0;
        while (k < n && types[k].type != t->type) k++;
        if (k == n) types[n++] = (TypeCount){.type = t->type};
        types[k].n++;
        types[k].bytes += gguf_tensor_bytes(t);
    }
    return n;
}

// ---- what it costs --------------------------------------------------------------------------------------------------

enum { ROWS = 512 }; // the default of rows in a step

// The context after n in the table: powers of two from ROWS on, and the trained context as the last; 0: no more.
static int next_context(int n, int trained) {
    if (n >= trained) return 0;
    return n > trained / 2 ? trained : 2 * n;
}
static int first_context(int trained) { return int_min(ROWS, int_max(1, trained)); }

// Memory of a run with a context of n_ctx, the default number of rows in a step and a thread on each core.
typedef struct {
    size_t weights, kv, scratch, total;
} Memory;

static Memory memory_of(const Model *m, int n_ctx) {
    KvShape s = memory_plan_default_shape(m, n_ctx, ROWS);
    Memory out = {.weights = model_weight_bytes(m), .kv = kvshape_bytes(&s)};
    out.scratch = workspace_bytes(m, threads_default(), int_min(ROWS, n_ctx), 1);
    out.total = out.weights + out.kv + out.scratch;
    return out;
}

enum { N_STEPS = 3 };

typedef struct {
    const char *name;
    int first, rows;
    Cost cost;
} TypicalStep;

static void typical_steps(const Model *m, TypicalStep out[N_STEPS]) {
    int trained = int_max(1, m->c.n_ctx_train);
    KvShape s = memory_plan_default_shape(m, trained, ROWS);
    out[0] = (TypicalStep){.name = "prefill", .rows = int_min(ROWS, trained)};
    out[1] = (TypicalStep){.name = "decode", .rows = 1};
    out[2] = (TypicalStep){.name = "decode", .first = trained - 1, .rows = 1};
    for (int i = 0; i < N_STEPS; i++) out[i].cost = costs_rows(m, &s, out[i].first, out[i].rows, 1);
}

static void print_costs(const Inspection *in, Buf *out) {
    const Model *m = &in->model;
    char a[24], b[24], c[24], d[24];
    buf_printf(out, "\nmemory, KV cache in %s\n  %-10s %10s   %10s   %10s   %10s\n", type_name(model_kv_type(m)),
               "context", "weights", "KV", "scratch", "total");
    for (int n = first_context(m->c.n_ctx_train); n; n = next_context(n, m->c.n_ctx_train)) {
        Memory x = memory_of(m, n);
        buf_printf(out, "  %-10d %10s + %10s + %10s = %10s\n", n, units_bytes((double)x.weights, a),
                   units_bytes((double)x.kv, b), units_bytes((double)x.scratch, c), units_bytes((double)x.total, d));
    }
    buf_str(out, "\nsteps\n");
    TypicalStep steps[N_STEPS];
    typical_steps(m, steps);
    for (int i = 0; i < N_STEPS; i++) {
        Cost cost = steps[i].cost;
        buf_printf(out, "  %s of %d at depth %d: %.4g GFLOP, %s, %.3g FLOP/byte\n", steps[i].name, steps[i].rows,
                   steps[i].first, cost.flops / 1e9, units_bytes(cost.bytes, a),
                   cost.bytes > 0 ? cost.flops / cost.bytes : 0);
    }
}

static double bits_per_weight(const Inspection *in) {
    double weights = 0, bytes = 0;
    for (int i = 0; i < gguf_n_tensors(in->g); i++) {
        const GgufTensor *t = gguf_tensor_at(in->g, i);
        weights += (double)gguf_tensor_weights(t);
        bytes += (double)gguf_tensor_bytes(t);
    }
    return weights > 0 ? 8 * bytes / weights : 0;
}

// ---- text -----------------------------------------------------------------------------------------------------------

static void print_shape(const Inspection *in, Buf *out) {
    char a[24];
    const ModelConfig *c = &in->model.c;
    bool named = c->name[0] && strcmp(c->name, c->arch) != 0;
    buf_printf(out, "model       %s%s", c->arch, named ? ", " : "");
    if (named) utf8_escape(out, c->name, strlen(c->name));
    buf_printf(out, ", %s parameters, %.3g bits each\n", units_count((double)model_n_params(&in->model), a),
               bits_per_weight(in));
    buf_printf(out, "shape       %d layers, dim %d, %d heads and %d KV heads of %d, ffn %d, vocabulary %d%s\n",
               c->n_layers, c->dim, c->n_heads, c->n_kv_heads, c->head_dim, c->ffn, c->n_vocab,
               c->tied ? ", tied" : "");
    if (c->n_experts > 0) {
        buf_printf(out, "experts     %d of %d a token, of width %d", c->n_used, c->n_experts, c->ffn);
        if (c->ffn_shared) buf_printf(out, ", and a shared one of %d", c->ffn_shared);
        if (c->n_dense) buf_printf(out, "; none in the first %d layers, of width %d", c->n_dense, c->ffn_dense);
        if (c->expert_step > 1)
            buf_printf(out, "; in one layer of %d, the others of width %d", c->expert_step, c->ffn_dense);
        buf_printf(out, "; active: %s parameters, ", units_count((double)model_active_params(&in->model), a));
        buf_printf(out, "%s\n", units_bytes((double)model_active_bytes(&in->model), a));
    }
    buf_printf(out, "context     %d; RoPE base %.7g over %d, scaling %s", c->n_ctx_train, (double)c->rope_base,
               c->n_rot, c->rope_scaling);
    if (in->model.context_freq[0]) buf_printf(out, ", its long factors from -c %d on", c->rope_ctx_orig + 1);
    buf_str(out, "\n");
}

// What the layers of the model differ in: windows, the form of K and V, recurrence.
static void print_layers(const Inspection *in, Buf *out) {
    const ModelConfig *c = &in->model.c;
    if (c->n_windowed > 0) {
        bool chunked = memory_plan_kv_shape(&in->model).chunked;
        buf_printf(out, "window      %s%d tokens in %d of %d layers", chunked ? "chunks of " : "", c->window,
                   c->n_windowed, c->n_layers);
        if (c->window_heads != c->n_kv_heads || c->window_dim != c->head_dim)
            buf_printf(out, ", %d KV heads of %d there", c->window_heads, c->window_dim);
        buf_str(out, "\n");
    }
    if (c->kv_rank > 0)
        buf_printf(out, "KV          compressed: %d + %d elements a layer, for heads of %d (V %d)\n", c->kv_rank,
                   c->n_rot, c->q_head, c->v_head);
    if (c->n_shared_kv > 0)
        buf_printf(out, "KV          the last %d layers use the K and V of earlier ones\n", c->n_shared_kv);
    if (c->n_recurrent > 0) {
        char a[24];
        KvShape s = memory_plan_kv_shape(&in->model);
        buf_printf(out, "recurrent   %d of %d layers, a state of %s for each sequence", c->n_recurrent, c->n_layers,
                   units_bytes((double)kvshape_one_state_bytes(&s), a));
        if (c->rec.n_values > 0)
            buf_printf(out, "; %d key heads of %d, %d value heads of %d", c->rec.n_keys, c->rec.key_dim,
                       c->rec.n_values, c->rec.value_dim);
        buf_printf(out, "; convolution of %d\n", c->rec.taps);
    }
}

static void print_types(const Inspection *in, Buf *out) {
    char a[24];
    TypeCount types[N_TYPES];
    int n = count_types(in->g, types);
    buf_str(out, "types       ");
    for (int i = 0; i < n; i++)
        buf_printf(out, "%s%s: %d tensors, %s", i ? "; " : "", type_name(types[i].type), types[i].n,
                   units_bytes((double)types[i].bytes, a));
    buf_str(out, n ? "\n" : "no tensors\n");
}

static void print_summary(const Inspection *in, Buf *out) {
    char a[24];
    buf_str(out, "file        ");
    utf8_escape(out, gguf_name(in->g), strlen(gguf_name(in->g)));
    buf_printf(out, ", %s, %s\n", gguf_format(in->g), units_bytes((double)gguf_file_bytes(in->g), a));
    if (!in->model_status.code) {
        print_shape(in, out);
        print_layers(in, out);
    }
    if (in->tok) buf_printf(out, "tokenizer   %s, %d tokens\n", tokenizer_kind(in->tok), tokenizer_n(in->tok));
    else buf_printf(out, "tokenizer   cannot be loaded: %s\n", in->tok_status.message);
    buf_printf(out, "template    %s\n", in->template);
    buf_printf(out, "machine     CPU %s; CUDA ", cpu_isa_list());
    cuda_describe(out);
    buf_str(out, "\n");
    print_types(in, out);
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

static void set_int(json_t *j, const char *key, double v) { // doubles hold whole numbers exactly up to 2^53
    jsonio_put(j, key, v < 0x1p53 ? json_integer((json_int_t)v) : json_real(v));
}

static json_t *config_json(const ModelConfig *c) {
    json_t *j = json_object();
    jsonio_put(j, "arch", jsonio_text(str_of(c->arch)));
    jsonio_put(j, "name", jsonio_text(str_of(c->name)));
    set_int(j, "n_layers", c->n_layers);
    set_int(j, "dim", c->dim);
    set_int(j, "n_heads", c->n_heads);
    set_int(j, "n_kv_heads", c->n_kv_heads);
    set_int(j, "head_dim", c->head_dim);
    set_int(j, "ffn", c->ffn);
    if (c->n_experts > 0) {
        set_int(j, "n_experts", c->n_experts);
        set_int(j, "n_experts_used", c->n_used);
        set_int(j, "ffn_shared", c->ffn_shared);
        if (c->n_dense > 0) set_int(j, "n_dense", c->n_dense);
        if (c->expert_step > 1) set_int(j, "expert_step", c->expert_step);
        if (c->ffn_dense > 0) set_int(j, "ffn_dense", c->ffn_dense);
    }
    set_int(j, "n_vocab", c->n_vocab);
    set_int(j, "n_ctx_train", c->n_ctx_train);
    if (c->n_windowed > 0) set_int(j, "window", c->window);
    if (c->n_windowed > 0) set_int(j, "n_windowed", c->n_windowed);
    if (c->n_windowed > 0) set_int(j, "window_kv_heads", c->window_heads);
    if (c->n_windowed > 0) set_int(j, "window_head_dim", c->window_dim);
    if (c->n_shared_kv > 0) set_int(j, "n_shared_kv", c->n_shared_kv);
    if (c->kv_rank > 0) set_int(j, "kv_rank", c->kv_rank);
    if (c->n_recurrent > 0) {
        set_int(j, "n_recurrent", c->n_recurrent);
        set_int(j, "state_floats", (double)recurrence_floats(&c->rec));
    }
    set_int(j, "n_rot", c->n_rot);
    jsonio_put(j, "rope_base", jsonio_number((double)c->rope_base, 6));
    jsonio_put(j, "rope_scaling", jsonio_text(str_of(c->rope_scaling)));
    jsonio_put(j, "tied", json_boolean(c->tied));
    return j;
}

static json_t *metadata_json(const Gguf *g) {
    json_t *j = json_object();
    for (int i = 0; i < gguf_n_values(g); i++) {
        const GgufValue *v = gguf_value_at(g, i);
        Buf key = {0};
        bool more;
        utf8_repair(&key, v->key.data, v->key.n);
        json_t *value = value_json(v, 4, &more);
        if (v->type == GGUF_ARRAY) { // only the first elements
            json_t *array = json_object();
            jsonio_put(array, "type", json_string(type_names[v->elem_type]));
            set_int(array, "n", (double)v->n);
            jsonio_put(array, "first", value);
            value = array;
        }
        jsonio_put(j, key.data, value);
        buf_free(&key);
    }
    return j;
}

static json_t *tensors_json(const Inspection *in) {
    json_t *list = json_array();
    for (int i = 0; i < gguf_n_tensors(in->g); i++) {
        const GgufTensor *t = gguf_tensor_at(in->g, i);
        json_t *j = json_object(), *shape = json_array();
        for (int d = 0; d < t->n_dims; d++) jsonio_append(shape, json_integer((json_int_t)t->dims[d]));
        jsonio_put(j, "name", jsonio_text(t->name));
        jsonio_put(j, "type", json_string(type_name(t->type)));
        jsonio_put(j, "shape", shape);
        set_int(j, "bytes", (double)gguf_tensor_bytes(t));
        if (!in->model_status.code) jsonio_put(j, "used", json_boolean(model_uses(&in->model, i)));
        jsonio_append(list, j);
    }
    return list;
}

static void put_costs(const Inspection *in, json_t *j) {
    const Model *m = &in->model;
    json_t *memory = json_array(), *list = json_array();
    for (int n = first_context(m->c.n_ctx_train); n; n = next_context(n, m->c.n_ctx_train)) {
        Memory x = memory_of(m, n);
        json_t *one = json_object();
        set_int(one, "context", n);
        set_int(one, "weights", (double)x.weights);
        set_int(one, "kv", (double)x.kv);
        set_int(one, "scratch", (double)x.scratch);
        set_int(one, "total", (double)x.total);
        jsonio_append(memory, one);
    }
    TypicalStep steps[N_STEPS];
    typical_steps(m, steps);
    for (int i = 0; i < N_STEPS; i++) {
        json_t *one = json_object();
        jsonio_put(one, "phase", json_string(steps[i].name));
        set_int(one, "rows", steps[i].rows);
        set_int(one, "depth", steps[i].first);
        set_int(one, "flops", steps[i].cost.flops);
        set_int(one, "bytes", steps[i].cost.bytes);
        jsonio_append(list, one);
    }
    jsonio_put(j, "kv_type", json_string(type_name(model_kv_type(m))));
    jsonio_put(j, "memory", memory);
    jsonio_put(j, "steps", list);
}

static void print_json(const Inspection *in, Buf *out) {
    json_t *j = json_object();
    jsonio_put(j, "file", jsonio_text(str_of(gguf_name(in->g))));
    jsonio_put(j, "format", jsonio_text(str_of(gguf_format(in->g))));
    set_int(j, "gguf_version", gguf_version(in->g));
    set_int(j, "bytes", (double)gguf_file_bytes(in->g));
    if (!in->model_status.code) {
        jsonio_put(j, "config", config_json(&in->model.c));
        set_int(j, "parameters", (double)model_n_params(&in->model));
        set_int(j, "weight_bytes", (double)model_weight_bytes(&in->model));
        if (in->model.c.n_experts > 0) {
            set_int(j, "active_parameters", (double)model_active_params(&in->model));
            set_int(j, "active_weight_bytes", (double)model_active_bytes(&in->model));
        }
    }
    jsonio_put(j, "bits_per_weight", jsonio_number(bits_per_weight(in), 4));
    if (in->tok) jsonio_put(j, "tokenizer", json_string(tokenizer_kind(in->tok)));
    jsonio_put(j, "template", json_string(in->template));
    jsonio_put(j, "metadata", metadata_json(in->g));
    jsonio_put(j, "tensors", tensors_json(in));
    if (!in->model_status.code) put_costs(in, j);
    jsonio_line(j, out);
}

// ---- the mode -------------------------------------------------------------------------------------------------------

static const char *template_name(const Inspection *in) {
    ChatTemplate *c = NULL;
    if (!gguf_value(in->g, "tokenizer.chat_template")) return "none";
    bool good = in->tok && !chat_template_choose(in->g, in->tok, &(AnswerConfig){0}, &c).code;
    const char *name = !good ? "Jinja that cannot be parsed" : c ? "Jinja" : "empty";
    chat_template_free(c);
    return name;
}

Status look_inspect(const Options *o) {
    Inspection in = {0};
    TRY(engine_file_open(&o->engine, &in.g));
    const Backend *be;
    in.model_status = cpu_backend("auto", &be);
    if (!in.model_status.code) in.model_status = model_load(&in.model, in.g, be);
    in.tok_status = engine_file_tokenizer(in.g, &in.tok);
    in.template = template_name(&in);
    Buf out = {0};
    if (o->answer.json) print_json(&in, &out);
    else {
        print_summary(&in, &out);
        print_metadata(&in, &out);
        print_tensors(&in, &out);
        if (!in.model_status.code) print_costs(&in, &out);
    }
    Status st = output_buf(&out);
    // A model that cannot run is an error, after everything that can be shown.
    if (!st.code) st = in.model_status;
    if (!st.code && o->engine.check_tensors) st = model_check_tensors(&in.model);
    if (!in.model_status.code) model_free(&in.model);
    tokenizer_free(in.tok);
    gguf_close(in.g);
    return st;
}

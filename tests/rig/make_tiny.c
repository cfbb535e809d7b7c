// tests/rig/make_tiny.c: writes a tiny random model for tests that start the program itself.
//
//   make_tiny out.gguf arch=qwen2 type=Q4_K dim=256 template=chatml u32:qwen2.block_count=0
//   make_tiny out/ arch=qwen3 shards=2
//
// A name that ends in a slash is a Hugging Face directory (tests/rig/hf_directory.h), of F32, F16 or BF16; shards is
// the number of its safetensors files. Fields are those of TinyModel; u32:KEY=N, f32:KEY=X and str:KEY=TEXT set
// metadata afterwards, sane or not.
#include "tests/rig/hf_directory.h"
#include "tests/rig/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool set_int(TinyModel *m, const char *key, const char *value) {
    const struct {
        const char *name;
        int *field;
    } fields[] = {
        {"dim", &m->dim},
        {"n_layers", &m->n_layers},
        {"n_heads", &m->n_heads},
        {"n_kv_heads", &m->n_kv_heads},
        {"head_dim", &m->head_dim},
        {"ffn", &m->ffn},
        {"vocab", &m->vocab},
        {"ctx", &m->ctx},
        {"n_experts", &m->n_experts},
        {"n_groups", &m->n_groups},
        {"q_rank", &m->q_rank},
    };
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (strcmp(key, fields[i].name) == 0) {
            *fields[i].field = (int)strtol(value, NULL, 10);
            return true;
        }
    return false;
}

static bool set_flag(TinyModel *m, const char *key, const char *value) {
    const struct {
        const char *name;
        bool *field;
    } fields[] = {
        {"tied", &m->tied}, {"qkv_bias", &m->qkv_bias}, {"qk_norm", &m->qk_norm}, {"rope_freqs", &m->rope_freqs},
        {"mtp", &m->mtp},   {"own_ends", &m->own_ends}, {"bigrams", &m->bigrams},
    };
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (strcmp(key, fields[i].name) == 0) {
            *fields[i].field = strcmp(value, "0") != 0;
            return true;
        }
    return false;
}

static bool set_text(TinyModel *m, const char *key, const char *value) {
    const struct {
        const char *name;
        const char **field;
    } fields[] = {{"arch", &m->arch},
                  {"rope", &m->rope},
                  {"tokens", &m->tokens},
                  {"pre", &m->pre},
                  {"template", &m->chat_template}};
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (strcmp(key, fields[i].name) == 0) {
            *fields[i].field = value;
            return true;
        }
    return false;
}

static bool set_other(TinyModel *m, const char *key, const char *value) {
    if (strcmp(key, "type") == 0) {
        const TypeInfo *t = type_by_name(value);
        if (t) m->type = t->id;
        return t != NULL;
    }
    if (strcmp(key, "seed") == 0) m->seed = strtoull(value, NULL, 10);
    else if (strcmp(key, "freq_base") == 0) m->freq_base = strtof(value, NULL);
    else if (strcmp(key, "rope_factor") == 0) m->rope_factor = strtof(value, NULL);
    else return false;
    return true;
}

static bool set_metadata(Gguf *g, const char *key, const char *value) {
    if (strncmp(key, "u32:", 4) == 0) gguf_set_u32(g, key + 4, (uint32_t)strtoul(value, NULL, 10));
    else if (strncmp(key, "f32:", 4) == 0) gguf_set_f32(g, key + 4, strtof(value, NULL));
    else if (strncmp(key, "str:", 4) == 0) gguf_set_str(g, key + 4, value);
    else return false;
    return true;
}

int main(int argc, char **argv) {
    TinyModel m = {0};
    HfDirectory directory = {0};
    if (argc < 2) {
        fprintf(stderr, "usage: make_tiny OUT.gguf [FIELD=VALUE]... [u32:KEY=N | f32:KEY=X | str:KEY=TEXT]...\n");
        return QUILL_USAGE;
    }
    for (int i = 2; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (equals) *equals = 0;
        const char *value = equals ? equals + 1 : "";
        bool metadata = strchr(argv[i], ':') != NULL;
        if (equals && strcmp(argv[i], "shards") == 0) {
            directory.n_shards = (int)strtol(value, NULL, 10);
            *equals = '=';
            continue;
        }
        if (!equals || (!metadata && !set_int(&m, argv[i], value) && !set_flag(&m, argv[i], value) &&
                        !set_text(&m, argv[i], value) && !set_other(&m, argv[i], value))) {
            fprintf(stderr, "make_tiny: FIELD=VALUE of tiny_model.h expected, %s found\n", argv[i]);
            return QUILL_USAGE;
        }
        if (metadata) equals[0] = '='; // restored, since the argument is read again below
    }
    Gguf *g = tiny_model(&m);
    for (int i = 2; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals || !strchr(argv[i], ':')) continue;
        *equals = 0;
        if (set_metadata(g, argv[i], equals + 1)) continue;
        fprintf(stderr, "make_tiny: u32:, f32: or str: expected, %s found\n", argv[i]);
        return QUILL_USAGE;
    }
    Status st = OK;
    if (argv[1][strlen(argv[1]) - 1] == '/') hf_directory_write(g, argv[1], &directory);
    else st = gguf_save(g, argv[1]);
    if (st.code) fprintf(stderr, "make_tiny: %s\n", st.message);
    gguf_close(g);
    return st.code;
}

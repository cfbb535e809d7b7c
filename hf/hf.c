// hf/hf.c: see hf/hf.h. Reads the files of a directory one after another.
#define _GNU_SOURCE
#include "hf/hf.h"

#include <assert.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/jsonio.h"
#include "hf/config.h"
#include "hf/roles.h"
#include "hf/sampling.h"
#include "hf/rope.h"
#include "hf/tensors.h"
#include "hf/tokenizer.h"

// How jansson reads the small files: their numbers may be larger than any integer (model_max_length often is).
#define HF_JSON JSON_DECODE_INT_AS_REAL

bool hf_is_directory(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

const char *const hf_small_files[] = {"tokenizer.json",
                                      "tokenizer_config.json",
                                      "generation_config.json",
                                      "chat_template.jinja",
                                      "chat_template.json",
                                      "additional_chat_templates/tool_use.jinja",
                                      NULL};

static bool is_listed(const char *name) {
    int i = 0;
    while (hf_small_files[i] && strcmp(hf_small_files[i], name) != 0) i++;
    return hf_small_files[i] || strcmp(name, "config.json") == 0;
}

static bool has_file(const char *dir, const char *name) {
    Buf path = {0};
    assert(is_listed(name));
    buf_printf(&path, "%s/%s", dir, name);
    bool found = access(path.data, F_OK) == 0;
    buf_free(&path);
    return found;
}

// Reads a file of the directory; *out stays empty if it does not exist.
static Status read_text(const char *dir, const char *name, Buf *out) {
    Buf path = {0};
    assert(is_listed(name));
    buf_printf(&path, "%s/%s", dir, name);
    Status st = OK;
    if (access(path.data, F_OK) == 0) {
        FileMap map; // file_map refuses pipes and devices
        st = file_map(path.data, &map);
        if (st.code) st.code = QUILL_MODEL;
        else {
            buf_append(out, map.data, map.n);
            file_unmap(&map);
        }
    }
    buf_free(&path);
    return st;
}

// Python writes Infinity as a word, which JSON lacks. It becomes a string.
static void quote_infinity(Buf *text) {
    static const char word[] = "Infinity";
    Buf out = {0};
    bool inside = false; // a string
    for (size_t i = 0; i < text->n; i++) {
        const char *at = text->data + i;
        size_t n = 1;
        if (*at == '"') inside = !inside;
        if (inside && *at == '\\' && i + 1 < text->n) n = 2;
        bool found = !inside && text->n - i >= strlen(word) && memcmp(at, word, strlen(word)) == 0;
        if (found) buf_printf(&out, "\"%s\"", word);
        else buf_append(&out, at, n);
        i += (found ? strlen(word) : n) - 1;
    }
    buf_free(text);
    *text = out;
}

// *out NULL: the file is not there. QUILL_MODEL: it cannot be read, or is no JSON object.
static Status read_json(const char *dir, const char *name, json_t **out) {
    Buf text = {0};
    json_error_t error;
    *out = NULL;
    if (!has_file(dir, name)) return OK;
    Status st = read_text(dir, name, &text);
    if (!st.code) {
        quote_infinity(&text);
        *out = jsonio_read(str_of_buf(&text), HF_JSON, &error);
        if (!*out) st = status_error(QUILL_MODEL, "%s/%s: line %d: %s", dir, name, error.line, error.text);
        else if (!json_is_object(*out)) {
            st = status_error(QUILL_MODEL, "%s/%s: a JSON object expected, another value found", dir, name);
            json_decref(*out);
            *out = NULL;
        }
    }
    buf_free(&text);
    return st;
}

// ---- the vocabulary -------------------------------------------------------------------------------------------------

// Maps tokenizer.json, which may have tens of megabytes.
static Status read_tokenizer(const HfModel *m) {
    Buf path = {0};
    FileMap map;
    buf_printf(&path, "%s/tokenizer.json", m->dir);
    Status st = file_map(path.data, &map);
    if (st.code) st.code = QUILL_MODEL;
    else {
        st = hf_read_tokenizer(path.data, (Str){(const char *)map.data, map.n}, m->g);
        file_unmap(&map);
    }
    buf_free(&path);
    return st;
}

static Status read_jinja(const HfModel *m, const char *name, const char *key) {
    Buf text = {0};
    Status st = read_text(m->dir, name, &text);
    if (!st.code && text.n) gguf_set_str(m->g, key, text.data);
    buf_free(&text);
    return st;
}

// As in transformers, files of their own override the templates in tokenizer_config.json.
static Status read_templates(const HfModel *m) {
    TRY(read_jinja(m, "additional_chat_templates/tool_use.jinja", "tokenizer.chat_template.tool_use"));
    TRY(read_jinja(m, "chat_template.jinja", "tokenizer.chat_template"));
    if (gguf_value(m->g, "tokenizer.chat_template")) return OK;
    json_t *file; // exists in models with images
    TRY(read_json(m->dir, "chat_template.json", &file));
    const char *template = json_string_value(json_object_get(file, "chat_template"));
    if (template) gguf_set_str(m->g, "tokenizer.chat_template", template);
    json_decref(file);
    return OK;
}

static Status read_words(const HfModel *m) {
    json_t *tokenizer_config = NULL, *generation = NULL;
    if (!has_file(m->dir, "tokenizer.json")) return OK; // some modes need no vocabulary; engine_file.c names the file
    Status st = read_tokenizer(m);
    if (!st.code) st = read_json(m->dir, "tokenizer_config.json", &tokenizer_config);
    if (!st.code) st = read_json(m->dir, "generation_config.json", &generation);
    if (!st.code) st = hf_read_roles(m, tokenizer_config, generation);
    if (!st.code) hf_read_sampling(m, generation);
    if (!st.code) st = read_templates(m);
    json_decref(tokenizer_config);
    json_decref(generation);
    return st;
}

// ---- opening --------------------------------------------------------------------------------------------------------

// Sets general.name to the directory's name; for models--user--repo/snapshots/COMMIT in the Hugging Face cache to
// "repo".
static void set_name(const HfModel *m) {
    char *real = realpath(m->dir, NULL);
    char *slash = real ? strrchr(real, '/') : NULL;
    const char *name = slash ? slash + 1 : "";
    static const char snapshots[] = "/snapshots";
    char *above = slash ? slash - (sizeof snapshots - 1) : NULL;
    if (above && above > real && memcmp(above, snapshots, sizeof snapshots - 1) == 0) {
        *above = 0;
        const char *folder = file_base(real), *last = folder;
        for (const char *at = folder; (at = strstr(at, "--")); at += 2) last = at + 2;
        if (str_has_prefix(str_of(folder), "models--")) name = last;
    }
    if (*name) gguf_set_str(m->g, "general.name", name);
    free(real);
}

// Appends the name of a GGUF file in the directory, the first part of a split one.
static void find_gguf(const char *path, Buf *out) {
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && !out->n && (d = readdir(dir));) {
        size_t n_prefix;
        int no = 1, count;
        if (!str_has_suffix(str_of(d->d_name), ".gguf")) continue;
        if (!gguf_split_name(d->d_name, &n_prefix, &no, &count) || no == 1) buf_str(out, d->d_name);
    }
    if (dir) closedir(dir);
}

static Status no_config(const char *dir) {
    Buf gguf = {0};
    find_gguf(dir, &gguf);
    Status st = status_error(QUILL_MODEL,
                             "%.500s: a model file expected, or a Hugging Face directory; found a directory without "
                             "config.json%s%.200s",
                             dir, gguf.n ? "; give one of its files, such as " : "", gguf.n ? gguf.data : "");
    buf_free(&gguf);
    return st;
}

static Status read_config(HfModel *m) {
    TRY(read_json(m->dir, "config.json", &m->file));
    if (!m->file) return no_config(m->dir);
    TRY(hf_read_config(m));
    return hf_read_rope(m);
}

static Status read_all(HfModel *m) {
    TRY(read_config(m));
    set_name(m);
    TRY(hf_read_tensors(m));
    return read_words(m);
}

// Reads a directory with `read`.
static Status open_with(const char *dir, Status (*read)(HfModel *m), Gguf **out) {
    *out = NULL;
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') n--;
    char *name = mem_copy(dir, n);
    HfModel m = {.dir = name, .g = gguf_new(name)};
    Status st = read(&m);
    json_decref(m.config);
    json_decref(m.file);
    free(name);
    if (st.code) gguf_close(m.g);
    else *out = m.g;
    return st;
}

Status hf_open(const char *dir, Gguf **out) { return open_with(dir, read_all, out); }

Status hf_check_config(const char *dir) {
    Gguf *g;
    TRY(open_with(dir, read_config, &g));
    gguf_close(g);
    return OK;
}

static const char *dtype_of(const json_t *config) {
    const char *dtype = json_string_value(json_object_get(config, "dtype"));
    return dtype ? dtype : json_string_value(json_object_get(config, "torch_dtype"));
}

Status hf_describe(const char *dir, char family[32], char type[32]) {
    static const char *const types[][2] = {{"bfloat16", "BF16"}, {"float16", "F16"}, {"float32", "F32"}};
    json_t *config;
    TRY(read_json(dir, "config.json", &config));
    const char *name = json_string_value(json_object_get(config, "model_type")), *dtype = dtype_of(config);
    if (!dtype) dtype = dtype_of(json_object_get(config, "text_config"));
    if (json_object_get(config, "quantization_config")) dtype = NULL;
    if (name) snprintf(family, 32, "%s", name);
    for (size_t i = 0; dtype && i < ARRAY_LEN(types); i++)
        if (strcmp(dtype, types[i][0]) == 0) snprintf(type, 32, "%s", types[i][1]);
    json_decref(config);
    return OK;
}

// ---- from memory ----------------------------------------------------------------------------------------------------

Status hf_config_memory(const char *name, Str config, Gguf *g) {
    json_error_t error;
    HfModel m = {.dir = name, .g = g, .file = jsonio_read(config, HF_JSON, &error)};
    Status st = !m.file ? status_error(QUILL_MODEL, "%s/config.json: line %d: %s", name, error.line, error.text)
                : !json_is_object(m.file) ? status_error(QUILL_MODEL, "%s/config.json: an object expected", name)
                                          : hf_read_config(&m);
    if (!st.code) st = hf_read_rope(&m);
    json_decref(m.config);
    json_decref(m.file);
    return st;
}

Status hf_tokenizer_memory(const char *name, Str tokenizer, const char *tokenizer_config, Gguf *g) {
    json_t *config = tokenizer_config ? json_loads(tokenizer_config, 0, NULL) : NULL;
    HfModel m = {.dir = name, .g = g};
    Status st = hf_read_tokenizer(name, tokenizer, g);
    if (!st.code) st = hf_read_roles(&m, config, NULL);
    json_decref(config);
    return st;
}

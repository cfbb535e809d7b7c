// tests/fuzz_hub.c: libFuzzer over input from the Hub and from users: names, the API's list of files, the index of
// safetensors, heads of HTTP answers. Every accepted name must be safe as a path. The input's first byte picks the
// reader. `make fuzz-build` builds it.
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/jsonio.h"
#include "hub/choose.h"
#include "hub/http.h"

static void check_path(const char *path) {
    if (path[0] == '/' || strcmp(path, "..") == 0 || strncmp(path, "../", 3) == 0 || strstr(path, "/../") ||
        str_has_suffix(str_of(path), "/.."))
        abort();
}

static void fuzz_name(const char *text) {
    HubName name;
    char type[HUB_TYPE_MOST + 1];
    if (hub_name_read(text, true, &name)) {
        check_path(name.repo);
        if (strstr(name.repo, "--") || strspn(name.repo, "._-/0123456789abcdefghijklmnopqrstuvwxyz"
                                                         "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != strlen(name.repo))
            abort();
    }
    hub_name_type(text, type);
    if (hub_name_is_safe_path(text)) check_path(text);
    Buf escaped = {0};
    hub_http_escape(text, &escaped);
    for (size_t i = 0; i < escaped.n; i++)
        if (escaped.data[i] <= 0x20 || escaped.data[i] >= 0x7f) abort();
    buf_free(&escaped);
    if (hub_http_same_origin(text, "https://huggingface.co") && strncasecmp(text, "https://huggingface.co", 22) != 0)
        abort();
}

// Every model must have files of the list, and its own name must choose it.
static void walk(const HubFiles *files, HubModels *models) {
    for (int i = 0; i < models->n; i++) {
        HubName name = {.repo = "a/b"};
        int which;
        Buf own = {0};
        for (int k = 0; k < models->at[i].n; k++)
            if (hub_files_find(files, models->at[i].files[k]->path) == NULL) abort();
        hub_models_name("a/b", models, i, &own);
        const char *colon = strchr(own.data, ':');
        if (colon && strlen(colon + 1) <= HUB_TAG_MOST) {
            strcpy(name.tag, colon + 1);
            Status st = hub_models_choose(&name, models, &which);
            if (st.code && (st.code != QUILL_MODEL || !st.message[0])) abort();
        }
        buf_free(&own);
    }
}

static void fuzz_list(Str text) {
    HubFiles files = {0};
    HubModels models = {0};
    Status st = hub_files_read("a/b", text, &files);
    if (st.code && (st.code != QUILL_IO || !st.message[0])) abort();
    for (int i = 0; i < files.n; i++) check_path(files.at[i].path);
    hub_models_group(&files, &models);
    walk(&files, &models);
    hub_models_free(&models);
    hub_files_free(&files);
}

static void fuzz_index(Str text) {
    HubFiles files = {0};
    HubModels models = {0};
    hub_files_add(&files, "config.json", 1);
    hub_files_add(&files, "m", 1);
    hub_files_add(&files, "model.safetensors.index.json", 1);
    hub_models_group(&files, &models);
    if (models.n != 1) abort();
    Status st = hub_models_add_shards("a/b", &files, text, &models.at[0]);
    if (models.at[0].n > 3 || (st.code && st.code != QUILL_MODEL)) abort();
    hub_models_free(&models);
    hub_files_free(&files);
}

static void fuzz_head(Str text) {
    HubReply reply = {0};
    while (text.n) {
        const char *end = memchr(text.data, '\n', text.n);
        size_t n = end ? (size_t)(end - text.data) + 1 : text.n;
        hub_http_header((Str){text.data, n}, &reply);
        text = (Str){text.data + n, text.n - n};
    }
    if (strlen(reply.etag) >= sizeof reply.etag || reply.size < -1 || reply.from < -1 || reply.wait < -1) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static bool started;
    if (!started) jsonio_start();
    started = true;
    if (n < 1) return 0;
    char *text = mem_copy((const char *)data + 1, n - 1);
    switch (data[0] % 4) {
    case 0: fuzz_name(text); break;
    case 1: fuzz_list((Str){text, n - 1}); break;
    case 2: fuzz_index((Str){text, n - 1}); break;
    default: fuzz_head((Str){text, n - 1});
    }
    free(text);
    return 0;
}

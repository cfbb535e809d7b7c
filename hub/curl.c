// hub/curl.c: see hub/curl.h.
#include "hub/curl.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static char *copy_text(const char *text) { return mem_copy(text, strlen(text)); }
static void *alloc_many(size_t n, size_t size) {
    size_t all;
    if (!size_mul(n, size, &all)) mem_refused(n);
    return mem_alloc(all);
}

// Starts libcurl with quill's allocator: without memory the process ends with QUILL_MEMORY.
static Status start(void *library) {
    int (*init)(long, void *(*)(size_t), void (*)(void *), void *(*)(void *, size_t), char *(*)(const char *),
                void *(*)(size_t, size_t));
    *(void **)&init = dlsym(library, "curl_global_init_mem");
    const long everything = 3; // CURL_GLOBAL_ALL
    int code = init ? init(everything, mem_alloc, free, mem_resize, copy_text, alloc_many) : HUB_CURLE_FAILED_INIT;
    if (code != HUB_CURLE_OK && errno == ENOMEM) mem_refused(1);
    return code == HUB_CURLE_OK ? OK : status_error(QUILL_IO, "libcurl cannot be started (error %d)", code);
}

static Status find_functions(void *library, HubCurl *curl) {
    const struct {
        void *to;
        const char *symbol;
    } symbols[] = {
        {&curl->easy_init, "curl_easy_init"},         {&curl->easy_setopt, "curl_easy_setopt"},
        {&curl->easy_perform, "curl_easy_perform"},   {&curl->easy_getinfo, "curl_easy_getinfo"},
        {&curl->easy_strerror, "curl_easy_strerror"}, {&curl->easy_cleanup, "curl_easy_cleanup"},
        {&curl->slist_append, "curl_slist_append"},   {&curl->slist_free_all, "curl_slist_free_all"},
    };
    for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
        void *found = dlsym(library, symbols[i].symbol);
        if (!found)
            return status_error(QUILL_IO, "libcurl: the function %s expected, none found: another library?",
                                symbols[i].symbol);
        memcpy(symbols[i].to, &found, sizeof found);
    }
    return start(library);
}

static Status open_library(HubCurl *curl) {
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *library = NULL;
    for (size_t i = 0; i < ARRAY_LEN(names) && !library; i++) {
        errno = 0;
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (!library && errno == ENOMEM) mem_refused(1);
    }
    if (!library)
        return status_error(QUILL_IO,
                            "libcurl.so.4 expected, none found: models are fetched with it; install it (apt-get "
                            "install libcurl4), or fetch the file yourself and give it with -m FILE");
    return find_functions(library, curl);
}

Status hub_curl_open(const HubCurl **out) {
    static HubCurl curl;
    static bool opened;
    *out = &curl;
    if (opened) return OK;
    Status st = open_library(&curl);
    opened = !st.code;
    return st;
}

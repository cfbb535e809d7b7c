// tests/fuzz_jinja.c: any bytes as a template, rendered with a small conversation. There must be no crash and no
// endless run, every byte must have a mark, and no byte of a message may be trusted.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja/jinja.h"

static void require(bool truth, const char *what) {
    if (truth) return;
    fprintf(stderr, "fuzz_jinja: %s\n", what);
    abort();
}

static Value message(Heap *h, const char *role, Str text) {
    Value m = value_dict(h);
    dict_set_str(h, m.dict, "role", value_string(h, str_of(role), true));
    dict_set_str(h, m.dict, "content", value_string(h, text, false));
    return m;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    // \x01 marks the user's bytes: a template has no \x01 of its own
    static const char user[] = "\x01 caf\xc3\xa9 \x01\xe4\xb8\n\x01";
    static const struct tm now = {.tm_year = 126, .tm_mday = 2};
    if (memchr(data, 1, size)) return 0;
    Jinja *t;
    if (jinja_parse((Str){(const char *)data, size}, &t).code) return 0;
    Heap *h = heap_new(4 << 20, 20000);
    Value v = value_dict(h), list = value_new_list(h, V_LIST, 3);
    list.list->items[0] = message(h, "system", str_of("Be kind."));
    list.list->items[1] = message(h, "user", (Str){user, sizeof user - 1});
    list.list->items[2] = message(h, "assistant", str_of("<think>\nx\n</think>\n1"));
    dict_set_str(h, v.dict, "messages", list);
    dict_set_str(h, v.dict, "m", list.list->items[1]);
    dict_set_str(h, v.dict, "add_generation_prompt", value_bool(true));
    dict_set_str(h, v.dict, "bos_token", value_string(h, str_of("<s>"), true));
    Buf text = {0}, trusted = {0};
    Status st = jinja_render(t, h, v.dict, &now, &text, &trusted);
    require(text.n == trusted.n, "a byte without a mark");
    require(!st.code || text.n == 0, "text although it failed");
    bool escapes = memchr(data, '\\', size) != NULL; // the template may write \x01 itself, by an escape
    for (size_t i = 0; i < text.n && !escapes; i++)
        require(text.data[i] != 1 || trusted.data[i] == 0, "a message's byte is trusted");
    buf_free(&text);
    buf_free(&trusted);
    heap_free(h);
    jinja_free(t);
    return 0;
}

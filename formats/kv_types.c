// formats/kv_types.c: see formats/kv_types.h.
#include "formats/kv_types.h"

#define ROW(id, name, sealed, bytes) {TYPE_##id, name},
static const struct {
    int type;
    const char *name;
} table[N_KV_TYPES] = {EACH_KV_TYPE(ROW)};

int kv_type_at(int i) { return table[i].type; }

int kv_type_find(const char *name) {
    for (int i = 0; i < N_KV_TYPES; i++)
        if (strcmp(table[i].name, name) == 0) return table[i].type;
    return -1;
}

const char *kv_type_name(int type) {
    for (int i = 0; i < N_KV_TYPES; i++)
        if (table[i].type == type) return table[i].name;
    return NULL;
}

#define TITLE(id, name, sealed, bytes) ", " #id
const char *kv_type_list(void) { return &EACH_KV_TYPE(TITLE)[2]; }

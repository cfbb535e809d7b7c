// families.c: the table of model families. See families.h.
#include "families.h"

#include <stdio.h>

#include "base/str.h"

static const Family families[] = {
    {.arch = "llama", .rope_adjacent = true, .experts = EXPERTS_MAYBE}, // Mixtral too, which has experts
    {.arch = "qwen2"},
    {.arch = "qwen3", .qk_norm = true},
    {.arch = "seed_oss", .ffn_norm = "post_attention_norm"},
    {.arch = "ernie4_5", .rope_adjacent = true},
    {.arch = "exaone4", // layers with a window in the 32B alone
     .qk_norm = true,
     .norms_behind = true,
     .no_norms_before = true,
     .full_every = 4,
     .window_optional = true,
     .rope_in_windows = true},
    {.arch = "hunyuan-dense", .qk_norm = true, .qk_norm_of = QK_NORM_TURNED},
    {.arch = "gemma", .act = ACT_GELU, .embd_sqrt = true},
    {.arch = "gemma2",
     .norms_behind = true,
     .act = ACT_GELU,
     .embd_sqrt = true,
     .full_every = 2,
     .window = 4096, // files from the first days of Gemma 2 lack these three keys
     .score_cap = 50,
     .logit_cap = 30,
     .n_layers_by_dim = 46},
    {.arch = "gemma3",
     .qk_norm = true,
     .norms_behind = true,
     .act = ACT_GELU,
     .embd_sqrt = true,
     .full_every = 6,
     .window_optional = true,
     .window_rope = true,
     .window_base = 10000,
     .n_layers_by_dim = 62},
    {.arch = "gemma4",
     .qk_norm = true,
     .norms_behind = true,
     .act = ACT_GELU,
     .embd_sqrt = true,
     .full_every = 6,
     .window_rope = true,
     .window_base = 10000,
     .experts = EXPERTS_MAYBE,
     .v_norm = true,
     .score_scale = 1,
     .dense_beside = true},
    {.arch = "phi3"},
    {.arch = "granite", .rope_adjacent = true, .scales = true, .rope_switch = true},
    {.arch = "smollm3", .rope_adjacent = true, .rope_skip_every = 4},
    {.arch = "mistral3", .rope_adjacent = true},
    {.arch = "olmo2", // OLMo 3 too, which has windows
     .qk_norm = true,
     .qk_norm_of = QK_NORM_ROW,
     .norms_behind = true,
     .no_norms_before = true,
     .full_every = 4,
     .window_optional = true,
     .window_rope = true},
    {.arch = "glm4", .rope_adjacent = true, .norms_behind = true},
    {.arch = "qwen2moe", .experts = EXPERTS_ALWAYS, .routing = ROUTE_ALL},
    {.arch = "qwen3moe", .qk_norm = true, .experts = EXPERTS_ALWAYS},
    {.arch = "olmoe", .qk_norm = true, .qk_norm_of = QK_NORM_ROW, .experts = EXPERTS_MAYBE, .routing = ROUTE_ALL},
    {.arch = "granitemoe", .rope_adjacent = true, .scales = true, .experts = EXPERTS_MAYBE},
    {.arch = "ernie4_5-moe", .rope_adjacent = true, .experts = EXPERTS_ALWAYS},
    {.arch = "glm4moe",
     .experts = EXPERTS_ALWAYS,
     .routing = ROUTE_SIGMOID,
     .ffn_norm = "post_attention_norm",
     .head = true},
    {.arch = "bailingmoe2", .qk_norm = true, .experts = EXPERTS_ALWAYS, .routing = ROUTE_SIGMOID},
    {.arch = "minimax-m2",
     .qk_norm = true,
     .qk_norm_of = QK_NORM_ROW,
     .experts = EXPERTS_ALWAYS,
     .routing = ROUTE_SIGMOID_CHOSEN},
    {.arch = "deepseek2", // V2, V3, and other models with the same layers
     .rope_adjacent = true,
     .experts = EXPERTS_MAYBE,
     .routing = ROUTE_ALL,
     .latent = true},
    {.arch = "mistral4", .rope_adjacent = true, .experts = EXPERTS_MAYBE, .routing = ROUTE_ALL, .latent = true},
    {.arch = "gpt-oss",
     .act = ACT_SWIGLU_CLAMPED,
     .full_every = 2,
     .experts = EXPERTS_ALWAYS,
     .sinks = true,
     .yarn_unrounded = true,
     .ffn_norm = "post_attention_norm"},
    {.arch = "qwen3next",
     .qk_norm = true,
     .experts = EXPERTS_ALWAYS,
     .ffn_norm = "post_attention_norm",
     .recurrent = MIXER_DELTA,
     .key_heads_grouped = true,
     .gate = GATE_IN_WQ,
     .head = true},
    {.arch = "qwen35",
     .qk_norm = true,
     .ffn_norm = "post_attention_norm",
     .recurrent = MIXER_DELTA,
     .gate = GATE_IN_WQ,
     .head = true},
    {.arch = "qwen35moe",
     .qk_norm = true,
     .experts = EXPERTS_ALWAYS,
     .ffn_norm = "post_attention_norm",
     .recurrent = MIXER_DELTA,
     .gate = GATE_IN_WQ,
     .head = true},
    {.arch = "muse-glimmer",
     .rope_adjacent = true,
     .qk_norm = true,
     .norms_behind = true,
     .eps_out = 1e-8f,
     .embd_norm = true,
     .logit_factor = true,
     .full_every = 4,
     .rope_in_windows = true,
     .gate = GATE_OWN},
    {.arch = "lfm2", .qk_norm = true, .recurrent = MIXER_CONV, .norm_out = "token_embd_norm"},
    {.arch = "lfm2moe",
     .qk_norm = true,
     .experts = EXPERTS_ALWAYS,
     .routing = ROUTE_SIGMOID_CHOSEN,
     .recurrent = MIXER_CONV,
     .norm_out = "token_embd_norm"},
};

const Family *families_at(int i) { return i < (int)ARRAY_LEN(families) ? &families[i] : NULL; }

const Family *family_find(Str arch) {
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        if (str_is(arch, families[i].arch)) return &families[i];
    return NULL;
}

const char *families_list(void) {
    static char list[ARRAY_LEN(families) * 24];
    *list = 0;
    for (size_t i = 0; i < ARRAY_LEN(families); i++) str_list(list, sizeof list, families[i].arch);
    return list;
}

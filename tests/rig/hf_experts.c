// tests/rig/hf_experts.c: see tests/rig/hf_experts.h.
#include "tests/rig/hf_experts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/jsonio.h"
#include "tests/rig/hf_recurrent.h"

double hf_number_of(const Gguf *g, const char *arch, const char *suffix) {
    char key[96];
    uint64_t magnitude;
    bool negative;
    float f;
    snprintf(key, sizeof key, "%s.%s", arch, suffix);
    const GgufValue *v = gguf_value(g, key);
    if (!v) return NAN;
    if (gguf_integer(v, &magnitude, &negative)) return (double)magnitude;
    return gguf_f32(g, key, &f, true, 0).code ? NAN : (double)f;
}

void hf_put_number(json_t *config, const char *key, double v) {
    if (!isnan(v)) jsonio_put(config, key, v == floor(v) && v >= 1 ? json_integer((json_int_t)v) : json_real(v));
}

static const NamePair glm4moe[] = {{"expert_count", "n_routed_experts"},
                                   {"expert_shared_count", "n_shared_experts"},
                                   {"expert_feed_forward_length", "moe_intermediate_size"},
                                   {"feed_forward_length", "intermediate_size"},
                                   {"leading_dense_block_count", "first_k_dense_replace"},
                                   {"expert_group_count", "n_group"},
                                   {"expert_group_used_count", "topk_group"},
                                   {"expert_weights_scale", "routed_scaling_factor"}};
#define COMMON                                                                                                         \
    {"expert_count", "num_experts"}, {"expert_feed_forward_length", "moe_intermediate_size"}, {                        \
        "feed_forward_length", "intermediate_size"                                                                     \
    }
static const NamePair hy[] = {
    COMMON, {"leading_dense_block_count", "first_k_dense_replace"}, {"expert_weights_scale", "router_scaling_factor"}};
static const NamePair mellum[] = {COMMON};
static const NamePair exaone[] = {COMMON,
                                  {"leading_dense_block_count", "first_k_dense_replace"},
                                  {"expert_group_count", "n_group"},
                                  {"expert_group_used_count", "topk_group"},
                                  {"expert_weights_scale", "routed_scaling_factor"}};
static const NamePair afmoe[] = {
    COMMON, {"leading_dense_block_count", "num_dense_layers"}, {"expert_weights_scale", "route_scale"}};
static const NamePair ernie[] = {{"expert_count", "moe_num_experts"},
                                 {"expert_used_count", "moe_k"},
                                 {"expert_feed_forward_length", "moe_intermediate_size"},
                                 {"feed_forward_length", "intermediate_size"},
                                 {"leading_dense_block_count", "moe_layer_start_index"}};
static const NamePair minimax[] = {{"expert_count", "num_local_experts"}, {"rope.dimension_count", "rotary_dim"}};
static const NamePair olmoe[] = {{"expert_count", "num_experts"}};
static const NamePair granite[] = {{"expert_count", "num_local_experts"},
                                   {"expert_shared_feed_forward_length", "shared_intermediate_size"}};
static const NamePair lfm[] = {{"expert_count", "num_experts"},
                               {"expert_feed_forward_length", "moe_intermediate_size"},
                               {"feed_forward_length", "intermediate_size"},
                               {"leading_dense_block_count", "num_dense_layers"}};

static const NamePair llama4[] = {{"expert_count", "num_local_experts"},
                                  {"expert_feed_forward_length", "intermediate_size"},
                                  {"feed_forward_length", "intermediate_size_mlp"},
                                  {"interleave_moe_layer_step", "interleave_moe_layer_step"},
                                  {"attention.chunk_size", "attention_chunk_size"},
                                  {"attention.temperature_scale", "attn_scale"},
                                  {"attention.temperature_length", "floor_scale"}};

void hf_experts_config(const Gguf *g, const char *arch, json_t *config) {
    static const struct {
        const char *arch;
        const NamePair *keys;
        size_t n;
    } all[] = {{"glm4moe", glm4moe, ARRAY_LEN(glm4moe)},
               {"ernie4_5-moe", ernie, ARRAY_LEN(ernie)},
               {"minimax-m2", minimax, ARRAY_LEN(minimax)},
               {"olmoe", olmoe, ARRAY_LEN(olmoe)},
               {"granitemoe", granite, ARRAY_LEN(granite)},
               {"lfm2moe", lfm, ARRAY_LEN(lfm)},
               {"hy_v3", hy, ARRAY_LEN(hy)},
               {"dots1", glm4moe, ARRAY_LEN(glm4moe)},
               {"mellum", mellum, ARRAY_LEN(mellum)},
               {"exaone-moe", exaone, ARRAY_LEN(exaone)},
               {"afmoe", afmoe, ARRAY_LEN(afmoe)},
               {"llama4", llama4, ARRAY_LEN(llama4)}};
    char key[96];
    bool norm;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (strcmp(all[i].arch, arch) != 0) continue;
        json_object_del(config, "num_local_experts");
        for (size_t k = 0; k < all[i].n; k++)
            hf_put_number(config, all[i].keys[k].hf, hf_number_of(g, arch, all[i].keys[k].gguf));
    }
    double shared = hf_number_of(g, arch, "expert_shared_feed_forward_length"),
           width = hf_number_of(g, arch, "expert_feed_forward_length");
    bool hy3 = strcmp(arch, "hy_v3") == 0, trinity = strcmp(arch, "afmoe") == 0,
         ernie45 = strcmp(arch, "ernie4_5-moe") == 0;
    if (ernie45 || hy3 || trinity || strcmp(arch, "exaone-moe") == 0)
        jsonio_put(config, ernie45 ? "moe_num_shared_experts" : "num_shared_experts",
                   json_integer(isnan(shared) ? 0 : (json_int_t)(shared / width)));
    if (trinity) jsonio_put(config, "mup_enabled", json_true());
    if (strcmp(arch, "mellum") == 0) {
        json_t *types = json_array();
        for (int i = 0; i < hf_number_of(g, arch, "block_count"); i++)
            jsonio_append(types, json_string((i + 1) % 4 ? "sliding_attention" : "full_attention"));
        jsonio_put(config, "layer_types", types);
    }
    if (strcmp(arch, "granitemoe") == 0 && !isnan(shared))
        jsonio_put(config, "model_type", json_string("granitemoeshared"));
    if (strcmp(arch, "minimax-m2") == 0) json_object_del(config, "partial_rotary_factor");
    snprintf(key, sizeof key, "%s.expert_weights_norm", arch);
    if (gguf_value(g, key) && !gguf_bool(g, key, &norm, true).code)
        jsonio_put(config, "norm_topk_prob", json_boolean(norm));
}

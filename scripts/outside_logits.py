#!/usr/bin/env python3
"""Computes logits of a model file with transformers in float64, for the table of tests/test_outside.c.

    make build/release/tests/test_outside && mkdir models && build/release/tests/test_outside models
    pip install torch transformers gguf
    scripts/outside_logits.py models/*.gguf

Prints for each file the logits of the last row at every 40th vocabulary entry, as the test has them. The file's weights
must be F32. A family is a function below: it gives the configuration and the names of tensors in transformers.
"""
import sys

import gguf
import numpy
import torch
import transformers

N_TOKENS, STEP = 24, 40  # as in tests/test_outside.c

# transformers rounds angles, norms and attention weights to float32 with these, whatever the model's type is
torch.float = torch.float32 = torch.float64
torch.Tensor.float = torch.Tensor.double


def tokens(n_vocab):
    return [(37 * i + 11) % n_vocab for i in range(N_TOKENS)]


class File:
    """Keys and tensors of a GGUF file."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.fields = {name: field.contents() for name, field in reader.fields.items()}
        self.arch = self.fields["general.architecture"]
        self.tensors = {t.name: torch.tensor(numpy.array(t.data), dtype=torch.float64) for t in reader.tensors}

    def get(self, key, default=None):
        return self.fields.get(f"{self.arch}.{key}", default)

    def layer(self, i, part):
        return self.tensors[f"blk.{i}.{part}"]

    def common(self):
        """Keys of the configuration that most classes share."""
        return dict(
            vocab_size=self.tensors["token_embd.weight"].shape[0],
            hidden_size=self.get("embedding_length"),
            intermediate_size=self.get("feed_forward_length"),
            num_hidden_layers=self.get("block_count"),
            num_attention_heads=self.get("attention.head_count"),
            num_key_value_heads=self.get("attention.head_count_kv"),
            head_dim=self.get("attention.key_length"),
            max_position_embeddings=self.get("context_length"),
            rms_norm_eps=self.get("attention.layer_norm_rms_epsilon"),
            rope_parameters={"rope_type": "default", "rope_theta": self.get("rope.freq_base")},
            tie_word_embeddings="output.weight" not in self.tensors,
        )

    def ends(self, prefix="model."):
        """The tensors before the first layer and after the last one."""
        names = {"token_embd.weight": prefix + "embed_tokens.weight", "output_norm.weight": prefix + "norm.weight",
                 "output.weight": "lm_head.weight"}
        return {to: self.tensors[name] for name, to in names.items() if name in self.tensors}

    def layers(self, parts, prefix="model.layers."):
        """The tensors of all layers. parts: names in GGUF and in transformers; absent ones are left out."""
        out = {}
        for i in range(self.get("block_count")):
            for name, to in parts.items():
                for kind in ("weight", "bias"):
                    t = self.tensors.get(f"blk.{i}.{name}.{kind}")
                    if t is not None:
                        out[f"{prefix}{i}.{to}.{kind}"] = t
        return out


ATTENTION = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj"}
GATED_FFN = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def in_halves(w, n_heads):
    """Rows of Q or K in GGUF's order of pairs (2i, 2i+1), in the order of halves (i, i + n/2)."""
    rows, rest = w.shape[0], w.shape[1:]
    return w.reshape(n_heads, rows // n_heads // 2, 2, *rest).transpose(1, 2).reshape(w.shape)


def like_llama(kind, norms=None, halves=False, minus_one=False, keys=lambda file: {}, more=lambda file: {}):
    """A family that differs from Llama in names and keys alone. norms: the names of those that not all families have.
    halves: the rows of Q and K have transformers' order. minus_one: norms are stored minus one. more: other tensors."""
    def family(file):
        config = getattr(transformers, kind + "Config")(**{**file.common(), **keys(file)})
        parts = {**ATTENTION, **GATED_FFN, **({"ffn_norm": "post_attention_layernorm"} if norms is None else norms)}
        state = {**file.ends(), **file.layers(parts), **more(file)}
        for name in state:
            if halves and "q_proj" in name:
                state[name] = in_halves(state[name], config.num_attention_heads)
            elif halves and "k_proj" in name:
                state[name] = in_halves(state[name], config.num_key_value_heads)
            elif halves and ("query_layernorm" in name or "key_layernorm" in name):
                state[name] = in_halves(state[name], 1)
            elif minus_one and "norm" in name:
                state[name] = state[name] - 1
        return getattr(transformers, kind + "ForCausalLM"), config, state
    return family


def windows(file):
    """The window of all layers but each fourth."""
    window, n = file.get("attention.sliding_window"), file.get("block_count")
    kinds = ["sliding_attention" if window and (i + 1) % 4 else "full_attention" for i in range(n)]
    return dict(sliding_window=window, layer_types=kinds)


APERTUS = {"attn_norm": "attention_layernorm", "ffn_norm": "feedforward_layernorm",
           "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}


def apertus(file):
    return dict(hidden_act="xielu", rope_parameters={"rope_type": "default", "rope_theta": file.get("rope.freq_base")})


def xielu(file):
    """The parameters of the activation, which are lists in GGUF."""
    return {f"model.layers.{i}.mlp.act_fn.{part}": torch.tensor([v] if "alpha" in part else v, dtype=torch.float64)
            for part in ("alpha_p", "alpha_n", "beta", "eps") for i, v in enumerate(file.fields[f"xielu.{part}"])}


def granite(file):
    usual = file.get("attention.key_length") ** -0.5
    return dict(embedding_multiplier=file.get("embedding_scale"),
                attention_multiplier=file.get("attention.scale", usual),
                residual_multiplier=file.get("residual_scale"), logits_scaling=file.get("logit_scale"))


def cohere(file):
    return dict(layer_norm_eps=file.get("attention.layer_norm_epsilon"), logit_scale=file.get("logit_scale"))


def mistral4(file):
    config = file.common()
    factor = file.get("rope.scaling.factor")
    del config["head_dim"]
    config.update(
        num_key_value_heads=config["num_attention_heads"],
        moe_intermediate_size=file.get("expert_feed_forward_length"),
        kv_lora_rank=file.get("attention.kv_lora_rank"),
        q_lora_rank=file.get("attention.q_lora_rank"),
        qk_rope_head_dim=file.get("rope.dimension_count"),
        qk_nope_head_dim=file.get("attention.key_length_mla") - file.get("rope.dimension_count"),
        v_head_dim=file.get("attention.value_length_mla"),
        n_routed_experts=file.get("expert_count"),
        num_experts_per_tok=file.get("expert_used_count"),
        n_shared_experts=file.get("expert_shared_feed_forward_length") // file.get("expert_feed_forward_length"),
        first_k_dense_replace=file.get("leading_dense_block_count"),
        routed_scaling_factor=file.get("expert_weights_scale"),
        norm_topk_prob=bool(file.get("expert_weights_norm", False)),
        rope_parameters={
            "rope_type": "yarn", "rope_theta": file.get("rope.freq_base"), "factor": factor,
            "original_max_position_embeddings": file.get("rope.scaling.original_context_length"),
            "beta_fast": file.get("rope.scaling.yarn_beta_fast"), "beta_slow": file.get("rope.scaling.yarn_beta_slow"),
            "mscale": 10 * file.get("rope.scaling.yarn_log_multiplier"),
            "mscale_all_dim": 10 * file.get("rope.scaling.yarn_log_multiplier"),
            "llama_4_scaling_beta": file.get("attention.temperature_scale"),
        },
    )
    names = {"attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm",
             "attn_q_b": "self_attn.q_b_proj", "attn_q": "self_attn.q_proj",
             "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
             "attn_kv_a_norm": "self_attn.kv_a_layernorm", "attn_norm": "input_layernorm",
             "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm"}
    state = {**file.ends(), **file.layers({**GATED_FFN, **names}), **mixture(file, "mlp")}
    for i in range(config["num_hidden_layers"]):
        k, v = file.layer(i, "attn_k_b.weight"), file.layer(i, "attn_v_b.weight")
        both = torch.cat([k.transpose(1, 2), v], dim=1)
        state[f"model.layers.{i}.self_attn.kv_b_proj.weight"] = both.reshape(-1, both.shape[-1])
    return transformers.Mistral4ForCausalLM, transformers.Mistral4Config(**config), state


def muse_glimmer(file):
    text = file.common()
    heads, kv_heads = text["num_attention_heads"], text["num_key_value_heads"]
    full = file.get("attention.sliding_window_pattern", 4)
    slides = [(i + 1) % full != 0 for i in range(text["num_hidden_layers"])]
    text.update(
        sliding_window=file.get("attention.sliding_window"),
        layer_types=["sliding_attention" if s else "full_attention" for s in slides],
        layer_rope_theta=[file.get("rope.freq_base") if s else 0 for s in slides],
        qk_scale_factor=file.layer(0, "attn_q_norm.weight")[0].item(),
        output_multiplier=file.get("logit_scale"),
        final_logit_softcapping=file.get("final_logit_softcapping"),
    )
    config = transformers.MuseGlimmerConfig(text_config=text, vision_config=TINY_VISION,
                                            tie_word_embeddings=text["tie_word_embeddings"])
    norms = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
             "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
    prefix = "model.language_model."
    state = file.layers({**ATTENTION, **GATED_FFN, **norms, "attn_gate": "self_attn.gate_proj"}, prefix + "layers.")
    for name in state:
        if "q_proj" in name:
            state[name] = in_halves(state[name], heads)
        elif "k_proj" in name:
            state[name] = in_halves(state[name], kv_heads)
        elif "layernorm" in name:
            state[name] = state[name] - 1
    return transformers.MuseGlimmerForConditionalGeneration, config, {**file.ends(prefix), **state}


def mixture(file, root, bias=None, router="gate", shared="shared_experts"):
    """The experts of all layers, as a class has them in the module `root` of a layer."""
    parts = {"ffn_gate_inp": f"{root}.{router}", "ffn_gate_shexp": f"mlp.{shared}.gate_proj",
             "ffn_up_shexp": f"mlp.{shared}.up_proj", "ffn_down_shexp": f"mlp.{shared}.down_proj"}
    out = file.layers(parts)
    for i in range(file.get("block_count")):
        layer = f"model.layers.{i}.{root}"
        if f"blk.{i}.ffn_gate_exps.weight" not in file.tensors:
            continue
        gate, up = file.layer(i, "ffn_gate_exps.weight"), file.layer(i, "ffn_up_exps.weight")
        out[f"{layer}.experts.gate_up_proj"] = torch.cat([gate, up], dim=1)
        out[f"{layer}.experts.down_proj"] = file.layer(i, "ffn_down_exps.weight")
        if bias:
            name = "exp_probs_b" if f"blk.{i}.exp_probs_b" in file.tensors else "exp_probs_b.bias"
            out[f"{layer}.{bias}"] = file.layer(i, name)
    return out


NORM = {"ffn_norm": "post_attention_layernorm"}
QK_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}


def choice(file, experts="num_experts", shared="num_shared_experts", scale="routed_scaling_factor"):
    """The keys of experts that sigmoids choose behind dense layers. The parameters are the names of some of them."""
    width = file.get("expert_feed_forward_length")
    dense = file.get("leading_dense_block_count")
    kinds = ["dense" if i < dense else "sparse" for i in range(file.get("block_count"))]
    keys = {experts: file.get("expert_count"), shared: file.get("expert_shared_feed_forward_length") // width,
            scale: file.get("expert_weights_scale")}
    return dict(num_experts_per_tok=file.get("expert_used_count"), moe_intermediate_size=width,
                norm_topk_prob=file.get("expert_weights_norm"), first_k_dense_replace=dense, mlp_layer_types=kinds,
                n_group=file.get("expert_group_count", 1), topk_group=file.get("expert_group_used_count", 1), **keys)


def hunyuan_moe(file):
    return dict(num_experts=file.get("expert_count"), moe_topk=file.get("expert_used_count"))


def mellum(file):
    factor, original = file.get("rope.scaling.factor"), file.get("rope.scaling.original_context_length")
    base = file.get("rope.freq_base")
    yarn = {"rope_type": "yarn", "rope_theta": base, "factor": factor, "original_max_position_embeddings": original}
    plain = {"rope_type": "default", "rope_theta": file.get("rope.freq_base_swa", base)}
    return dict(rope_parameters={"full_attention": yarn, "sliding_attention": plain},
                num_local_experts=file.get("expert_count"), num_experts_per_tok=file.get("expert_used_count"),
                moe_intermediate_size=file.get("expert_feed_forward_length"), **windows(file))


def afmoe(file):
    keys = choice(file, scale="route_scale")
    return dict(keys, **windows(file), num_dense_layers=keys["first_k_dense_replace"], mup_enabled=True)


def part_of_rope(file):
    """The keys of RoPE if it rotates a part of a head."""
    part = file.get("rope.dimension_count") / file.get("attention.key_length")
    return dict(rope_parameters={"rope_type": "default", "rope_theta": file.get("rope.freq_base"),
                                 "partial_rotary_factor": part})


def glm4moe(file):
    width = file.get("expert_feed_forward_length")
    config = {**file.common(), **part_of_rope(file)}
    config.update(
        moe_intermediate_size=width,
        n_routed_experts=file.get("expert_count"),
        num_experts_per_tok=file.get("expert_used_count"),
        n_shared_experts=file.get("expert_shared_feed_forward_length") // width,
        routed_scaling_factor=file.get("expert_weights_scale"),
        n_group=file.get("expert_group_count", 1),
        topk_group=file.get("expert_group_used_count", 1),
        first_k_dense_replace=file.get("leading_dense_block_count"),
        norm_topk_prob=file.get("expert_weights_norm"),
        attention_bias=any(name.endswith("attn_q.bias") for name in file.tensors),
        use_qk_norm=any(name.endswith("attn_q_norm.weight") for name in file.tensors),
    )
    norm = {"post_attention_norm": "post_attention_layernorm"} if file.arch == "glm4moe" else NORM
    state = {**file.ends(), **file.layers({**ATTENTION, **GATED_FFN, **QK_NORMS, **norm}),
             **mixture(file, "mlp", "gate.e_score_correction_bias")}
    return transformers.Glm4MoeForCausalLM, transformers.Glm4MoeConfig(**config), state


def llama4(file):
    width, step, n = file.get("expert_feed_forward_length"), file.get("interleave_moe_layer_step"), file.get("block_count")
    config = file.common()
    config.update(
        intermediate_size=width, intermediate_size_mlp=file.get("feed_forward_length"),
        num_local_experts=file.get("expert_count"), num_experts_per_tok=file.get("expert_used_count"),
        interleave_moe_layer_step=step, use_qk_norm=file.get("expert_count") != 128,
        no_rope_layers=[int((i + 1) % 4 != 0) for i in range(n)], attention_chunk_size=file.get("attention.chunk_size"),
        attn_scale=file.get("attention.temperature_scale"), floor_scale=file.get("attention.temperature_length"))
    root = "feed_forward"
    parts = {**ATTENTION, **NORM, "ffn_gate_inp": f"{root}.router"}
    for to in ("gate", "up", "down"):
        parts[f"ffn_{to}"] = f"{root}.{to}_proj"
        parts[f"ffn_{to}_shexp"] = f"{root}.shared_expert.{to}_proj"
    state = {**file.ends(), **file.layers(parts)}
    for i in range(step - 1, n, step):
        gate, up = file.layer(i, "ffn_gate_exps.weight"), file.layer(i, "ffn_up_exps.weight")
        state[f"model.layers.{i}.{root}.experts.gate_up_proj"] = torch.cat([gate, up], dim=1).transpose(1, 2)
        state[f"model.layers.{i}.{root}.experts.down_proj"] = file.layer(i, "ffn_down_exps.weight").transpose(1, 2)
    return transformers.Llama4ForCausalLM, transformers.Llama4TextConfig(**config), state


def bailingmoe2(file):
    """Ling 2.0 has the arithmetic of GLM-4.5, with one matrix for Q, K and V."""
    kind, config, state = glm4moe(file)
    config.use_qk_norm = True
    q, kv = (n * config.head_dim for n in (config.num_attention_heads, config.num_key_value_heads))
    for i in range(config.num_hidden_layers):
        rows = file.layer(i, "attn_qkv.weight").split([q, kv, kv])
        state.update({f"model.layers.{i}.self_attn.{part}_proj.weight": w for part, w in zip("qkv", rows)})
    return kind, config, state


def lfm2moe(file):
    config = file.common()
    heads = config["num_key_value_heads"]
    config.update(
        num_key_value_heads=max(heads),
        norm_eps=config.pop("rms_norm_eps"),
        moe_intermediate_size=file.get("expert_feed_forward_length"),
        num_experts=file.get("expert_count"),
        num_experts_per_tok=file.get("expert_used_count"),
        num_dense_layers=file.get("leading_dense_block_count"),
        conv_L_cache=file.get("shortconv.l_cache"),
        layer_types=["full_attention" if n else "conv" for n in heads],
    )
    parts = {"attn_norm": "operator_norm", "ffn_norm": "ffn_norm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.out_proj",
             "attn_q_norm": "self_attn.q_layernorm", "attn_k_norm": "self_attn.k_layernorm",
             "ffn_gate": "feed_forward.w1", "ffn_up": "feed_forward.w3", "ffn_down": "feed_forward.w2",
             "shortconv.in_proj": "conv.in_proj", "shortconv.conv": "conv.conv", "shortconv.out_proj": "conv.out_proj"}
    state = {**file.ends(), **file.layers(parts), **mixture(file, "feed_forward", "expert_bias")}
    state["model.embedding_norm.weight"] = file.tensors["token_embd_norm.weight"]
    state = {name: w.unsqueeze(1) if name.endswith("conv.conv.weight") else w for name, w in state.items()}
    return transformers.Lfm2MoeForCausalLM, transformers.Lfm2MoeConfig(**config), state


def ernie4_5_moe(file):
    width = file.get("expert_feed_forward_length")
    config = transformers.Ernie4_5_MoeConfig(
        **file.common(),
        moe_intermediate_size=width,
        moe_num_experts=file.get("expert_count"),
        moe_k=file.get("expert_used_count"),
        moe_num_shared_experts=file.get("expert_shared_feed_forward_length") // width,
        moe_layer_start_index=file.get("leading_dense_block_count"),
    )
    bias = "gate.moe_statics.e_score_correction_bias"
    state = {**file.ends(), **file.layers({**ATTENTION, **GATED_FFN, **NORM}), **mixture(file, "mlp", bias)}
    state = {name: w.unsqueeze(0) if name.endswith(bias) else w for name, w in state.items()}
    return transformers.Ernie4_5_MoeForCausalLM, config, state


def minimax_m2(file):
    config = transformers.MiniMaxM2Config(**{**file.common(), **part_of_rope(file)},
                                          num_local_experts=file.get("expert_count"),
                                          num_experts_per_tok=file.get("expert_used_count"))
    state = {**file.ends(), **file.layers({**ATTENTION, **QK_NORMS, **NORM}),
             **mixture(file, "mlp", "e_score_correction_bias")}
    return transformers.MiniMaxM2ForCausalLM, config, state


def olmoe(file):
    config = transformers.OlmoeConfig(**file.common(), num_experts=file.get("expert_count"),
                                      num_experts_per_tok=file.get("expert_used_count"))
    state = {**file.ends(), **file.layers({**ATTENTION, **QK_NORMS, **NORM}), **mixture(file, "mlp")}
    return transformers.OlmoeForCausalLM, config, state


def granitemoe(file):
    config = transformers.GraniteMoeSharedConfig(
        **file.common(),
        num_local_experts=file.get("expert_count"),
        num_experts_per_tok=file.get("expert_used_count"),
        shared_intermediate_size=file.get("expert_shared_feed_forward_length", 0),
        embedding_multiplier=file.get("embedding_scale"),
        attention_multiplier=file.get("attention.scale"),
        residual_multiplier=file.get("residual_scale"),
        logits_scaling=file.get("logit_scale"),
    )
    state = {**file.ends(), **file.layers({**ATTENTION, **NORM}),
             **mixture(file, "block_sparse_moe", router="router")}
    state = {name: w for name, w in state.items() if "shared_experts" not in name}
    for i in range(config.num_hidden_layers):
        for part, n in (("q", config.num_attention_heads), ("k", config.num_key_value_heads)):
            name = f"model.layers.{i}.self_attn.{part}_proj.weight"
            state[name] = in_halves(state[name], n)
        shared = [file.layer(i, f"ffn_{part}_shexp.weight") for part in ("gate", "up", "down")]
        state[f"model.layers.{i}.shared_mlp.input_linear.weight"] = torch.cat(shared[:2])
        state[f"model.layers.{i}.shared_mlp.output_linear.weight"] = shared[2]
    return transformers.GraniteMoeSharedForCausalLM, config, state


def mamba2(file, i, prefix):
    """The tensors of a Mamba-2 layer."""
    parts = {"ssm_in.weight": "in_proj.weight", "ssm_conv1d.bias": "conv1d.bias", "ssm_dt.bias": "dt_bias",
             "ssm_out.weight": "out_proj.weight"}
    state = {prefix + to: file.layer(i, name) for name, to in parts.items()}
    state[prefix + "conv1d.weight"] = file.layer(i, "ssm_conv1d.weight").unsqueeze(1)
    state[prefix + "A_log"] = (-file.layer(i, "ssm_a")).log().flatten()
    state[prefix + "D"] = file.layer(i, "ssm_d").flatten()
    state[prefix + "norm.weight"] = file.layer(i, "ssm_norm.weight").flatten()
    return state


def granitehybrid(file):
    keys = file.common()
    kv_heads = keys["num_key_value_heads"]
    recurrent = [n == 0 for n in kv_heads]
    n_experts = file.get("expert_count", 0)
    keys.update(
        num_key_value_heads=max(kv_heads),
        layer_types=["linear_attention" if r else "full_attention" for r in recurrent],
        position_embedding_type="rope" if file.get("rope.scaling.finetuned", True) else None,
        embedding_multiplier=file.get("embedding_scale"),
        attention_multiplier=file.get("attention.scale"),
        residual_multiplier=file.get("residual_scale"),
        logits_scaling=file.get("logit_scale"),
        num_local_experts=n_experts,
        num_experts_per_tok=file.get("expert_used_count", 0),
        shared_intermediate_size=file.get("expert_shared_feed_forward_length", file.get("feed_forward_length")),
        mamba_n_heads=file.get("ssm.time_step_rank"),
        mamba_n_groups=file.get("ssm.group_count"),
        mamba_d_state=file.get("ssm.state_size"),
        mamba_d_conv=file.get("ssm.conv_kernel"),
        mamba_expand=file.get("ssm.inner_size") // file.get("embedding_length"),
    )
    config = transformers.GraniteMoeHybridConfig(**keys)
    state = file.layers({**ATTENTION, "ffn_norm": "post_attention_layernorm"})
    for name in state:
        if "q_proj" in name:
            state[name] = in_halves(state[name], config.num_attention_heads)
        elif "k_proj" in name:
            state[name] = in_halves(state[name], config.num_key_value_heads)
    for i, r in enumerate(recurrent):
        prefix = f"model.layers.{i}."
        shared, moe = "_shexp" if n_experts else "", prefix + "block_sparse_moe."
        if r:
            state.update(mamba2(file, i, prefix + "mamba."))
        both = [file.layer(i, f"ffn_{part}{shared}.weight") for part in ("gate", "up")]
        state[prefix + "shared_mlp.input_linear.weight"] = torch.cat(both)
        state[prefix + "shared_mlp.output_linear.weight"] = file.layer(i, f"ffn_down{shared}.weight")
        if n_experts:
            both = [file.layer(i, f"ffn_{part}_exps.weight") for part in ("gate", "up")]
            state[moe + "router.weight"] = file.layer(i, "ffn_gate_inp.weight")
            state[moe + "experts.gate_up_proj"] = torch.cat(both, dim=1)
            state[moe + "experts.down_proj"] = file.layer(i, "ffn_down_exps.weight")
    return transformers.GraniteMoeHybridForCausalLM, config, {**file.ends(), **state}


def nemotron_h(file):
    keys = file.common()
    moe = file.arch == "nemotron_h_moe"
    widths = file.get("feed_forward_length")
    types = ["linear_attention" if kv == 0 and not ffn else "full_attention" if kv else "moe" if moe else "mlp"
             for kv, ffn in zip(keys["num_key_value_heads"], widths)]
    del keys["num_hidden_layers"], keys["rope_parameters"]
    keys.update(
        num_key_value_heads=max(keys["num_key_value_heads"]),
        intermediate_size=max(widths),
        layers_block_type=types,
        layer_norm_epsilon=keys.pop("rms_norm_eps"),
        ssm_state_size=file.get("ssm.state_size"),
        mamba_num_heads=file.get("ssm.time_step_rank"),
        mamba_head_dim=file.get("ssm.inner_size") // file.get("ssm.time_step_rank"),
        n_groups=file.get("ssm.group_count"),
        conv_kernel=file.get("ssm.conv_kernel"),
        time_step_min=1e-30,  # this class takes it for a limit of dt, other programs do not
    )
    parts = {"attn_norm": "norm", "attn_q": "mixer.q_proj", "attn_k": "mixer.k_proj", "attn_v": "mixer.v_proj",
             "attn_output": "mixer.o_proj", "ffn_up": "mixer.up_proj", "ffn_down": "mixer.down_proj",
             "ffn_gate_inp": "mixer.gate", "ffn_up_shexp": "mixer.shared_experts.up_proj",
             "ffn_down_shexp": "mixer.shared_experts.down_proj"}
    state = file.layers(parts)
    for i, kind in enumerate(types):
        prefix = f"model.layers.{i}.mixer."
        if kind == "linear_attention":
            state.update(mamba2(file, i, prefix))
        elif kind == "moe":
            state[prefix + "experts.up_proj"] = file.layer(i, "ffn_up_exps.weight")
            state[prefix + "experts.down_proj"] = file.layer(i, "ffn_down_exps.weight")
            state[prefix + "gate.e_score_correction_bias"] = file.layer(i, "exp_probs_b.bias")
    if moe:
        keys.update(
            n_routed_experts=file.get("expert_count"),
            num_experts_per_tok=file.get("expert_used_count"),
            moe_intermediate_size=file.get("expert_feed_forward_length"),
            moe_shared_expert_intermediate_size=file.get("expert_shared_feed_forward_length"),
        )
    ends = {"token_embd.weight": "model.embeddings.weight", "output_norm.weight": "model.norm_f.weight",
            "output.weight": "lm_head.weight"}
    state.update({to: file.tensors[name] for name, to in ends.items() if name in file.tensors})
    return transformers.NemotronHForCausalLM, transformers.NemotronHConfig(**keys), state


TINY_VISION = dict(num_hidden_layers=1, hidden_size=16, intermediate_size=16, num_attention_heads=1)
def with_vision(kind, sections, parts, experts=False):
    """The text model of a model with images. sections: of RoPE, for heads of 16 elements."""
    def family(file):
        text = file.common()
        if experts:
            text.update(num_experts=file.get("expert_count"), num_experts_per_tok=file.get("expert_used_count"),
                        moe_intermediate_size=file.get("expert_feed_forward_length"))
        text["rope_parameters"]["mrope_section"] = sections
        config = getattr(transformers, kind + "Config")(text_config=text, vision_config=TINY_VISION,
                                                        tie_word_embeddings=text["tie_word_embeddings"])
        prefix = "model.language_model."
        feed = {} if experts else GATED_FFN
        state = file.layers({**ATTENTION, **feed, "ffn_norm": "post_attention_layernorm", **parts}, prefix + "layers.")
        if experts:
            state.update({prefix + name.removeprefix("model."): w for name, w in mixture(file, "mlp").items()})
        return getattr(transformers, kind + "ForConditionalGeneration"), config, {**file.ends(prefix), **state}
    return family


BEHIND = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm", **QK_NORMS}
HUNYUAN = {"ffn_norm": "post_attention_layernorm", "attn_q_norm": "self_attn.query_layernorm",
           "attn_k_norm": "self_attn.key_layernorm"}
FAMILIES = {
    "llama": like_llama("Llama", halves=True),
    "qwen2vl": with_vision("Qwen2_5_VL", [2, 3, 3], {}),
    "qwen3vl": with_vision("Qwen3VL", [4, 2, 2], QK_NORMS),
    "qwen3vlmoe": with_vision("Qwen3VLMoe", [4, 2, 2], QK_NORMS, experts=True),
    "internlm2": like_llama("Llama", halves=True),
    "exaone": like_llama("Llama"),
    "minicpm": like_llama("Granite", halves=True, keys=granite),
    "maincoder": like_llama("HunYuanDenseV1", HUNYUAN, halves=True),
    "hy_v3": like_llama("HYV3", {**NORM, **QK_NORMS}, keys=lambda file: choice(file, scale="router_scaling_factor"),
                        more=lambda file: mixture(file, "mlp", "e_score_correction_bias")),
    "hunyuan-moe": like_llama("HunYuanMoEV1", HUNYUAN, keys=hunyuan_moe,
                              more=lambda file: mixture(file, "mlp", router="gate.wg", shared="shared_mlp")),
    "dots1": like_llama("Dots1", {**NORM, **QK_NORMS}, keys=lambda file: choice(file, "n_routed_experts", "n_shared_experts"),
                        more=lambda file: mixture(file, "mlp", "gate.e_score_correction_bias")),
    "mellum": like_llama("Mellum", {**NORM, **QK_NORMS}, keys=mellum, more=lambda file: mixture(file, "mlp")),
    "exaone-moe": like_llama("ExaoneMoe", {**NORM, **QK_NORMS}, keys=lambda file: {**choice(file), **windows(file)},
                             more=lambda file: mixture(file, "mlp", "gate.e_score_correction_bias")),
    "afmoe": like_llama("Afmoe", {**QK_NORMS, "attn_gate": "self_attn.gate_proj",
                                  "post_attention_norm": "post_attention_layernorm",
                                  "ffn_norm": "pre_mlp_layernorm", "post_ffw_norm": "post_mlp_layernorm"},
                        keys=afmoe, more=lambda file: mixture(file, "mlp", "expert_bias", router="router.gate")),
    "seed_oss": like_llama("SeedOss", {"post_attention_norm": "post_attention_layernorm"}),
    "ernie4_5": like_llama("Ernie4_5"),
    "exaone4": like_llama("Exaone4", BEHIND, keys=windows),
    "hunyuan-dense": like_llama("HunYuanDenseV1", HUNYUAN),
    "apertus": like_llama("Apertus", APERTUS, keys=apertus, more=xielu),
    "arcee": like_llama("Arcee", halves=True),
    "command-r": like_llama("Cohere", {}, keys=cohere),
    "cohere2": like_llama("Cohere2", {}, keys=lambda file: {**cohere(file), **windows(file)}),
    "gemma": like_llama("Gemma", minus_one=True),
    "muse-glimmer": muse_glimmer,
    "mistral4": mistral4,
    "glm4moe": glm4moe,
    "bailingmoe2": bailingmoe2,
    "llama4": llama4,
    "lfm2moe": lfm2moe,
    "ernie4_5-moe": ernie4_5_moe,
    "minimax-m2": minimax_m2,
    "olmoe": olmoe,
    "granitemoe": granitemoe,
    "granitehybrid": granitehybrid,
    "nemotron_h": nemotron_h,
    "nemotron_h_moe": nemotron_h,
}


def logits(path):
    file = File(path)
    kind, config, state = FAMILIES[file.arch](file)
    model = kind._from_config(config, attn_implementation="eager", dtype=torch.float64)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")  # the others have no float64
    if file.get("attention.kv_lora_rank"):  # a file has one eps for all norms, these classes 1e-6 for those of K and Q
        for module in model.modules():
            if hasattr(module, "variance_epsilon"):
                module.variance_epsilon = file.get("attention.layer_norm_rms_epsilon")
    missing, unexpected = model.load_state_dict(state, strict=False)
    model.tie_weights()
    missing = [n for n in missing if "vis" not in n and not (n == "lm_head.weight" and config.tie_word_embeddings)]
    if missing or unexpected:
        sys.exit(f"{path}: tensors missing: {missing}; not expected: {unexpected}")
    n_vocab = file.tensors["token_embd.weight"].shape[0]
    with torch.no_grad():
        return model.double().eval()(torch.tensor([tokens(n_vocab)]), use_cache=False).logits[0, -1]


for path in sys.argv[1:]:
    print(path, ", ".join(f"{v:.9g}" for v in logits(path)[::STEP].tolist()))

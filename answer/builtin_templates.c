// answer/builtin_templates.c: see answer/builtin_templates.h. Each template renders plain conversations in the format
// that its model family was trained on. If a family has no system message, that text begins the first user message.
#include "answer/builtin_templates.h"

#include <string.h>

#define EACH "{% for m in messages %}"
#define END_EACH "{% endfor %}"
#define ANSWER(text) "{% if add_generation_prompt %}{{ '" text "' }}{% endif %}"
#define BOS "{{ bos_token }}"
// A loop over the messages, with the text of a message for each role; that text has m.content.
#define ROLES(system, user, assistant)                                                                                 \
    EACH "{% if m.role == 'system' %}" system "{% elif m.role == 'user' %}" user "{% else %}" assistant                \
         "{% endif %}" END_EACH
// Sets `system` to the text of the system message, or '', and `rest` to the other messages.
#define SPLIT_SYSTEM                                                                                                   \
    "{% if messages and messages[0].role == 'system' %}{% set system = messages[0].content %}"                         \
    "{% set rest = messages[1:] %}{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}"
// Common to Mistral's templates: a system message is part of the user turn that follows it.
#define MISTRAL(begin, end, answer)                                                                                    \
    BOS "{% set ns = namespace(inside=false) %}" EACH "{% if m.role == 'assistant' %}" answer                          \
        "{{ eos_token }}{% set ns.inside = false %}"                                                                   \
        "{% else %}{% if not ns.inside %}" begin "{% set ns.inside = true %}{% endif %}"                               \
        "{{ m.content + ('\n\n' if m.role == 'system' else '" end "') }}{% endif %}" END_EACH
#define MISTRAL_V7(space)                                                                                              \
    BOS ROLES("[SYSTEM_PROMPT]" space "{{ m.content }}[/SYSTEM_PROMPT]", "[INST]" space "{{ m.content }}[/INST]",      \
              space "{{ m.content + eos_token }}")
#define COMMAND_R(role) "<|START_OF_TURN_TOKEN|><|" role "_TOKEN|>"
#define COMMAND_R_TURN(role) COMMAND_R(role) "{{ m.content.strip() }}<|END_OF_TURN_TOKEN|>"

static const struct {
    const char *name, *source;
} builtin[] = {
    {"chatml", EACH
     "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}" END_EACH ANSWER("<|im_start|>assistant\n")},
    // chatml with tools; calls have the format of Hermes and Qwen (answer/call_format.c)
    {"hermes", SPLIT_SYSTEM
     "{% if system or tools %}{{ '<|im_start|>system\n' + system }}"
     "{% if tools %}{{ ('\n\n' if system else '') + 'You may call these functions:\n<tools>\n' }}"
     "{% for t in tools %}{{ t | tojson + '\n' }}{% endfor %}"
     "{{ '</tools>\nWrite a call as\n<tool_call>\n{\"name\": NAME, \"arguments\": {...}}\n</tool_call>' }}{% endif %}"
     "{{ '<|im_end|>\n' }}{% endif %}"
     "{% for m in rest %}{% set role = 'user' if m.role == 'tool' else m.role %}{{ '<|im_start|>' + role + '\n' }}"
     "{% if m.role == 'tool' %}{{ '<tool_response>\n' + m.content + '\n</tool_response>' }}{% else %}{{ m.content }}"
     "{% for c in m.tool_calls or [] %}{% set f = c.function or c %}{{ '\n' if m.content or not loop.first else '' }}"
     "{{ '<tool_call>\n{\"name\": \"' + f.name + '\", \"arguments\": ' }}"
     "{{ (f.arguments if f.arguments is string else f.arguments | tojson) + '}\n</tool_call>' }}{% endfor %}{% endif %}"
     "{{ '<|im_end|>\n' }}" END_EACH ANSWER("<|im_start|>assistant\n")},
    {"llama2",
     SPLIT_SYSTEM "{% if system %}{% set system = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' %}{% endif %}"
                  "{% for m in rest %}{% if m.role == 'user' %}"
                  "{{ bos_token + '[INST] ' + (system if loop.first else '') + m.content.strip() + ' [/INST]' }}"
                  "{% else %}{{ ' ' + m.content.strip() + ' ' + eos_token }}{% endif %}" END_EACH},
    {"llama3", BOS EACH
     "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content.strip() + '<|eot_id|>' }}" END_EACH
         ANSWER("<|start_header_id|>assistant<|end_header_id|>\n\n")},
    {"llama4", BOS EACH
     "{{ '<|header_start|>' + m.role + '<|header_end|>\n\n' + m.content.strip() + '<|eot|>' }}" END_EACH ANSWER(
         "<|header_start|>assistant<|header_end|>\n\n")},
    {"mistral-v1", MISTRAL("{{ ' [INST] ' }}", " [/INST]", "{{ ' ' + m.content }}")},
    {"mistral-v3", MISTRAL("{{ '[INST] ' }}", "[/INST]", "{{ ' ' + m.content.strip() }}")},
    {"mistral-v3-tekken", MISTRAL("[INST]", "[/INST]", "{{ m.content }}")},
    {"mistral-v7", MISTRAL_V7("{{ ' ' }}")},
    {"mistral-v7-tekken", MISTRAL_V7("")},
    {"gemma", BOS SPLIT_SYSTEM
     "{% for m in rest %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}"
     "{{ (system + '\n\n' if system and loop.first else '') + m.content.strip() + '<end_of_turn>\n' }}" END_EACH ANSWER(
         "<start_of_turn>model\n")},
    {"phi3", EACH "{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}" END_EACH ANSWER("<|assistant|>\n")},
    {"phi4", EACH "{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content + '<|im_end|>' }}" END_EACH ANSWER(
                 "<|im_start|>assistant<|im_sep|>")},
    {"zephyr", EACH "{{ '<|' + m.role + '|>\n' + m.content + eos_token + '\n' }}" END_EACH ANSWER("<|assistant|>\n")},
    {"vicuna", BOS ROLES("{{ m.content + '\n\n' }}", "{{ 'USER: ' + m.content + '\n' }}",
                         "{{ 'ASSISTANT: ' + m.content + eos_token + '\n' }}") ANSWER("ASSISTANT:")},
    // llama.cpp's names: deepseek is the Coder, deepseek2 the LLM and V2, deepseek3 V3
    {"deepseek", BOS ROLES("{{ m.content }}", "{{ '### Instruction:\n' + m.content + '\n' }}",
                           "{{ '### Response:\n' + m.content + '\n<|EOT|>\n' }}") ANSWER("### Response:\n")},
    {"deepseek2", BOS ROLES("{{ m.content + '\n\n' }}", "{{ 'User: ' + m.content + '\n\n' }}",
                            "{{ 'Assistant: ' + m.content + eos_token }}") ANSWER("Assistant:")},
    {"deepseek3", BOS ROLES("{{ m.content + '\n\n' }}", "{{ '<｜User｜>' + m.content }}",
                            "{{ '<｜Assistant｜>' + m.content + eos_token }}") ANSWER("<｜Assistant｜>")},
    {"command-r", BOS ROLES(COMMAND_R_TURN("SYSTEM"), COMMAND_R_TURN("USER"), COMMAND_R_TURN("CHATBOT"))
                      ANSWER(COMMAND_R("CHATBOT"))},
    {"granite",
     EACH "{{ '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content + '<|end_of_text|>\n' }}" END_EACH ANSWER(
         "<|start_of_role|>assistant<|end_of_role|>")},
    {"olmo2", BOS ROLES("{{ '<|system|>\n' + m.content + '\n' }}", "{{ '<|user|>\n' + m.content + '\n' }}",
                        "{{ '<|assistant|>\n' + m.content + eos_token + '\n' }}") ANSWER("<|assistant|>\n")},
    {"chatglm4", "[gMASK]<sop>" EACH "{{ '<|' + m.role + '|>\n' + m.content }}" END_EACH ANSWER("<|assistant|>")},
    {"alpaca", ROLES("{{ m.content + '\n\n' }}", "{{ '### Instruction:\n' + m.content + '\n\n' }}",
                     "{{ '### Response:\n' + m.content + eos_token + '\n\n' }}") ANSWER("### Response:\n")},
};

const char *builtin_templates_find(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(builtin); i++)
        if (strcmp(builtin[i].name, name) == 0) return builtin[i].source;
    return NULL;
}

void builtin_templates_names(Buf *out) {
    for (size_t i = 0; i < ARRAY_LEN(builtin); i++) buf_printf(out, "%s%s", i ? ", " : "", builtin[i].name);
}

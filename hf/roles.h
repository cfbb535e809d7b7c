// hf/roles.h: reads special tokens, the tokens that end an answer, and chat templates into GGUF's keys.
#ifndef QUILL_HF_ROLES_H
#define QUILL_HF_ROLES_H

#include "hf/model.h"

// Called after hf_read_tokenizer. The arguments are tokenizer_config.json and generation_config.json; NULL: the file
// does not exist. m->config and m->file may be NULL, too. QUILL_MODEL: a chat template that is no text.
Status hf_read_roles(const HfModel *m, const json_t *tokenizer_config, const json_t *generation);

#endif

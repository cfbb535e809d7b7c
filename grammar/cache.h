// grammar/cache.h: the grammars of a model that is open: compiled when they are first asked for, shared by answers.
#ifndef QUILL_GRAMMAR_CACHE_H
#define QUILL_GRAMMAR_CACHE_H

#include "grammar/constraint.h"

typedef struct GrammarCache GrammarCache; // NULL: nothing was asked for yet

// A constraint on one answer of a model with this tokenizer and n_ids logits. *cache is made at the first call; the
// tokenizer must outlive it. Errors as grammar_compile's. The caller gives the constraint back to grammar_cache_drop.
Status grammar_cache_get(GrammarCache **cache, const Tokenizer *t, int n_ids, GrammarSource source, bool fresh,
                         Constraint **out);
void grammar_cache_drop(GrammarCache *cache, Constraint *c); // NULL is fine
void grammar_cache_free(GrammarCache *cache);

#endif

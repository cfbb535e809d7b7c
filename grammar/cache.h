// grammar/cache.h: caches the compiled grammars of an open model, which all answers share.
#ifndef QUILL_GRAMMAR_CACHE_H
#define QUILL_GRAMMAR_CACHE_H

#include "grammar/constraint.h"

typedef struct GrammarCache GrammarCache;

// Returns a constraint for one answer of a model with this tokenizer and n_ids logits. Creates *cache if it is NULL;
// the tokenizer must outlive the cache. Errors: those of grammar_compile. The caller returns the constraint with
// grammar_cache_drop.
Status grammar_cache_get(GrammarCache **cache, const Tokenizer *t, int n_ids, GrammarSource source, bool fresh,
                         Constraint **out);
void grammar_cache_drop(GrammarCache *cache, Constraint *c); // NULL is fine
void grammar_cache_free(GrammarCache *cache);

#endif

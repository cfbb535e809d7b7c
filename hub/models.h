// hub/models.h: `quill pull`, `quill models`, and the model that -hf or a name after -m selects.
#ifndef QUILL_HUB_MODELS_H
#define QUILL_HUB_MODELS_H

#include "cli/options.h"

// Sets o->engine.model to the path of the named model: -hf asks the Hub, and -m with a name that is not a file searches
// the cache. So does the draft model in o->engine.speculate. Called before every mode. Errors: as hub_get and hub_find
// (hub/hub.h).
Status models_resolve(Options *o);
// pull NAME: fetches the model into the cache and prints its path to stdout.
Status models_pull(const Options *o);
// models: lists the models in the cache; models rm NAME...: removes models, after a question. QUILL_USAGE; QUILL_MODEL:
// unknown name; QUILL_IO.
Status models_run(const Options *o);

#endif

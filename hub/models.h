// hub/models.h: `quill pull`, `quill models`, and the model that -hf or a name behind -m means.
#ifndef QUILL_HUB_MODELS_H
#define QUILL_HUB_MODELS_H

#include "cli/options.h"

// Puts the path of the model that was named into o->engine.model: -hf by way of the Hub, a -m that is no file by way of
// the cache. The modes that open a model come behind it. Errors: as hub_get and hub_find (hub/hub.h).
Status models_resolve(Options *o);
// pull NAME: into the cache; its path on stdout.
Status models_pull(const Options *o);
// models: what the cache has; models rm NAME...: removes it, after a question. QUILL_USAGE; QUILL_MODEL: no such name;
// QUILL_IO.
Status models_run(const Options *o);

#endif

// cli/outputs.c: see cli/outputs.h.
#include "cli/outputs.h"

#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/tempfile.h"

// QUILL_USAGE if `other` is the file `path`. NULL: no file.
static Status differ(const char *option, const char *path, const char *other) {
    struct stat a, b;
    if (!other || other == path) return OK;
    bool there = stat(path, &a) == 0;
    if (there && !S_ISREG(a.st_mode)) return OK; // /dev/null may have everything
    if (there ? stat(other, &b) != 0 || !fd_same_file(&a, &b) : strcmp(path, other) != 0) return OK;
    return status_error(QUILL_USAGE, "%s %.500s: a file other than %.500s expected, found the same", option, path,
                        other);
}

Status outputs_check(const Options *o, const char *option, const char *path) {
    if (strcmp(path, "-") == 0)
        return status_error(QUILL_USAGE, "%s -: the name of a file expected, found -; ./- names a file of this name",
                            option);
    if (!o->engine.dry_run) TRY(tempfile_check(path));
    const char *const others[] = {o->engine.model, o->engine.tokenizer, o->look.kl,          o->look.kl_base,
                                  o->kv.in,        o->kv.out,           o->look.imatrix_out, o->quantize.imatrix};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) TRY(differ(option, path, others[i]));
    for (int i = 0; i < o->prompt.n_parts; i++) TRY(differ(option, path, o->prompt.parts[i].file));
    for (int i = 0; i < o->answer.n_chunks; i++) TRY(differ(option, path, o->answer.chunks[i]));
    for (int i = 1; i < o->kv.n_words; i++) TRY(differ(option, path, o->kv.words[i]));
    return OK;
}

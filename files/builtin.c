// files/builtin.c: see files/builtin.h. The Makefile defines QUILL_BUILTIN, the model's path, and QUILL_BUILTIN_NAME.
#include "files/builtin.h"

#ifdef QUILL_BUILTIN

// The assembler includes the file: compiling a C array of its bytes would take minutes. If pages are larger than 4096
// bytes, the first and the last page also hold other constants, which is harmless.
__asm__(".pushsection .rodata.builtin, \"a\", %progbits\n"
        ".balign 4096\n"
        ".globl builtin_first, builtin_end\n"
        ".hidden builtin_first, builtin_end\n"
        "builtin_first:\n"
        ".incbin \"" QUILL_BUILTIN "\"\n"
        "builtin_end:\n"
        ".popsection\n");
extern __attribute__((visibility("hidden"))) const uint8_t builtin_first[], builtin_end[];

bool builtin_there(void) { return true; }
const char *builtin_name(void) { return QUILL_BUILTIN_NAME " (built into the binary)"; }

Status builtin_open(Gguf **out) {
    size_t n = (size_t)((uintptr_t)builtin_end - (uintptr_t)builtin_first); // C does not know that it is one object
    return gguf_open_memory(builtin_name(), builtin_first, n, out);
}

#else

bool builtin_there(void) { return false; }
const char *builtin_name(void) { return "none"; }

Status builtin_open(Gguf **out) {
    *out = NULL;
    return status_error(QUILL_MODEL, "-m " BUILTIN_WORD ": a model in this binary expected, found none (it was built "
                                     "with NO_MODEL=1); name a file with -m FILE");
}

#endif

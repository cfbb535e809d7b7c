// quantize/plan.h: which tensor of a model file becomes which type: a type's name for all matrices, the mixes, what a
// user asked for, and what rows allow.
#ifndef QUILL_PLAN_H
#define QUILL_PLAN_H

#include "files/gguf.h"

typedef struct {
    const GgufTensor *from;
    bool matrix;    // its rows are products' weights; other tensors stay as they are, or become F32 from 16 bits
    int type;       // TYPE_ that it becomes
    int wished;     // the type that was meant for it: another one where its rows are not whole blocks of that
    size_t n_bytes; // then
} PlanTensor;

typedef struct {
    const char *name;   // "Q4_K_M", as the table has it
    int file_type;      // general.file_type; -1: none has a number
    PlanTensor *tensor; // (n) in the file's order, owned
    int n;
    size_t n_weights, n_bytes; // of all tensors
    bool again;                // a matrix is quantised already
} QuantizePlan;

// type: the name of a type or of a mix. overrides: NULL, or "PATTERN=TYPE,PATTERN=TYPE,...": the first pattern that
// matches a matrix's name (as a shell's, * and ?) decides; one that matches none is an error. QUILL_USAGE, QUILL_MODEL.
Status plan_make(const Gguf *g, const char *type, const char *overrides, QuantizePlan *out);
void plan_free(QuantizePlan *p);
const char *plan_names(void); // the types and mixes, for messages

#endif

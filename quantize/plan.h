// quantize/plan.h: decides the new type of each tensor of a model file: from one type for all matrices or a mix, the
// user's overrides, and the lengths of rows.
#ifndef QUILL_PLAN_H
#define QUILL_PLAN_H

#include "files/gguf.h"

typedef struct {
    const GgufTensor *from;
    bool matrix;    // a matrix of products; other tensors keep their type, or become F32 if they have 16 bits
    int type;       // the new TYPE_
    int wished;     // the type before its rows were considered; `type` differs if they are not whole blocks of it
    size_t n_bytes; // size in the new type
} PlanTensor;

typedef struct {
    const char *name;   // name of the type or mix: "Q4_K_M"
    int file_type;      // general.file_type; -1: there is no number for it
    PlanTensor *tensor; // (n) in the file's order, owned
    int n;
    size_t n_weights, n_bytes; // sums over all tensors, in the new types
    size_t n_from;             // bytes of the same tensors in the source
    bool again;                // a matrix of the source is quantised already
} QuantizePlan;

// type: the name of a type or of a mix. overrides: NULL, or "PATTERN=TYPE,PATTERN=TYPE,...": a matrix gets the type of
// the first pattern that matches its name (* and ? as in a shell). A pattern that matches no matrix is an error.
// QUILL_USAGE, QUILL_MODEL.
Status plan_make(const Gguf *g, const char *type, const char *overrides, QuantizePlan *out);
void plan_free(QuantizePlan *p);
const char *plan_type_list(void); // the types and mixes: "F32, F16, ..., Q4_K_M, ..."

#endif

// tokens/normalize.h: text in one of Unicode's normal forms (Unicode Standard Annex 15), by utf8proc. Only tokenizer.c
// uses it.
#ifndef QUILL_NORMALIZE_H
#define QUILL_NORMALIZE_H

#include "base/str.h"

typedef enum { NORMALIZE_NONE, NORMALIZE_NFC, NORMALIZE_NFD, NORMALIZE_NFKC, NORMALIZE_NFKD } NormalForm;

bool normalize_form(Str name, NormalForm *out); // "NFC"; false: no such form
size_t normalize_growth(NormalForm form);       // factor by which a text's bytes may grow
// Appends the text in that form. Bytes that are not UTF-8 stay as they are. A run of combining marks is sorted in parts
// of a thousand, since sorting takes quadratic time.
void normalize_append(Buf *out, NormalForm form, Str text);

#endif

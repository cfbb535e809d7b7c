// base/units.h: bytes and counts in a short readable form: decimal units, two or three digits.
#ifndef QUILL_UNITS_H
#define QUILL_UNITS_H

const char *units_bytes(double bytes, char out[24]); // "1.17 GB"; returns out
const char *units_count(double n, char out[24]);     // "1.10 B", "260 K"; returns out

#endif

// base/units.c: see base/units.h.
#include "base/units.h"

#include <stdio.h>

const char *units_bytes(double bytes, char out[24]) {
    const char *unit = bytes < 1e3 ? "B" : bytes < 1e6 ? "KB" : bytes < 1e9 ? "MB" : "GB";
    double scale = bytes < 1e3 ? 1 : bytes < 1e6 ? 1e3 : bytes < 1e9 ? 1e6 : 1e9;
    double value = bytes / scale;
    int digits = scale == 1 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
    snprintf(out, 24, "%.*f %s", digits, value, unit);
    return out;
}

const char *units_count(double n, char out[24]) {
    const char *unit = n < 1e3 ? "" : n < 1e6 ? " K" : n < 1e9 ? " M" : n < 1e12 ? " B" : " T";
    double value = n / (n < 1e3 ? 1 : n < 1e6 ? 1e3 : n < 1e9 ? 1e6 : n < 1e12 ? 1e9 : 1e12);
    snprintf(out, 24, "%.*f%s", n < 1e3 || value >= 100 ? 0 : value >= 10 ? 1 : 2, value, unit);
    return out;
}

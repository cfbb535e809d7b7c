// grammar/json_format.c: see grammar/json_format.h. Dates must exist in the calendar, with leap years (RFC 3339).
#include "grammar/json_format.h"

#include <string.h>

#define YEAR "([1-9]\\d{3}|0[1-9]\\d\\d|00[1-9]\\d|000[1-9])"
#define LEAP "(\\d\\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                                           \
    "(" YEAR                                                                                                           \
    "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))|" LEAP         \
    "-02-29)"
#define TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,20}[A-Za-z0-9])?"
#define PATH "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define HEX4 "[0-9A-Fa-f]{1,4}"
#define GROUPS(n) "(" HEX4 "(:" HEX4 "){0," #n "})?" // n + 1 groups at most
#define BEHIND(n, more) "|" HEX4 "(:" HEX4 "){" #n "}::" GROUPS(more)
#define IPV6                                                                                                           \
    "((" HEX4 ":){7}" HEX4 "|::" GROUPS(6) BEHIND(0, 5) BEHIND(1, 4) BEHIND(2, 3) BEHIND(3, 2) BEHIND(4, 1)            \
        BEHIND(5, 0) "|" HEX4 "(:" HEX4 "){6}::)"
#define COUNT "\\d{1,4}"
#define DAYS "(" COUNT "Y(" COUNT "M(" COUNT "D)?)?|" COUNT "M(" COUNT "D)?|" COUNT "D)"
#define HOURS "T(" COUNT "H(" COUNT "M(" COUNT "S)?)?|" COUNT "M(" COUNT "S)?|" COUNT "S)"

static const struct {
    const char *name, *regex;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"email", "[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@" LABEL "(\\." LABEL ")+"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"ipv4", BYTE "(\\." BYTE "){3}"},
    {"ipv6", IPV6},
    {"hostname", LABEL "(\\." LABEL "){0,9}"},
    {"duration", "P(" DAYS "(" HOURS ")?|" HOURS "|" COUNT "W)"},
    {"json-pointer", "(/([^/~]|~[01])*)*"},
    {"uri", "[a-z][a-z0-9+.-]*://" LABEL "(\\." LABEL ")*(:[1-9]\\d{0,3})?(/" PATH "*)*(\\?(" PATH "|[/?])*)?(#(" PATH
            "|[/?])*)?"},
};

const char *json_format_regex(const char *format) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, format) == 0) return formats[i].regex;
    return NULL;
}

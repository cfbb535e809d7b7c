// base/base.h: includes what nearly every file needs: errors, sizes, memory, strings, files, the clock.
#ifndef QUILL_BASE_H
#define QUILL_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/dirs.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "base/pages.h"
#include "base/sizes.h"
#include "base/status.h"
#include "base/str.h"
#include "base/units.h"
#include "base/utf8.h"

#endif

// base/memory.c: see base/memory.h.
#define _GNU_SOURCE
#include "base/memory.h"

#include <stdint.h>
#include <sys/resource.h>

#include "base/cgroup.h"
#include "base/file.h"

size_t memory_available(void) {
    size_t system_kib = file_number("/proc/meminfo", "MemAvailable:");
    size_t available = system_kib == SIZE_MAX ? SIZE_MAX : system_kib * 1024;
    size_t left = cgroup_memory(CGROUP_PROC, CGROUP_MOUNT);
    return left < available ? left : available;
}

// VmHWM counts this program alone. ru_maxrss also counts what its process had in memory before it executed this
// program.
size_t memory_peak(void) {
    size_t kib = file_number("/proc/self/status", "VmHWM:");
    if (kib != SIZE_MAX) return kib * 1024;
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (size_t)u.ru_maxrss * 1024;
}

// base/cgroup.h: memory and processors that the control groups of this process allow: its own group and all above it,
// version 2 or 1 (cgroups(7); Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst).
//
// `proc` is the file that names the process's groups, `mount` the directory of the groups' files; tests pass others
// than the two below. In a container the process's own group may be mounted at `mount` under another name: a group that
// is not found below `mount` is assumed to be `mount` itself.
#ifndef QUILL_CGROUP_H
#define QUILL_CGROUP_H

#include <stddef.h>

#define CGROUP_PROC "/proc/self/cgroup"
#define CGROUP_MOUNT "/sys/fs/cgroup"

// Bytes that can still be allocated. Cached pages of files count as free, since the system drops them first. SIZE_MAX:
// no limit.
size_t cgroup_memory(const char *proc, const char *mount);
// Processors that the quota of CPU time allows, rounded up. INT_MAX: no quota.
int cgroup_cpus(const char *proc, const char *mount);

#endif

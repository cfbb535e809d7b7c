// cpu/tasks.h: cuts work into tasks for the thread pool.
#ifndef QUILL_CPU_TASKS_H
#define QUILL_CPU_TASKS_H

#include "kernels.h"

// The smallest number of multiply-adds of a task: for less work, waking another core takes longer than the work.
enum { TASK_WORK = 1 << 15 };

// The number of tasks into which `work` multiply-adds are divided; at most `most`.
int tasks_count(const Workspace *w, double work, int most);

// The part of w->panels that belongs to a thread.
static inline void *tasks_scratch(const Workspace *w, int thread) {
    return w->panels + (size_t)thread * w->panel_bytes;
}

// Runs step(arg, first, last, thread) on ranges of rows that cover [0, n_rows).
void tasks_over_rows(Workspace *w, int n_rows, double work_per_row, void (*step)(void *, int, int, int), void *arg);

#endif

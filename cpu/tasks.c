// cpu/tasks.c: see cpu/tasks.h.
#include "cpu/tasks.h"

int tasks_count(const Workspace *w, double work, int most) {
    int by_work = work / TASK_WORK > 1e6 ? 1000000 : (int)(work / TASK_WORK);
    return int_max(1, int_min(int_min(by_work, most), 8 * threads_count(w->pool)));
}

// Runs a step on ranges of rows: step(arg, first, last, thread).
typedef struct {
    void (*step)(void *arg, int first, int last, int thread);
    void *arg;
    int n_rows, n_tasks;
} RowTasks;

static void row_task(void *arg, int task, int thread) {
    RowTasks *r = arg;
    int first = (int)((int64_t)r->n_rows * task / r->n_tasks),
        last = (int)((int64_t)r->n_rows * (task + 1) / r->n_tasks);
    r->step(r->arg, first, last, thread);
}

void tasks_over_rows(Workspace *w, int n_rows, double work_per_row, void (*step)(void *, int, int, int), void *arg) {
    RowTasks r = {step, arg, n_rows, tasks_count(w, work_per_row * n_rows, n_rows)};
    threads_run(w->pool, row_task, &r, r.n_tasks);
}

// base/threads.h: a pool of workers that run one function over many tasks.
//
//   ThreadPool *pool = threads_new(0);                 // one worker a physical core that this process may use
//   threads_run(pool, work, &args, n_tasks);           // work(&args, task, thread) for task in [0, n_tasks)
//
// The caller is worker 0 and returns when all tasks are done. Tasks are handed out one at a time, so make them large
// enough to matter and many enough to balance. Waiting workers spin for a bounded time, then sleep. One caller at a
// time; work() must not call threads_run.
#ifndef QUILL_THREADS_H
#define QUILL_THREADS_H

typedef struct ThreadPool ThreadPool;
typedef void ThreadWork(void *arg, int task, int thread);

ThreadPool *threads_new(int n); // n <= 0: threads_default()
void threads_free(ThreadPool *p);
int threads_count(const ThreadPool *p);
int threads_default(void); // physical cores, within affinity and cgroup limits; at least 1
void threads_run(ThreadPool *p, ThreadWork *work, void *arg, int n_tasks);

#endif

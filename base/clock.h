// base/clock.h: the time that durations are measured with.
#ifndef QUILL_CLOCK_H
#define QUILL_CLOCK_H

double clock_now(void); // seconds, monotonic

#endif

// base/log_sum_exp.h: the normaliser of softmax over a vocabulary.
#ifndef QUILL_LOG_SUM_EXP_H
#define QUILL_LOG_SUM_EXP_H

// Returns log(sum(exp(x[i]))) of n values, within 1e-6; the same bits on every CPU. NaN counts as -inf. inf: a value is
// inf. -inf: all are -inf.
double log_sum_exp(const float *x, int n);

#endif

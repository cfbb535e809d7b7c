// cpu/vector_attend.h: the parts of attention by vectors: tiles of keys and values in f32, and the two ways to pass
// queries over them.
#ifndef QUILL_VECTOR_ATTEND_H
#define QUILL_VECTOR_ATTEND_H

#include "cpu/vector.h"
#include "cpu/vector_tile.h"

#define vector_attend VECTOR_NAME(attend)
#define vector_attend_many VECTOR_NAME(attend_many)
#define vector_attend_mass VECTOR_NAME(attend_mass)
#define vector_attend_with VECTOR_NAME(attend_with)
#define vector_attend_row VECTOR_NAME(attend_row)
#define vector_attend_load_tile VECTOR_NAME(load_tile)
#define vector_unseal_tile VECTOR_NAME(unseal_tile)

#define MASKED (-1e30f) // the score of a key that a query does not see

enum {
    KEYS = 96,      // keys of a tile; a multiple of NF on every instruction set
    KEYS_ROW = 32,  // keys of a tile in vector_attend_row: its rows stay in L1
    HEAD_PAD = 592, // the largest head_dim (SEAL_HEAD) rounded up to vectors, to NF and to blocks of 32
    GROUP = VL / 2, // queries that share a pass over the keys in vector_attend_row
    LANE_TILES = 4, // tiles of T queries that share a tile of keys in vector_attend_many
};

// T queries, their scores and their outputs. In vector_attend_many a lane is a query.
typedef struct {
    _Alignas(64) float queries[HEAD_PAD * T]; // (head_dim, T), scaled
    float out[HEAD_PAD * T];                  // (v_dim padded to NF, T)
    float scores[KEYS * T];                   // (key, T), then their exponentials
    float max[T], sum[T];
    float scale[T];         // of queries that are integers
    int slot[T], oldest[T]; // the newest and the oldest slot that a lane sees
    int first, last;        // range of the slots that at least one of them sees
} QueryLanes;

// The scratch of a task: tiles of keys and values are made once for all its queries.
typedef struct {
    QueryLanes lanes[LANE_TILES];
    int n_lanes;                              // number of lanes in use
    _Alignas(64) float tile[KEYS * HEAD_PAD]; // (key, head_dim) of K, then (key, v_dim) of V
    float scale[KEYS];                        // of keys that are integers
    float value_scale[HEAD_PAD];              // of values that are integers
    uint8_t room[SEAL_MOST];
} QueryTile;

// CpuKernels.attend_mass.
void vector_attend_mass(const AttendTask *t, float *mass);
// AttendKernel.run: one of the two below.
void vector_attend(const AttendTask *t);
// Many queries: lanes are queries; uses the inner loop of the matrix kernel. The order of sums depends only on a row's
// slot.
void vector_attend_many(const AttendTask *t);
// The products of vector_attend_many. add_scores and add_values are for the lanes that see any of slots
// [first, first + n); K or V of these slots is in s->tile, and zeros up to a multiple of NF.
typedef struct {
    void (*begin)(const AttendTask *t, QueryLanes *l); // after the queries were loaded; or NULL
    // Sets scores(key, lane) to the exponentials of the scores, less the largest score so far; updates max and sum, and
    // scales `out` accordingly. It may change K.
    void (*add_scores)(const AttendTask *t, QueryTile *s, int first, int n);
    // out(i, lane) += V(key, i) scores(key, lane); it may change V.
    void (*add_values)(const AttendTask *t, QueryTile *s, int first, int n);
} AttendProducts;
// vector_attend with other products.
void vector_attend_with(const AttendTask *t, const AttendProducts *products);
// Whether some of the queries see one of n slots from `first` on.
static inline bool lanes_see(const QueryLanes *l, int first, int n) { return first <= l->last && first + n > l->first; }
// A few queries: one row at a time; lanes are its heads and elements of keys.
void vector_attend_row(const AttendTask *t);

// Loads n keys of one plane as f32, HEAD_PAD apart, to s->tile; keys that no query sees, and those up to `padded`, are
// zero.
void vector_attend_load_tile(const AttendTask *t, QueryTile *s, bool value, int first, int n, int padded);
// Unpacks slots [first, first + n) of a sealed plane to f32, HEAD_PAD apart, in whole vectors. Slots of the rows' own
// group, which is not sealed yet, are copied from f32. room: SEAL_MOST bytes.
void vector_unseal_tile(const AttendTask *t, bool value, int first, int n, float *tile, uint8_t *room);

#endif

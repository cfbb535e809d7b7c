// cpu/gate.h: the gate of a feed-forward on a vector of elements.
#ifndef QUILL_CPU_GATE_H
#define QUILL_CPU_GATE_H

#include "cpu/simd.h"
#include "kernels.h"

// act(gate) * up; all activations are gate * sigmoid(of something).
INLINE vf gated(Activation act, vf gate, vf up) {
    const vf limit = vset(SWIGLU_LIMIT);
    if (act == ACT_SWIGLU_CLAMPED) {
        gate = vselect(gate > limit, limit, gate);
        up = vselect(up > limit, limit, vselect(up < -limit, -limit, up)) + 1.0f;
    }
    return gate / (vexp(-sigmoid_of(act, gate)) + 1.0f) * up;
}

#endif

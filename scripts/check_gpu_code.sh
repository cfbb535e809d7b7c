#!/bin/sh
# check_gpu_code.sh: what a compiler can tell of the GPU's kernels without a GPU.
#
#   check_gpu_code.sh                   launches go through LAUNCH alone
#   check_gpu_code.sh CUBIN PTXAS.LOG   also: no decode kernel spills registers, and its weights come 16 bytes at a time
#                                       (the latter where there is a cuobjdump: on PATH, in CUDA_HOME/bin, or $CUOBJDUMP)
set -eu
cd "$(dirname "$0")/.."

if grep -n '<<<' *.cu gpu/*.cuh tests/rig/*.cu; then
    echo "a launch outside of LAUNCH (gpu.h); the tests' host cannot read it" >&2
    exit 1
fi
[ $# -eq 2 ] || exit 0

awk '
    /Compiling entry function/ { split($0, part, "\047"); name = part[2] }
    /bytes spill stores/ && name ~ /gemv|skinny_gemm|attend|flash|probe|seal/ {
        n++
        if ($0 !~ /, 0 bytes spill stores, 0 bytes spill loads/) { print name ":" $0; bad = 1 }
    }
    END {
        if (n == 0) { print "no kernel found in the compiler'\''s report"; bad = 1 }
        else if (!bad) print n " kernels of decoding and attention: no register spilled"
        exit bad
    }' "$2"

cuobjdump=${CUOBJDUMP:-$(command -v cuobjdump || true)}
[ -n "$cuobjdump" ] || cuobjdump=$(ls "${CUDA_HOME:-/usr/local/cuda}/bin/cuobjdump" 2>/dev/null || true)
if [ -z "$cuobjdump" ]; then
    echo "skipped: the width of the loads needs cuobjdump, of the CUDA toolkit; \$CUOBJDUMP names one"
    exit 0
fi
"$cuobjdump" -sass "$1" | awk '
    /Function :/ { name = $3 }
    /LDG\.E[A-Z.]*\.128/ { wide[name]++ }
    name ~ /gemv|skinny_gemmI|attendILi[0-9]/ { seen[name] = 1 } # attend<-1> is for odd shapes, element by element
    END {
        for (name in seen) {
            n++
            if (!wide[name]) { print name ": no load of 16 bytes"; bad = 1 }
        }
        if (n == 0) { print "no kernel found in the machine code"; bad = 1 }
        else if (!bad) print n " kernels that read weights or keys: 16 bytes at a time"
        exit bad
    }'

#!/bin/sh
# check_gpu_code.sh: checks of the GPU's kernels that need no GPU.
#
#   check_gpu_code.sh                   all launches use the macro LAUNCH
#   check_gpu_code.sh CUBIN PTXAS.LOG SM90.LOG
#                                       also: no decode kernel spills registers; a kernel without __launch_bounds__ can be
#                                       launched with 1024 threads; gpu/flash_sm90.cu spills nothing and its products run
#                                       beside other work; and weights are loaded 16 bytes at a time (this needs
#                                       cuobjdump: on PATH, in CUDA_HOME/bin, or $CUOBJDUMP)
set -eu
cd "$(dirname "$0")/.."

if grep -n '<<<' *.cu gpu/*.cuh tests/rig/*.cu; then
    echo "a kernel launch without the macro LAUNCH (gpu.h), which the tests on the CPU need" >&2
    exit 1
fi
[ $# -eq 3 ] || exit 0

# A multiprocessor has 65536 registers. A launch that needs more for one block fails, which only a GPU would show.
unbound=$(sed -nE '/launch_bounds/!s/.*__global__ void ([A-Za-z0-9_]+)\(.*/\1/p' ./*.cu gpu/*.cuh)
awk -v unbound="$unbound" '
    BEGIN { split(unbound, names); for (i in names) prefix["_Z" length(names[i]) names[i]] = 1 }
    /Compiling entry function/ { split($0, part, "\047"); name = part[2] }
    /bytes spill stores/ && name ~ /gemv|skinny_gemm|attend|flash|probe|seal|delta|convolve/ {
        decode++
        if ($0 !~ /, 0 bytes spill stores, 0 bytes spill loads/) { print name ":" $0; bad = 1 }
    }
    / Used [0-9]+ registers/ {
        sub(/.* Used /, "")
        for (p in prefix)
            if (index(name, p) == 1) {
                free++
                if ($1 > 64) { print name ": " $1 " registers and no __launch_bounds__: 1024 threads would not start"; bad = 1 }
            }
    }
    END {
        if (decode == 0 || free == 0) { print "no kernel found in the compiler'\''s report"; bad = 1 }
        else if (!bad) {
            print decode " kernels of decoding and attention: no register spilled"
            print free " kernels without __launch_bounds__: at most 64 registers"
        }
        exit bad
    }' "$2"

awk '
    /bytes spill stores/ {
        n++
        if ($0 !~ /, 0 bytes spill stores, 0 bytes spill loads/) { print "flash_sm90:" $0; bad = 1 }
    }
    /wgmma.* serialized/ { print; bad = 1 }
    END {
        if (n == 0) { print "no kernel found in the compiler'\''s report of gpu/flash_sm90.cu"; bad = 1 }
        else if (!bad) print n " kernels for sm_90a: no register spilled, no product serialised"
        exit bad
    }' "$3"

cuobjdump=${CUOBJDUMP:-$(command -v cuobjdump || true)}
[ -n "$cuobjdump" ] || cuobjdump=$(ls "${CUDA_HOME:-/usr/local/cuda}/bin/cuobjdump" 2>/dev/null || true)
if [ -z "$cuobjdump" ]; then
    echo "skipped: checking the width of loads needs cuobjdump of the CUDA toolkit; \$CUOBJDUMP names one"
    exit 0
fi
"$cuobjdump" -sass "$1" | awk '
    /Function :/ { name = $3 }
    /LDG\.E[A-Z.]*\.128/ || /LDGSTS\.E[A-Z.]*\.128/ { wide[name]++ }
    # attend<-1> is for odd shapes, element by element; flash<.., true> unpacks
    name ~ /gemv|skinny_gemmI|attendILi[0-9]|attend_tiles|flashILi[0-9]+ELi[0-9]+ELi[0-9]+ELb0/ { seen[name] = 1 }
    END {
        for (name in seen) {
            n++
            if (!wide[name]) { print name ": no load of 16 bytes"; bad = 1 }
        }
        if (n == 0) { print "no kernel found in the machine code"; bad = 1 }
        else if (!bad) print n " kernels that read weights or keys: 16 bytes at a time"
        exit bad
    }'

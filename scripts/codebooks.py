#!/usr/bin/env python3
"""Writes the codebooks of the tensor types IQ1, IQ2 and IQ3, and test blocks with the values of their elements.

    pip install numpy gguf
    scripts/codebooks.py            # formats/codebooks.h and tests/rig/type_vectors.h
    scripts/codebooks.py --check    # exit code 1 if the files differ from its output, 77 without the package

The codebooks are facts of the GGUF format. They are taken from the `gguf` package of Python (gguf/quants.py, from the
ggml project), which also computes the expected values.
"""

import pathlib
import sys

try:
    import numpy as np
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
except ImportError as e:
    print("numpy and gguf expected (pip install numpy gguf): %s" % e)
    sys.exit(77)

TOP = pathlib.Path(__file__).resolve().parent.parent
BOOKS = ["IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S"]
LEVELS_OF = {"IQ2_XS": "IQ2_XXS", "IQ2_S": "IQ2_XXS"}  # books with the levels of another one
TYPES = BOOKS + ["IQ1_M", "TQ1_0", "TQ2_0"]
MANY = 64  # blocks whose values are summed up in a hash

# ---- the codebooks --------------------------------------------------------------------------------------------------

BOOKS_HEAD = """// formats/codebooks.h: the codebooks of the tensor types IQ1, IQ2 and IQ3. Written by scripts/codebooks.py.
//
// Facts of the GGUF format, taken from the `gguf` package of Python. NAME_BOOK(X) is a list of X(entry). An entry is a
// word: the places of eight elements in NAME_LEVELS, two bits each from the lowest, or of four elements, four bits each.
// IQ2_XS and IQ2_S have the levels of IQ2_XXS.
#ifndef QUILL_CODEBOOKS_H
#define QUILL_CODEBOOKS_H

// clang-format off
"""


def codebook(name):
    kind = getattr(quants, name)
    words = np.frombuffer(bytes.fromhex(kind.grid_hex.decode()), dtype="<u2")
    n, per = kind.grid_shape
    assert len(words) == n and per in (4, 8)
    kind.init_grid()
    levels = np.array(kind.grid_map)[(words[:, None] >> (16 // per * np.arange(per))) & (16 // per == 2 and 3 or 15)]
    assert (levels == kind.grid.reshape(n, per)).all()  # entries give the package's values
    assert tuple(kind.grid_map) == tuple(getattr(quants, LEVELS_OF.get(name, name)).grid_map)
    head = "" if name in LEVELS_OF else "#define %s_LEVELS %s\n" % (name, ", ".join(str(v) for v in kind.grid_map))
    lines = ["#define %s_BOOK(X)" % name]
    lines += ["    " + " ".join("X(0x%04x)" % w for w in words[i : i + 11]) for i in range(0, n, 11)]
    return head + " \\\n".join(lines) + "\n"


def codebooks():
    return BOOKS_HEAD + "\n".join(codebook(name) for name in BOOKS) + "// clang-format on\n\n#endif\n"


# ---- blocks and values ----------------------------------------------------------------------------------------------

VECTORS_HEAD = """// tests/rig/type_vectors.h: blocks of the types IQ1, IQ2, IQ3 and TQ with the values that the `gguf` package of Python
// gives them. Written by scripts/codebooks.py.
#ifndef QUILL_TYPE_VECTORS_H
#define QUILL_TYPE_VECTORS_H

#include "formats/types.h"

// A block and the bits of its dequantised elements in f32. Then %d adjacent blocks of random bytes: byte i is the
// lowest byte of rng_mix(seed + i), except that bit 14 of the scale, the highest bit of the f16 exponent, is 0. `hash`
// is FNV-1a over the bytes of their values.
typedef struct {
    int type, bytes;
    uint8_t block[112];
    uint32_t values[256];
    uint64_t seed, hash;
} TypeVector;

enum { TYPE_VECTOR_BLOCKS = %d };

// clang-format off
static const TypeVector type_vectors[] = {
""" % (MANY, MANY)

WORD = (1 << 64) - 1


def rng_mix(z):  # base/rng.h
    z = (z + 0x9E3779B97F4A7C15) & WORD
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & WORD
    return z ^ z >> 31


def high_byte_of_d(name, size):
    """Where a block has the byte with the exponent's highest bit, and that bit."""
    if name == "IQ1_M": return size - 1, 0x40  # the highest nibble of the fourth word of scales
    return (size - 1 if name.startswith("TQ") else 1), 0x40


def random_blocks(name, seed, n):
    size = GGML_QUANT_SIZES[GGMLQuantizationType[name]][1]
    data = bytearray(rng_mix((seed + i) & WORD) & 255 for i in range(n * size))
    at, bit = high_byte_of_d(name, size)
    for b in range(n): data[b * size + at] &= ~bit & 255
    return np.frombuffer(bytes(data), dtype=np.uint8).reshape(n, size)


def rows(words, form, per):
    return ",\n     ".join(", ".join(form % w for w in words[i : i + per]) for i in range(0, len(words), per))


def vector(name, number):
    seed = 1000 * (number + 1)
    qtype = GGMLQuantizationType[name]
    one, many = random_blocks(name, seed << 32, 1), random_blocks(name, seed, MANY)
    values = quants.dequantize(one, qtype).astype("<f4").view("<u4").ravel()
    found = quants.dequantize(many, qtype).astype("<f4")
    assert np.isfinite(found).all()
    hashed = 0xCBF29CE484222325
    for byte in found.tobytes(): hashed = (hashed ^ byte) * 0x100000001B3 & WORD
    return "    {TYPE_%s, %d,\n    {%s},\n    {%s},\n     %du, 0x%016xu},\n" % (
        name, one.size, rows(list(one.ravel()), "0x%02x", 18), rows(list(values), "0x%08x", 9), seed, hashed)


def vectors():
    return VECTORS_HEAD + "".join(vector(name, i) for i, name in enumerate(TYPES)) + "};\n// clang-format on\n\n#endif\n"


wrong = 0
for path, write in ((TOP / "formats/codebooks.h", codebooks), (TOP / "tests/rig/type_vectors.h", vectors)):
    if "--check" not in sys.argv[1:]: path.write_text(write(), encoding="utf-8")
    elif path.read_text(encoding="utf-8") != write():
        print("%s: not what scripts/codebooks.py writes" % path)
        wrong = 1
sys.exit(wrong)

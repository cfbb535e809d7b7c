#!/usr/bin/env python3
"""types_reference.py: what quill reads from a file's blocks, bit for bit against the `gguf` package of Python.

  types_reference.py QUILL MAKE_TINY TYPE...

Makes a small model of random blocks of each type (256 and 512 elements a row), lets `quill quantize` write it in F32,
and compares with what the package dequantises. Ends with 0 where all bits are equal, 1 with the first element that
differs, and 77 where the package is missing.
"""
import os, subprocess, sys, tempfile

try:
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFReader, quants
except ImportError as e:
    print("numpy and gguf expected (pip install numpy gguf): %s" % e)
    sys.exit(77)

quill, make_tiny, types = sys.argv[1], sys.argv[2], sys.argv[3:]
for name in types:
    qtype, count = GGMLQuantizationType[name], 0
    with tempfile.TemporaryDirectory() as folder:
        packed, plain = os.path.join(folder, "packed.gguf"), os.path.join(folder, "plain.gguf")
        subprocess.run([make_tiny, packed, "dim=256", "ffn=512", "type=" + name], check=True)
        subprocess.run([quill, "quantize", "-q", packed, plain, "F32"], check=True)
        found = {t.name: t for t in GGUFReader(plain).tensors}
        for t in GGUFReader(packed).tensors:
            if t.tensor_type != qtype:
                continue
            want = quants.dequantize(t.data, qtype).astype("<f4").view(np.uint32).ravel()
            got = np.array(found[t.name].data, dtype="<f4").view(np.uint32).ravel()
            if not np.array_equal(want, got):
                at = int(np.nonzero(want != got)[0][0])
                sys.exit("%s: %s: element %d is %r, %r expected (%d differ)" % (
                    name, t.name, at, got[at : at + 1].view(np.float32)[0], want[at : at + 1].view(np.float32)[0], (want != got).sum()))
            count += len(got)
    if not count: sys.exit("%s: no tensor has this type" % name)
    print("%s: %d elements equal" % (name, count))

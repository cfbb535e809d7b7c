#!/usr/bin/env python3
"""quantize_reference.py: what `quill quantize` writes, byte for byte against the `gguf` package of Python.

  quantize_reference.py QUILL MODEL.gguf TYPE...
  quantize_reference.py QUILL MODEL.gguf TYPE=WEIGHT...    with one weight of that size in each row of the matrices

MODEL holds its matrices in F32. Ends with 0 where all bytes are equal, 1 with the first tensor that differs, and 77
where the package is missing.
"""
import os, shutil, subprocess, sys, tempfile

try:
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFReader, quants
except ImportError as e:
    print("numpy and gguf expected (pip install numpy gguf): %s" % e)
    sys.exit(77)

quill, plain, types = sys.argv[1], sys.argv[2], sys.argv[3:]
for name in types:
    name, _, weight = name.partition("=")
    model, qtype, count = plain, GGMLQuantizationType[name], 0
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.gguf")
        if weight:
            shutil.copyfile(plain, os.path.join(folder, "in.gguf"))
            model = os.path.join(folder, "in.gguf")
            for t in GGUFReader(model, "r+").tensors:
                if len(t.data.shape) > 1: t.data[:, 7] = float(weight)
        source = {t.name: t for t in GGUFReader(model).tensors}
        subprocess.run([quill, "quantize", "-q", model, out, name], check=True)
        for t in GGUFReader(out).tensors:
            if t.tensor_type != qtype:
                continue
            x = np.array(source[t.name].data, dtype=np.float32)
            want, got = quants.quantize(x, qtype).view(np.uint8).ravel(), t.data.view(np.uint8).ravel()
            if not np.array_equal(want, got):
                at = int(np.nonzero(want != got)[0][0])
                sys.exit("%s: %s: byte %d is %d, %d expected (%d bytes differ)" % (name, t.name, at, got[at], want[at], (want != got).sum()))
            count += len(got)
    if not count: sys.exit("%s: no tensor has become this type" % name)
    print("%s: %d bytes equal" % (name, count))

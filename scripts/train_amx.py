"""The kernels of train_amx.cpp as functions for torch: compiled for this machine at first use."""

import ctypes
import hashlib
import os
import subprocess
import sys

import torch

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train_amx.cpp")


def library(folder):
    """The kernels, compiled for this machine into the folder; None where there is neither AMX nor AVX-512 BF16, or no compiler."""
    try:
        with open("/proc/cpuinfo") as f:
            if "avx512_bf16" not in f.read():
                return None
        with open(SOURCE, "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()[:12]
        os.makedirs(folder, exist_ok=True)
        path = os.path.abspath(os.path.join(folder, f"train_amx-{digest}.so"))
        if not os.path.exists(path):  # by a name of this process's own: the others may be at it too
            part = f"{path}.{os.getpid()}"
            subprocess.run(["g++", "-O3", "-march=native", "-shared", "-fPIC", SOURCE, "-o", part], check=True)
            os.replace(part, path)
        return ctypes.CDLL(path)
    except (OSError, subprocess.CalledProcessError) as e:
        print(f"without kernels of its own: {e}", file=sys.stderr)
        return None


def pointers(*tensors):
    return (ctypes.c_void_p(t.data_ptr()) for t in tensors)


def attention(lib):
    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v, cuts):
            out = torch.empty_like(q)
            lse = torch.empty(q.shape[1], q.shape[0])
            lib.attend(*pointers(q, k, v, cuts), len(cuts) - 1, *q.shape[:2], k.shape[1], *pointers(out, lse))
            ctx.save_for_backward(q, k, v, out, lse, cuts)
            return out

        @staticmethod
        def backward(ctx, grad):
            q, k, v, out, lse, cuts = ctx.saved_tensors
            grads = [torch.empty_like(t) for t in (q, k, v)]
            lib.attend_back(*pointers(grad.contiguous(), q, k, v, out, lse, cuts), len(cuts) - 1, *q.shape[:2],
                            k.shape[1], *pointers(*grads))
            return *grads, None

    return Attention.apply


def swiglu(lib):
    class Swiglu(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            out = x.new_empty(len(x), x.shape[1] // 2)
            lib.swiglu(*pointers(x), *out.shape, *pointers(out))
            return out

        @staticmethod
        def backward(ctx, grad):
            x, = ctx.saved_tensors
            out = torch.empty_like(x)
            lib.swiglu_back(*pointers(grad.contiguous(), x), *grad.shape, *pointers(out))
            return out

    return Swiglu.apply


def loss(lib):
    def with_gradient(logits, targets, weights):  # the gradient takes the place of the logits
        losses = torch.empty(len(logits))
        lib.loss_and_gradient(*pointers(logits, targets, weights, losses), *logits.shape)
        return losses, logits
    return with_gradient


def add_outer(lib, plain):
    def add(sum_, g, x):
        if (len(x) | sum_.shape[0] | sum_.shape[1]) % 32:
            return plain(sum_, g, x)
        lib.add_outer(*pointers(sum_, g, x), len(x), *sum_.shape)
    return add

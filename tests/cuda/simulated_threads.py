"""Kernels as a GPU runs them, on the host: all threads of a block, one after the other in random order.

The emulated GPU gives a block whose threads work together a single thread, so it does not see what they exchange. Here
the text is compiled as for a GPU, with stand-ins for what CUDA's compiler knows: each thread is a coroutine that stands
still at a barrier until all have come there, or all of its warp. A barrier that is missing then shows as wrong numbers.

`python -m tests.cuda.simulated_threads` compares a few operations with the CPU; in a process of its own, because
kernels are compiled once.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

STAND_INS = r"""
#define __CUDACC__ 1
#define __CUDA_ARCH__ 700
#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __shared__ static
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
struct Place3 { unsigned x, y, z; };
static Place3 blockIdx, threadIdx, blockDim, gridDim;
enum { READY, AT_BLOCK, AT_WARP, DONE, STACK = 1 << 17, MOST = 1024 };
struct Thread { ucontext_t context; char *stack; int state; unsigned index; };
static Thread threads[MOST], *now;
static ucontext_t home;
static char slots[MOST][16];
static unsigned long long drawn = 88172645463325252ull;

static void stand_still(int state) { now->state = state; swapcontext(&now->context, &home); }

static unsigned draw(unsigned below)
{
    drawn ^= drawn << 13; drawn ^= drawn >> 7; drawn ^= drawn << 17;
    return (unsigned)(drawn % below);
}

// let those go on that stand at a barrier to which all others of [from, to) have come; whether there were any
static bool release(unsigned from, unsigned to, int barrier)
{
    unsigned there = 0, waiting = 0;
    for (unsigned t = from; t < to; t++) {
        waiting += threads[t].state == barrier;
        there += threads[t].state == barrier || threads[t].state == DONE;
    }
    if (there < to - from || !waiting) return false;
    for (unsigned t = from; t < to; t++) if (threads[t].state == barrier) threads[t].state = READY;
    return true;
}

static void run_block(void (*body)())
{
    unsigned n = blockDim.x, order[MOST];
    for (unsigned t = 0; t < n; t++) {
        Thread &thread = threads[t];
        if (!thread.stack) thread.stack = (char *)malloc(STACK);
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = thread.stack; thread.context.uc_stack.ss_size = STACK;
        thread.context.uc_link = &home;
        thread.state = READY; thread.index = order[t] = t;
        makecontext(&thread.context, body, 0);
    }
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (unsigned t = n; t-- > 1;) {
            const unsigned o = draw(t + 1), x = order[t];
            order[t] = order[o]; order[o] = x;
        }
        for (unsigned k = 0; k < n; k++) {
            now = &threads[order[k]];
            if (now->state != READY) continue;
            goes_on = true;
            threadIdx = {now->index, 0, 0};
            swapcontext(&home, &now->context);
            if (now->state == READY) now->state = DONE;
        }
        goes_on |= release(0, n, AT_BLOCK);
        for (unsigned w = 0; w < n; w += 32) goes_on |= release(w, w + 32 < n ? w + 32 : n, AT_WARP);
    }
    for (unsigned t = 0; t < n; t++) if (threads[t].state != DONE) abort(); // they wait for each other for ever
}

template <class T> static T exchange(T v, unsigned lane)
{
    const unsigned own = now->index, from = (own & ~31u) + lane;
    T got;
    memcpy(slots[own], &v, sizeof(T));
    stand_still(AT_WARP);
    memcpy(&got, slots[from], sizeof(T));
    stand_still(AT_WARP);
    return got;
}
#define LANE (now->index & 31)
static void __syncthreads() { stand_still(AT_BLOCK); }
static void __syncwarp() { stand_still(AT_WARP); }
template <class T> T __shfl_xor_sync(unsigned, T v, int o) { return exchange(v, LANE ^ o); }
template <class T> T __shfl_up_sync(unsigned, T v, unsigned o) { return exchange(v, LANE >= o ? LANE - o : LANE); }
template <class T> T __shfl_sync(unsigned, T v, int lane) { return exchange(v, lane); }
static unsigned __ballot_sync(unsigned, int vote)
{
    unsigned found = 0;
    const unsigned first = now->index & ~31u;
    slots[now->index][0] = vote != 0;
    stand_still(AT_WARP);
    for (unsigned lane = 0; lane < 32 && first + lane < blockDim.x; lane++)
        found |= (unsigned)slots[first + lane][0] << lane;
    stand_still(AT_WARP);
    return found;
}
static int __popc(unsigned x) { return __builtin_popcount(x); }
template <class T, class U> T atomicAdd(T *p, U v) { const T old = *p; *p = old + (T)v; return old; }
template <class T> T atomicMax(T *p, T v) { const T old = *p; *p = v > old ? v : old; return old; }
"""

RUNNER = "#define RUNNER(name, P, threads)"
RUN_BLOCKS = r""" static const P *name##_given; static void name##_body() { name(*name##_given); } \
extern "C" void name##_on_host(const void *given, unsigned gx, unsigned gy, unsigned gz, unsigned block) \
{ P p; __builtin_memcpy(&p, given, sizeof(p)); name##_given = &p; gridDim = {gx, gy, gz}; blockDim = {block, 1, 1}; \
  for (unsigned z = 0; z < gz; z++) for (unsigned y = 0; y < gy; y++) for (unsigned x = 0; x < gx; x++) { \
    blockIdx = {x, y, z}; run_block(name##_body); } }"""

#: what the text says for a GPU, and what stands for it here
REPLACED = {
    f"{RUNNER}\n": f"{RUNNER}{RUN_BLOCKS}\n",
    'extern "C" __global__ void name(const': "static void name(const",
    "#ifdef __CUDACC__\nFN float widened(Half h)": "#if 0\nFN float widened(Half h)",
}

#: kernels whose threads work together, or write where others do
SIMULATED = frozenset(
    "bitonic first_ones count begin_at move cholesky lu solve qr places along place last each segments "
    "join_segments".split()
)


def simulate(compile_module: Any) -> set[str]:
    """Compile kernels so from now on; the names of those that were."""
    plain, used = compile_module.on_host, set()

    def on_host(text: str, names: Sequence[str]) -> tuple[int, ...]:
        if not set(names) <= SIMULATED:
            return plain(text, names)
        used.update(names)
        for old, new in REPLACED.items():
            assert old in text
            text = text.replace(old, new, 1)
        library = compile_module.host_library(STAND_INS + text)
        return tuple([ctypes.cast(getattr(library, f"{name}_on_host"), ctypes.c_void_p).value or 0 for name in names])

    compile_module.on_host = on_host
    return used


def main() -> None:
    os.environ["UNDERTOW_CUDA"] = "emulate"
    import numpy as np

    import undertow as ut
    from undertow.backend.cuda import compile as compile_module

    used = simulate(compile_module)
    rng = np.random.default_rng(0)
    for shape, k in (((3, 40), 7), ((2, 2500), 9), ((1, 1200), 1000)):
        here = ut.tensor(rng.integers(-30, 30, shape).astype(np.float32))
        there = here.to("cuda")
        for found, wanted in ((there.topk(k), here.topk(k)), (there.sort(), here.sort())):
            assert all([a.tolist() == b.tolist() for a, b in zip(found, wanted, strict=True)])
    for n in (3, 17, 32):
        a = rng.normal(size=(2, n, n)) + 1j * rng.normal(size=(2, n, n))
        matrix = ut.tensor(a @ a.conj().swapaxes(-1, -2) + np.eye(n)).to("cuda")
        factor, (q, r), (p, low, up) = ut.linalg.cholesky(matrix), ut.linalg.qr(matrix), ut.linalg.lu(matrix)
        for product in (factor @ factor.mH, q @ r, p @ low @ up):
            assert (product - matrix).abs().max().item() < 1e-9 * n
    exchanged = ut.tensor(rng.integers(1, 41, (2, 40)).astype(np.int32))
    for here in (exchanged, exchanged[:, :3]):
        factors = ut.zeros(2, 40, here.shape[1])
        assert ut.lu_unpack(factors.cuda(), here.cuda())[0].tolist() == ut.lu_unpack(factors, here)[0].tolist()
    for row in (ut.tensor(rng.integers(-9, 9, 20_001).astype(np.float32)), ut.ones(20_001)):
        assert row.cuda().cumsum(0).tolist() == row.cumsum(0).tolist()
        assert row.cuda().argmax().item() == row.argmax().item() and row.cuda().argmin().item() == row.argmin().item()
    places = ut.tensor(rng.integers(0, 50, 2000))
    here, values = ut.zeros(50), ut.arange(2000.0)
    there = here.cuda()
    here[places], there[places.cuda()] = values, values.cuda()
    assert here.tolist() == there.tolist() and places.cuda().bincount().tolist() == places.bincount().tolist()
    for here in (ut.tensor(rng.integers(-3, 3, (2000, 3)).astype(np.float32)), ut.ones(2000, 1).to(ut.bfloat16)):
        for rows in (4, 1500):
            places = ut.tensor(rng.zipf(1.5, 2000) % rows)
            sums = here.new_zeros(rows, here.shape[1]).index_add(0, places, here)
            assert sums.cuda().zero_().index_add(0, places.cuda(), here.cuda()).tolist() == sums.tolist()
    print(" ".join(sorted(used)))


if __name__ == "__main__":
    main()

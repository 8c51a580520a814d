/* How the loops of the kernels are compiled. */
#ifndef UNDERTOW_LOOPS_H
#define UNDERTOW_LOOPS_H

#include <math.h>
#include <string.h>

/* Where this is defined, sums may be taken in any order, so that they can be computed in vectors. NaN and infinity stay
 * what they are. */
#ifdef SUMS_IN_ANY_ORDER
#if defined(__clang__)
#pragma clang fp reassociate(on) contract(fast)
#elif defined(__GNUC__)
#pragma GCC optimize("associative-math", "no-signed-zeros", "no-trapping-math")
#endif
#endif

/* Where this is defined, a product and the sum it joins may be rounded together. */
#ifdef FUSED_PRODUCTS
#if defined(__clang__)
#pragma clang fp contract(fast)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=fast")
#endif
#endif

/* The loops are compiled for several generations of processors; which one it is, is found when the module is loaded. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12 && defined(__x86_64__) && defined(__GLIBC__)
#define CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#define WIDE_VECTORS /* of 64 bytes, which some of these processors have */
#else
#define CLONES
#endif

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

/* Before a loop of constant length over vectors: only unrolled ones are sure to keep an array of them in registers. */
#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define UNROLLED _Pragma("GCC unroll 16")
#else
#define UNROLLED
#endif

#define JOINED(a, b) a##_##b
#define JOIN(a, b) JOINED(a, b)
#define NAME(name) JOIN(name, REAL) /* the version of a function for the type at hand */

/* elements that are added up in their own type, before double takes the sum */
#define BLOCK 2048
/* rows of which the same is true */
#define FEW_ROWS 32
/* sums that are in the making at the same time, see loops/max_and_sum.h */
#define LANES 32

#endif

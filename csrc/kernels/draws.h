/* Random numbers drawn into memory; whoever calls these holds the lock of the generator. */
#ifndef UNDERTOW_DRAWS_H
#define UNDERTOW_DRAWS_H

#include <numpy/random/bitgen.h>

#define NORMAL_BLOCK 16 /* BLOCK of ops/random/mersenne_twister.py */
#define WIDE_RANGE ((uint64_t)1 << 28) /* WIDE there */

/* in [low, high), as `uniform` of ops/random/draw.py */
void draw_uniform_floats(bitgen_t *bits, float *out, Py_ssize_t count, double low, double high);
void draw_uniform_doubles(bitgen_t *bits, double *out, Py_ssize_t count, double low, double high);
/* at least NORMAL_BLOCK of them, as `normal` there */
void draw_normal_floats(bitgen_t *bits, float *out, Py_ssize_t count, double mean, double std);
/* an even number of them */
void draw_normal_pairs(bitgen_t *bits, double *out, Py_ssize_t count);
/* low, ..., low + range - 1 */
void draw_integers(bitgen_t *bits, int64_t *out, Py_ssize_t count, int64_t low, uint64_t range);
void draw_permutation(bitgen_t *bits, int64_t *out, Py_ssize_t count);

#endif

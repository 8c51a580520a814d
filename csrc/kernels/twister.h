/* The Mersenne Twister as NumPy keeps it, whose words are drawn here by the hundreds. See trust_twister in random.c. */
#ifndef UNDERTOW_TWISTER_H
#define UNDERTOW_TWISTER_H

#include <numpy/random/bitgen.h>
#include <stdint.h>

#define TWISTER_SIZE 624
#define TWISTER_SHIFT 397

typedef struct {
    uint32_t key[TWISTER_SIZE];
    int pos;
} Twister;

/* The state of a generator of NumPy, if it is known to be a Twister (random.c); otherwise NULL. */
Twister *twister_of(bitgen_t *bits);

INLINE uint32_t
twisted(uint32_t high, uint32_t low, uint32_t other)
{
    uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);
    return other ^ (y >> 1) ^ (-(y & 1) & 0x9908b0dfu);
}

/* The next words; loops whose steps depend on ones far enough back to be taken several at a time. */
CLONES static void
twist(Twister *twister)
{
    uint32_t *key = twister->key;
    int k = 0;
    for (; k < TWISTER_SIZE - TWISTER_SHIFT; k++) {
        key[k] = twisted(key[k], key[k + 1], key[k + TWISTER_SHIFT]);
    }
    for (; k < 2 * (TWISTER_SIZE - TWISTER_SHIFT); k++) {
        key[k] = twisted(key[k], key[k + 1], key[k - (TWISTER_SIZE - TWISTER_SHIFT)]);
    }
    for (; k < TWISTER_SIZE - 1; k++) {
        key[k] = twisted(key[k], key[k + 1], key[k - (TWISTER_SIZE - TWISTER_SHIFT)]);
    }
    key[TWISTER_SIZE - 1] = twisted(key[TWISTER_SIZE - 1], key[0], key[TWISTER_SHIFT - 1]);
    twister->pos = 0;
}

INLINE uint32_t
tempered(uint32_t y)
{
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

CLONES static void
temper(const uint32_t *key, uint32_t *out, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        out[k] = tempered(key[k]);
    }
}

/* `count` words, in order */
static inline void
draw_twister(Twister *twister, uint32_t *out, Py_ssize_t count)
{
    while (count > 0) {
        if (twister->pos >= TWISTER_SIZE) {
            twist(twister);
        }
        Py_ssize_t here = TWISTER_SIZE - twister->pos < count ? TWISTER_SIZE - twister->pos : count;
        temper(twister->key + twister->pos, out, here);
        twister->pos += (int)here;
        out += here;
        count -= here;
    }
}

#endif

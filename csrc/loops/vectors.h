/* Vectors of the type REAL, in a form that compilers keep in registers. Included once for each REAL, and each size. */

#ifndef WIDTH
#define VECTOR_BYTES 32
#define WIDTH ((Py_ssize_t)(VECTOR_BYTES / sizeof(REAL))) /* numbers in a vector */
#endif

#if defined(__GNUC__)
typedef REAL NAME(Vector) __attribute__((vector_size(VECTOR_BYTES)));

INLINE void /* sum += a * x */
NAME(add_multiple)(NAME(Vector) *sum, REAL a, const NAME(Vector) *x)
{
    *sum += a * *x;
}

INLINE void /* sum += x * y */
NAME(add_products)(NAME(Vector) *sum, const NAME(Vector) *x, const NAME(Vector) *y)
{
    *sum += *x * *y;
}

INLINE REAL
NAME(lane)(const NAME(Vector) *x, int k)
{
    return (*x)[k];
}

#else
typedef struct {
    REAL lanes[VECTOR_BYTES / sizeof(REAL)];
} NAME(Vector);

INLINE void
NAME(add_multiple)(NAME(Vector) *sum, REAL a, const NAME(Vector) *x)
{
    for (int k = 0; k < WIDTH; k++) {
        sum->lanes[k] += a * x->lanes[k];
    }
}

INLINE void
NAME(add_products)(NAME(Vector) *sum, const NAME(Vector) *x, const NAME(Vector) *y)
{
    for (int k = 0; k < WIDTH; k++) {
        sum->lanes[k] += x->lanes[k] * y->lanes[k];
    }
}

INLINE REAL
NAME(lane)(const NAME(Vector) *x, int k)
{
    return x->lanes[k];
}
#endif

INLINE void
NAME(load)(NAME(Vector) *vector, const REAL *x)
{
    memcpy(vector, x, sizeof(*vector));
}

INLINE void
NAME(store)(REAL *x, const NAME(Vector) *vector)
{
    memcpy(x, vector, sizeof(*vector));
}

INLINE void /* all lanes the same */
NAME(fill)(NAME(Vector) *vector, REAL value)
{
    REAL lanes[VECTOR_BYTES / sizeof(REAL)];
    for (int k = 0; k < WIDTH; k++) {
        lanes[k] = value;
    }
    NAME(load)(vector, lanes);
}

INLINE REAL
NAME(sum_of_lanes)(const NAME(Vector) *x)
{
    REAL lanes[VECTOR_BYTES / sizeof(REAL)];
    NAME(store)(lanes, x);
    for (int half = (int)WIDTH / 2; half > 0; half /= 2) {
        for (int k = 0; k < half; k++) {
            lanes[k] += lanes[k + half];
        }
    }
    return lanes[0];
}

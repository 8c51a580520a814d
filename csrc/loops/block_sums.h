/* Sums along contiguous numbers, for the type REAL. Four at a time are in the making, so that none waits for another;
 * a BLOCK is added up in REAL, the blocks in double.
 */

INLINE Py_ssize_t
NAME(block)(Py_ssize_t start, Py_ssize_t count)
{
    return count - start < BLOCK ? count - start : BLOCK;
}

/* the sum */
INLINE double
NAME(total)(const REAL *x, Py_ssize_t count)
{
    double sum = 0;
    for (Py_ssize_t start = 0; start < count; start += BLOCK) {
        Py_ssize_t n = NAME(block)(start, count), quarter = n / 4;
        const REAL *a = x + start, *b = a + quarter, *c = b + quarter, *d = c + quarter;
        REAL s = 0, t = 0, u = 0, v = 0;
        for (Py_ssize_t k = 0; k < quarter; k++) {
            s += a[k], t += b[k], u += c[k], v += d[k];
        }
        for (Py_ssize_t k = 4 * quarter; k < n; k++) {
            s += a[k];
        }
        sum += (s + t) + (u + v);
    }
    return sum;
}

/* the sums of x - shift and of its square */
INLINE void
NAME(moments)(const REAL *x, Py_ssize_t count, REAL shift, double *sum, double *squares)
{
    for (Py_ssize_t start = 0; start < count; start += BLOCK) {
        Py_ssize_t n = NAME(block)(start, count), half = n / 2;
        const REAL *a = x + start, *b = a + half;
        REAL s = 0, t = 0, u = 0, v = 0;
        for (Py_ssize_t k = 0; k < half; k++) {
            REAL p = a[k] - shift, q = b[k] - shift;
            s += p, t += q, u += p * p, v += q * q;
        }
        if (n & 1) {
            REAL p = a[n - 1] - shift;
            s += p, u += p * p;
        }
        *sum += s + t;
        *squares += u + v;
    }
}

typedef struct {
    double x, g, product;
} NAME(Sums);

/* the sums of x - shift, of g, and of their product; g is multiplied by weight first, unless that is NULL */
INLINE void
NAME(products)(const REAL *x, const REAL *g, const REAL *weight, Py_ssize_t count, REAL shift, NAME(Sums) * sums)
{
    for (Py_ssize_t start = 0; start < count; start += BLOCK) {
        Py_ssize_t end = start + NAME(block)(start, count);
        REAL s = 0, t = 0, u = 0;
        for (Py_ssize_t k = start; k < end; k++) {
            REAL p = x[k] - shift, q = weight == NULL ? g[k] : g[k] * weight[k];
            s += p, t += q, u += p * q;
        }
        sums->x += s;
        sums->g += t;
        sums->product += u;
    }
}

/* Transforms of WIDTH signals side by side, each in a lane of the vectors. Included once for each REAL. In between, the
 * real part of an element is one vector and its imaginary part the next; with these exchanged (`re` is 1, not 0), the
 * same passes transform backwards. */

INLINE void /* a, turned by a quarter clockwise, added to b: b - i a; and b + i a */
NAME(quarters)(const NAME(Vector) *a, const NAME(Vector) *b, NAME(Vector) *minus, NAME(Vector) *plus)
{
    minus[0] = b[0] + a[1];
    minus[1] = b[1] - a[0];
    plus[0] = b[0] - a[1];
    plus[1] = b[1] + a[0];
}

INLINE void /* the transform of `radix` numbers */
NAME(butterfly)(const int radix, NAME(Vector) x[][2], NAME(Vector) y[][2])
{
    NAME(Vector) t[2], u[2], v[2], w[2];
    if (radix == 2) {
        UNROLLED for (int c = 0; c < 2; c++) {
            y[0][c] = x[0][c] + x[1][c];
            y[1][c] = x[0][c] - x[1][c];
        }
    }
    else if (radix == 3) {
        UNROLLED for (int c = 0; c < 2; c++) {
            t[c] = x[1][c] + x[2][c];
            u[c] = (x[1][c] - x[2][c]) * (REAL)0.86602540378443864676;
            y[0][c] = x[0][c] + t[c];
            v[c] = x[0][c] - t[c] * (REAL)0.5;
        }
        NAME(quarters)(u, v, y[1], y[2]);
    }
    else if (radix == 4) {
        UNROLLED for (int c = 0; c < 2; c++) {
            t[c] = x[0][c] + x[2][c];
            u[c] = x[0][c] - x[2][c];
            v[c] = x[1][c] + x[3][c];
            w[c] = x[1][c] - x[3][c];
            y[0][c] = t[c] + v[c];
            y[2][c] = t[c] - v[c];
        }
        NAME(quarters)(w, u, y[1], y[3]);
    }
    else {
        const REAL cos1 = (REAL)0.30901699437494742410, cos2 = (REAL)-0.80901699437494742410;
        const REAL sin1 = (REAL)0.95105651629515357212, sin2 = (REAL)0.58778525229247312917;
        NAME(Vector) first[2], second[2];
        UNROLLED for (int c = 0; c < 2; c++) {
            t[c] = x[1][c] + x[4][c];
            u[c] = x[2][c] + x[3][c];
            v[c] = x[1][c] - x[4][c];
            w[c] = x[2][c] - x[3][c];
            y[0][c] = x[0][c] + t[c] + u[c];
            first[c] = x[0][c] + cos1 * t[c] + cos2 * u[c];
            second[c] = x[0][c] + cos2 * t[c] + cos1 * u[c];
            t[c] = sin1 * v[c] + sin2 * w[c];
            u[c] = sin2 * v[c] - sin1 * w[c];
        }
        NAME(quarters)(t, first, y[1], y[4]);
        NAME(quarters)(u, second, y[2], y[3]);
    }
}

INLINE void /* one pass of Stockham's: n / s numbers in steps of s become radix times as many transforms */
NAME(pass)(const int radix, const NAME(Vector) *restrict x, NAME(Vector) *restrict y, Py_ssize_t m, Py_ssize_t s,
           const REAL *twiddles, int re)
{
    for (Py_ssize_t p = 0; p < m; p++, twiddles += 2 * (radix - 1)) {
        for (Py_ssize_t q = 0; q < s; q++) {
            NAME(Vector) from[5][2], to[5][2];
            UNROLLED for (int j = 0; j < radix; j++) {
                const NAME(Vector) *at = x + 2 * (q + s * (p + m * j));
                from[j][0] = at[re];
                from[j][1] = at[1 - re];
            }
            NAME(butterfly)(radix, from, to);
            UNROLLED for (int k = 0; k < radix; k++) {
                NAME(Vector) *at = y + 2 * (q + s * (radix * p + k));
                if (k > 0 && p > 0) {
                    const REAL a = twiddles[2 * k - 2], b = twiddles[2 * k - 1];
                    at[re] = to[k][0] * a - to[k][1] * b;
                    at[1 - re] = to[k][0] * b + to[k][1] * a;
                }
                else {
                    at[re] = to[k][0];
                    at[1 - re] = to[k][1];
                }
            }
        }
    }
}

/* All passes; returns where the result is, x or y. */
INLINE NAME(Vector) *
NAME(passes)(const Fourier *plan, NAME(Vector) *x, NAME(Vector) *y, int re)
{
    const REAL *twiddles = plan->twiddles;
    Py_ssize_t m = plan->n, s = 1;
    for (int k = 0; k < plan->passes; k++) {
        int radix = plan->radix[k];
        m /= radix;
        if (radix == 4) {
            NAME(pass)(4, x, y, m, s, twiddles, re);
        }
        else if (radix == 2) {
            NAME(pass)(2, x, y, m, s, twiddles, re);
        }
        else if (radix == 3) {
            NAME(pass)(3, x, y, m, s, twiddles, re);
        }
        else {
            NAME(pass)(5, x, y, m, s, twiddles, re);
        }
        twiddles += 2 * (radix - 1) * m;
        s *= radix;
        NAME(Vector) *other = x;
        x = y;
        y = other;
    }
    return x;
}

/* ---- real signals of 2n numbers: as n complex ones, whose transform is that of the even numbers and i times that of the
 * odd ones */

INLINE void
NAME(halves_of_spectrum)(const Fourier *plan, NAME(Vector) *z)
{
    Py_ssize_t n = plan->n;
    const REAL *turns = plan->turns, half = (REAL)0.5;
    NAME(Vector) first = z[0], second = z[1], none = {0};
    for (Py_ssize_t k = 1; k <= n / 2; k++) {
        NAME(Vector) *low = z + 2 * k, *high = z + 2 * (n - k);
        const REAL a = turns[2 * k], b = turns[2 * k + 1];
        NAME(Vector) even_re = (low[0] + high[0]) * half, even_im = (low[1] - high[1]) * half;
        NAME(Vector) odd_re = (low[1] + high[1]) * half, odd_im = (high[0] - low[0]) * half;
        NAME(Vector) turned_re = odd_re * a - odd_im * b, turned_im = odd_re * b + odd_im * a;
        low[0] = even_re + turned_re;
        low[1] = even_im + turned_im;
        if (2 * k < n) {
            high[0] = even_re - turned_re;
            high[1] = turned_im - even_im;
        }
    }
    z[0] = first + second;
    z[1] = none;
    z[2 * n] = first - second;
    z[2 * n + 1] = none;
}

INLINE void
NAME(spectrum_of_halves)(const Fourier *plan, NAME(Vector) *z)
{
    Py_ssize_t n = plan->n;
    const REAL *turns = plan->turns;
    NAME(Vector) first = z[0], last = z[2 * n];
    for (Py_ssize_t k = 1; k <= n / 2; k++) {
        NAME(Vector) *low = z + 2 * k, *high = z + 2 * (n - k);
        const REAL a = turns[2 * k], b = turns[2 * k + 1];
        NAME(Vector) even_re = low[0] + high[0], even_im = low[1] - high[1];
        NAME(Vector) apart_re = low[0] - high[0], apart_im = low[1] + high[1];
        NAME(Vector) odd_re = apart_re * a + apart_im * b, odd_im = apart_im * a - apart_re * b;
        low[0] = even_re - odd_im;
        low[1] = even_im + odd_re;
        if (2 * k < n) {
            high[0] = even_re + odd_im;
            high[1] = odd_re - even_im;
        }
    }
    z[0] = first + last;
    z[1] = first - last;
}

/* ---- to the lanes, and back */

INLINE void /* rows of numbers that are `step` apart become lanes */
NAME(to_lanes)(const REAL *x, Py_ssize_t step, Py_ssize_t numbers, NAME(Vector) *lanes)
{
    REAL *to = (REAL *)lanes;
    Py_ssize_t i = 0;
    for (; i + WIDTH <= numbers; i += WIDTH) {
        NAME(turn)(x + i, step, to + i * WIDTH, WIDTH);
    }
    for (; i < numbers; i++) {
        for (Py_ssize_t lane = 0; lane < WIDTH; lane++) {
            to[i * WIDTH + lane] = x[lane * step + i];
        }
    }
}

INLINE void
NAME(from_lanes)(const NAME(Vector) *lanes, Py_ssize_t numbers, REAL *out, Py_ssize_t step)
{
    const REAL *from = (const REAL *)lanes;
    Py_ssize_t i = 0;
    for (; i + WIDTH <= numbers; i += WIDTH) {
        NAME(turn)(from + i * WIDTH, WIDTH, out + i, step);
    }
    for (; i < numbers; i++) {
        for (Py_ssize_t lane = 0; lane < WIDTH; lane++) {
            out[lane * step + i] = from[i * WIDTH + lane];
        }
    }
}

INLINE void /* neighbouring columns of complex numbers, `inner` to a row */
NAME(columns_to_lanes)(const REAL *x, Py_ssize_t inner, Py_ssize_t n, Py_ssize_t count, NAME(Vector) *lanes)
{
    REAL *to = (REAL *)lanes;
    for (Py_ssize_t i = 0; i < n; i++, x += 2 * inner, to += 2 * WIDTH) {
        for (Py_ssize_t lane = 0; lane < count; lane++) {
            to[lane] = x[2 * lane];
            to[WIDTH + lane] = x[2 * lane + 1];
        }
    }
}

INLINE void
NAME(columns_from_lanes)(const NAME(Vector) *lanes, Py_ssize_t n, Py_ssize_t count, REAL *out, Py_ssize_t inner)
{
    const REAL *from = (const REAL *)lanes;
    for (Py_ssize_t i = 0; i < n; i++, out += 2 * inner, from += 2 * WIDTH) {
        for (Py_ssize_t lane = 0; lane < count; lane++) {
            out[2 * lane] = from[lane];
            out[2 * lane + 1] = from[WIDTH + lane];
        }
    }
}

INLINE NAME(Vector) * /* the transforms of what the lanes hold */
NAME(in_lanes)(const Signals *signals, NAME(Vector) *x, NAME(Vector) *y)
{
    int backwards = signals->kind == INVERSE || signals->kind == TO_REAL;
    if (signals->kind == TO_REAL) {
        NAME(spectrum_of_halves)(signals->plan, x);
    }
    NAME(Vector) *found = NAME(passes)(signals->plan, x, y, backwards);
    if (signals->kind == OF_REAL) {
        NAME(halves_of_spectrum)(signals->plan, found);
    }
    if (signals->factor != 1) {
        const REAL factor = (REAL)signals->factor;
        for (Py_ssize_t k = 0; k < 2 * (signals->plan->n + 1); k++) {
            found[k] *= factor;
        }
    }
    return found;
}

/* Groups of up to WIDTH signals, counted through all that the array holds. */
CLONES static void
NAME(transform)(void *context, Py_ssize_t first, Py_ssize_t last)
{
    Signals *signals = context;
    const Py_ssize_t n = signals->plan->n, numbers_in = signals->numbers_in, numbers_out = signals->numbers_out;
    const Py_ssize_t inner = signals->inner, across = (inner + WIDTH - 1) / WIDTH;
    size_t bytes = sizeof(NAME(Vector)) * 2 * (n + 1);
    char *memory = borrow(3 * bytes + ALIGNMENT);
    if (memory == NULL) {
        atomic_store(&signals->failed, 1);
        return;
    }
    NAME(Vector) *x = (NAME(Vector) *)(memory + ALIGNMENT - (size_t)memory % ALIGNMENT), *y = x + 2 * (n + 1);
    REAL *rows = (REAL *)(y + 2 * (n + 1)); /* as long as WIDTH signals, for the last ones */
    for (Py_ssize_t group = first; group < last; group++) {
        if (inner > 1) {
            Py_ssize_t column = group % across * WIDTH, count = inner - column < WIDTH ? inner - column : WIDTH;
            Py_ssize_t start = 2 * (group / across * n * inner + column);
            if (count < WIDTH) {
                memset(x, 0, bytes);
            }
            NAME(columns_to_lanes)((const REAL *)signals->x + start, inner, n, count, x);
            NAME(columns_from_lanes)(NAME(in_lanes)(signals, x, y), n, count, (REAL *)signals->out + start, inner);
            continue;
        }
        Py_ssize_t row = group * WIDTH, count = signals->outer - row < WIDTH ? signals->outer - row : WIDTH;
        const REAL *from = (const REAL *)signals->x + row * numbers_in;
        REAL *out = (REAL *)signals->out + row * numbers_out;
        if (count == WIDTH) {
            NAME(to_lanes)(from, numbers_in, numbers_in, x);
            NAME(from_lanes)(NAME(in_lanes)(signals, x, y), numbers_out, out, numbers_out);
        }
        else {
            memset(rows, 0, bytes);
            memcpy(rows, from, count * numbers_in * sizeof(REAL));
            NAME(to_lanes)(rows, numbers_in, numbers_in, x);
            NAME(from_lanes)(NAME(in_lanes)(signals, x, y), numbers_out, rows, numbers_out);
            memcpy(out, rows, count * numbers_out * sizeof(REAL));
        }
    }
    give_back(memory);
}

/* Sorting the items of a row: a key, and the place it came from, so that no two are equal. Included for each BITS of a
 * key; see kernels/sorting.c.
 */
#define NAMED(name) JOIN(name, BITS)

#if BITS == 32
typedef npy_uint64 NAMED(Item); /* the key above the place */
#define KEY(item) ((npy_uint32)((item) >> 32))
#define PLACE(item) ((npy_int64)((item) & 0xFFFFFFFF))
#define ITEM(key, place) ((npy_uint64)(key) << 32 | (npy_uint64)(place))
#define LESS(a, b) ((a) < (b))
#else
typedef struct {
    npy_uint64 key;
    npy_int64 place;
} NAMED(Item);
#define KEY(item) ((item).key)
#define PLACE(item) ((item).place)
#define ITEM(key, place) ((NAMED(Item)){key, place})
#define LESS(a, b) ((a).key < (b).key || ((a).key == (b).key && (a).place < (b).place))
#endif

static void
NAMED(insert)(NAMED(Item) *items, Py_ssize_t n)
{
    for (Py_ssize_t i = 1; i < n; i++) {
        NAMED(Item) item = items[i];
        Py_ssize_t j = i;
        for (; j > 0 && LESS(item, items[j - 1]); j--) {
            items[j] = items[j - 1];
        }
        items[j] = item;
    }
}

/* Every key is compared with all, which takes no decisions: for each of a few keys, how many come before it. */
CLONES static void
NAMED(rank_keys)(const NAMED(Key) *keys, int n, int *ranks)
{
    for (int i = 0; i < n; i++) {
        NAMED(Key) key = keys[i];
        int before = 0;
        for (int j = 0; j < i; j++) {
            before += keys[j] <= key;
        }
        for (int j = i + 1; j < n; j++) {
            before += keys[j] < key;
        }
        ranks[i] = before;
    }
}

/* Digit by digit, from the last one, of keys alone: places are in order at first, and stay so. `other` has as much room;
 * the result is in `items`. */
INLINE void
NAMED(sort_by_digits)(NAMED(Item) *items, NAMED(Item) *other, Py_ssize_t n, const int WIDTH, npy_uint32 *counts)
{
    const int DIGITS = (BITS + WIDTH - 1) / WIDTH, BINS = 1 << WIDTH;
    NAMED(Item) *from = items, *to = other;
    memset(counts, 0, sizeof(*counts) * DIGITS * BINS);
    for (Py_ssize_t i = 0; i < n; i++) {
        for (int d = 0; d < DIGITS; d++) {
            counts[d * BINS + (KEY(items[i]) >> (d * WIDTH) & (BINS - 1))]++;
        }
    }
    for (int d = 0; d < DIGITS; d++) {
        npy_uint32 *places = counts + d * BINS, total = 0;
        if (places[KEY(from[0]) >> (d * WIDTH) & (BINS - 1)] == (npy_uint32)n) {
            continue; /* all have the same */
        }
        for (int b = 0; b < BINS; b++) {
            npy_uint32 count = places[b];
            places[b] = total;
            total += count;
        }
        for (Py_ssize_t i = 0; i < n; i++) {
            to[places[KEY(from[i]) >> (d * WIDTH) & (BINS - 1)]++] = from[i];
        }
        NAMED(Item) *swapped = from;
        from = to;
        to = swapped;
    }
    if (from != items) {
        memcpy(items, from, n * sizeof(*items));
    }
}

/* Items whose places are in order. */
static void
NAMED(sort_items)(NAMED(Item) *items, NAMED(Item) *other, Py_ssize_t n, npy_uint32 *counts)
{
    if (n < LONG) {
        NAMED(sort_by_digits)(items, other, n, 8, counts);
    }
    else {
        NAMED(sort_by_digits)(items, other, n, 11, counts);
    }
}

/* Exchange items until none before `*i` is above any from there on; those between `*j` and `*i` are where they belong. */
static void
NAMED(part)(NAMED(Item) *items, Py_ssize_t low, Py_ssize_t high, Py_ssize_t *left, Py_ssize_t *right)
{
    Py_ssize_t step = (high - low) / 4, i = low, j = high;
    NAMED(Item) sample[5] = {items[low], items[low + step], items[low + 2 * step], items[high - step], items[high]};
    NAMED(insert)(sample, 5);
    NAMED(Item) pivot = sample[2];
    while (i <= j) {
        while (LESS(items[i], pivot)) {
            i++;
        }
        while (LESS(pivot, items[j])) {
            j--;
        }
        if (i <= j) {
            NAMED(Item) swapped = items[i];
            items[i++] = items[j];
            items[j--] = swapped;
        }
    }
    *left = i;
    *right = j;
}

/* Bring the item of that rank to where it belongs, with none above it before it. */
static void
NAMED(select)(NAMED(Item) *items, Py_ssize_t n, Py_ssize_t rank)
{
    Py_ssize_t low = 0, high = n - 1, i, j;
    while (high - low > FEW) {
        NAMED(part)(items, low, high, &i, &j);
        if (rank > j && rank < i) {
            return;
        }
        if (rank <= j) {
            high = j;
        }
        else {
            low = i;
        }
    }
    NAMED(insert)(items + low, high - low + 1);
}

/* Items in any order. */
static void
NAMED(sort_unordered)(NAMED(Item) *items, Py_ssize_t n)
{
    while (n > FEW) {
        Py_ssize_t i, j;
        NAMED(part)(items, 0, n - 1, &i, &j);
        if (j + 1 < n - i) { /* the shorter part first: so there are never many parts in waiting */
            NAMED(sort_unordered)(items, j + 1);
            items += i;
            n -= i;
        }
        else {
            NAMED(sort_unordered)(items + i, n - i);
            n = j + 1;
        }
    }
    NAMED(insert)(items, n);
}

/* The first of these keys that is below the limit, or their number. */
CLONES static Py_ssize_t
NAMED(find_below)(const NAMED(Key) *keys, Py_ssize_t i, Py_ssize_t n, NAMED(Key) limit)
{
    for (; i + 16 <= n; i += 16) {
        int found = 0;
        for (int k = 0; k < 16; k++) {
            found |= keys[i + k] < limit;
        }
        if (found) {
            break;
        }
    }
    while (i < n && keys[i] >= limit) {
        i++;
    }
    return i;
}

/* The items of the few (`wanted`) least keys, sorted: each is put in its place among those that were found so far. */
static void
NAMED(keep_few)(const NAMED(Key) *keys, Py_ssize_t n, NAMED(Item) *items, Py_ssize_t wanted)
{
    for (Py_ssize_t i = 0; i < wanted; i++) {
        items[i] = ITEM(keys[i], i);
    }
    NAMED(insert)(items, wanted);
    for (Py_ssize_t i = wanted; (i = NAMED(find_below)(keys, i, n, KEY(items[wanted - 1]))) < n; i++) {
        Py_ssize_t j = wanted - 1;
        for (; j > 0 && KEY(items[j - 1]) > keys[i]; j--) {
            items[j] = items[j - 1];
        }
        items[j] = ITEM(keys[i], i);
    }
}

/* The items of the `wanted` least keys, sorted, into `items`; there is room for `room`, which is more. */
static void
NAMED(keep_least)(const NAMED(Key) *keys, Py_ssize_t n, NAMED(Item) *items, Py_ssize_t wanted, Py_ssize_t room)
{
    Py_ssize_t held = 0, i = 0;
    for (; i < n && held < room; i++) {
        items[held++] = ITEM(keys[i], i);
    }
    while (held > wanted) {
        NAMED(select)(items, held, wanted - 1);
        held = wanted;
        NAMED(Key) limit = KEY(items[wanted - 1]); /* what equals it comes later, and is not wanted */
        while (held < room && (i = NAMED(find_below)(keys, i, n, limit)) < n) {
            items[held++] = ITEM(keys[i], i);
            i++;
        }
    }
    NAMED(sort_unordered)(items, wanted);
}

/* The places of row `keys` in order, the first `wanted` of them, or that of one rank. */
static void
NAMED(order)(const NAMED(Key) *keys, Py_ssize_t n, const Order *order, NAMED(Item) *items, npy_uint32 *counts,
             npy_int64 *out)
{
    if (order->rank < 0 && order->wanted * 4 < n && order->wanted <= FEW) {
        NAMED(keep_few)(keys, n, items, order->wanted);
    }
    else if (order->rank < 0 && order->wanted * 4 < n) {
        NAMED(keep_least)(keys, n, items, order->wanted, room_for(order));
    }
    else if (n <= FEW) {
        int ranks[FEW];
        NAMED(rank_keys)(keys, (int)n, ranks);
        for (Py_ssize_t i = 0; i < n; i++) {
            items[ranks[i]] = ITEM(keys[i], i);
        }
        items += order->rank < 0 ? 0 : order->rank;
    }
    else {
        for (Py_ssize_t i = 0; i < n; i++) {
            items[i] = ITEM(keys[i], i);
        }
        if (order->rank >= 0) {
            NAMED(select)(items, n, order->rank);
            items += order->rank;
        }
        else {
            NAMED(sort_items)(items, items + n, n, counts);
        }
    }
    for (Py_ssize_t i = 0; i < order->wanted; i++) {
        out[i] = PLACE(items[i]);
    }
}
#undef NAMED
#undef KEY
#undef PLACE
#undef ITEM
#undef LESS

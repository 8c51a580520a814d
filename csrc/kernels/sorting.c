/* The order of the elements of rows: equal ones as they came, NaN as the largest.
 *
 * An element becomes an unsigned integer of the same order, its key. Keys are sorted digit by digit, which takes no
 * comparisons and leaves equal ones as they are; for the first few, those that are above the last one of them are left
 * out while they are read. Rows are divided among threads.
 */
#include "kernels/kernels.h"
#include "loops/compile.h"
#include "loops/threads.h"

#include <stdatomic.h>

#define FEW 32    /* items that are sorted one by one */
#define LONG 4096 /* items for which larger digits pay */
#define MOST_COUNTS (6 << 11) /* six digits of 11 bits; or eight of 8 */

typedef npy_uint32 Key_32;
typedef npy_uint64 Key_64;

typedef struct {
    const char *x;
    npy_int64 *out;
    Py_ssize_t n, wanted, rank; /* of a row; how many places are wanted of it; or, if not -1, the one of this rank */
    int type, is_descending;
    size_t size; /* of an element */
    atomic_int lacks_memory;
} Order;

/* How many items of the least keys are looked at together. */
static Py_ssize_t
room_for(const Order *order)
{
    return 2 * order->wanted + 64;
}

#define BITS 32
#include "kernels/sorting_rows.h"
#undef BITS
#define BITS 64
#include "kernels/sorting_rows.h"
#undef BITS

/* ---- keys */

#define INTEGERS(NAME, TYPE, KEY, LEAST)                                                       \
    CLONES static void NAME(const TYPE *x, KEY *keys, Py_ssize_t n, KEY flip)                  \
    {                                                                                          \
        for (Py_ssize_t i = 0; i < n; i++) {                                                   \
            keys[i] = ((KEY)x[i] - (KEY)(LEAST)) ^ flip;                                       \
        }                                                                                      \
    }

INTEGERS(keys_of_int8, npy_int8, Key_32, NPY_MIN_INT8)
INTEGERS(keys_of_uint8, npy_uint8, Key_32, 0)
INTEGERS(keys_of_int16, npy_int16, Key_32, NPY_MIN_INT16)
INTEGERS(keys_of_uint16, npy_uint16, Key_32, 0)
INTEGERS(keys_of_int32, npy_int32, Key_32, NPY_MIN_INT32)
INTEGERS(keys_of_uint32, npy_uint32, Key_32, 0)
INTEGERS(keys_of_int64, npy_int64, Key_64, NPY_MIN_INT64)
INTEGERS(keys_of_uint64, npy_uint64, Key_64, 0)

/* negative numbers count backwards; -0 is 0 */
#define FLOATS(NAME, KEY, SIGN, INFINITE)                                                      \
    CLONES static void NAME(const KEY *x, KEY *keys, Py_ssize_t n, KEY flip)                   \
    {                                                                                          \
        for (Py_ssize_t i = 0; i < n; i++) {                                                   \
            KEY bits = x[i], size = bits & ~(SIGN);                                            \
            bits = size == 0 ? 0 : bits;                                                       \
            KEY key = bits ^ ((bits & (SIGN)) ? ~(KEY)0 : (SIGN));                             \
            keys[i] = (size > (INFINITE) ? ~(KEY)0 : key) ^ flip;                              \
        }                                                                                      \
    }

FLOATS(keys_of_float, Key_32, 0x80000000u, 0x7F800000u)
FLOATS(keys_of_double, Key_64, 0x8000000000000000ull, 0x7FF0000000000000ull)

static void
keys_of_half(const npy_uint16 *x, Key_32 *keys, Py_ssize_t n, Key_32 flip)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        Key_32 size = x[i] & 0x7FFF, key = size == 0 ? 0x8000 : x[i] & 0x8000 ? 0x8000 - size : 0x8000 + size;
        keys[i] = (size > 0x7C00 ? 0xFFFFFFFF : key) ^ flip;
    }
}

static void
make_keys(const Order *order, const void *x, void *keys)
{
    Key_64 flip = order->is_descending ? ~(Key_64)0 : 0;
    Py_ssize_t n = order->n;
    switch (order->type) {
    case NPY_FLOAT: keys_of_float(x, keys, n, (Key_32)flip); break;
    case NPY_DOUBLE: keys_of_double(x, keys, n, flip); break;
    case NPY_HALF: keys_of_half(x, keys, n, (Key_32)flip); break;
    case NPY_BOOL: case NPY_UINT8: keys_of_uint8(x, keys, n, (Key_32)flip); break;
    case NPY_INT8: keys_of_int8(x, keys, n, (Key_32)flip); break;
    case NPY_INT16: keys_of_int16(x, keys, n, (Key_32)flip); break;
    case NPY_UINT16: keys_of_uint16(x, keys, n, (Key_32)flip); break;
    case NPY_INT32: keys_of_int32(x, keys, n, (Key_32)flip); break;
    case NPY_UINT32: keys_of_uint32(x, keys, n, (Key_32)flip); break;
    case NPY_INT64: keys_of_int64(x, keys, n, flip); break;
    default: keys_of_uint64(x, keys, n, flip);
    }
}

/* The type as `make_keys` knows it, and the bytes of its elements; 0 if it is another. */
static size_t
size_of(PyArrayObject *x, int *type)
{
    size_t size = PyArray_ITEMSIZE(x);
    *type = PyArray_TYPE(x);
    if (PyArray_ISINTEGER(x)) { /* of several types of one size, one */
        static const int signed_types[] = {0, NPY_INT8, NPY_INT16, 0, NPY_INT32, 0, 0, 0, NPY_INT64};
        static const int unsigned_types[] = {0, NPY_UINT8, NPY_UINT16, 0, NPY_UINT32, 0, 0, 0, NPY_UINT64};
        *type = size > 8 ? 0 : PyArray_ISSIGNED(x) ? signed_types[size] : unsigned_types[size];
        return *type == 0 ? 0 : size;
    }
    int is_known = *type == NPY_FLOAT || *type == NPY_DOUBLE || *type == NPY_HALF || *type == NPY_BOOL;
    return is_known ? size : 0;
}

/* ---- rows */

#define ORDER_ROWS(BITS)                                                                                     \
    static void order_rows_##BITS(void *context, Py_ssize_t first, Py_ssize_t last)                          \
    {                                                                                                        \
        Order *order = context;                                                                              \
        Py_ssize_t n = order->n, room = 2 * n > room_for(order) ? 2 * n : room_for(order);                   \
        Item_##BITS *items = malloc(room * sizeof(*items));                                                  \
        Key_##BITS *keys = malloc(n * sizeof(*keys));                                                        \
        npy_uint32 *counts = malloc(MOST_COUNTS * sizeof(*counts));                                          \
        if (items == NULL || keys == NULL || counts == NULL) {                                               \
            atomic_store(&order->lacks_memory, 1);                                                           \
        }                                                                                                    \
        else {                                                                                               \
            for (Py_ssize_t row = first; row < last; row++) {                                                \
                make_keys(order, order->x + row * n * order->size, keys);                                    \
                order_##BITS(keys, n, order, items, counts, order->out + row * order->wanted);               \
            }                                                                                                \
        }                                                                                                    \
        free(items);                                                                                         \
        free(keys);                                                                                          \
        free(counts);                                                                                        \
    }

ORDER_ROWS(32)
ORDER_ROWS(64)

/* order_rows(x, whether descending, wanted, rank): the places of the elements of every row (the last dimension) in order,
 * `wanted` of them; or if `rank` is not -1, the one of this rank */
PyObject *
order_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    PyArrayObject *x = (PyArrayObject *)arguments[0];
    if (count != 4 || !PyArray_CheckExact(x) || !PyArray_ISCARRAY_RO(x) || PyArray_NDIM(x) == 0 || PyArray_SIZE(x) == 0) {
        Py_RETURN_NONE;
    }
    int ndim = PyArray_NDIM(x);
    Order order = {.x = PyArray_DATA(x), .n = PyArray_DIM(x, ndim - 1), .is_descending = arguments[1] == Py_True};
    order.size = size_of(x, &order.type);
    order.wanted = PyLong_AsSsize_t(arguments[2]);
    order.rank = PyLong_AsSsize_t(arguments[3]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (order.size == 0 || order.n > NPY_MAX_INT32 || order.wanted < 1 || order.wanted > order.n || order.rank >= order.n ||
        (order.rank >= 0 && order.wanted != 1)) {
        Py_RETURN_NONE;
    }
    npy_intp dims[NPY_MAXDIMS];
    memcpy(dims, PyArray_DIMS(x), ndim * sizeof(*dims));
    dims[ndim - 1] = order.wanted;
    PyObject *out = new_array(ndim, dims, NPY_INT64);
    if (out == NULL) {
        return NULL;
    }
    order.out = data_of(out);
    int few = order.wanted * 4 < order.n || order.rank >= 0;
    double nanoseconds = (few ? 3.0 : order.size == 8 ? 20.0 : 9.0) * PyArray_SIZE(x);
    WORK(PyArray_SIZE(x), divide(order.size == 8 ? order_rows_64 : order_rows_32, &order, PyArray_SIZE(x) / order.n,
                                 nanoseconds));
    if (order.lacks_memory) {
        Py_DECREF(out);
        return PyErr_NoMemory();
    }
    return out;
}

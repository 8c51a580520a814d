/* See casts.h. Half precision: float16 by the processor's own instruction where it has one, bfloat16 as the upper half of
 * a float, to the nearest, and of two that are equally near to the even one.
 */
#define NO_IMPORT_UFUNC
#include "kernels/casts.h"

#include "formula/blocks.h"
#include "kernels/kernels.h"
#include "loops/compile.h"
#include "loops/threads.h"

#include <stdatomic.h>

#define CAST(FROM, TO)                                                                                      \
    CLONES static void cast_##FROM##_##TO(char **args, const npy_intp *count, const npy_intp *strides, void *data) \
    {                                                                                                       \
        if (strides[0] == sizeof(FROM) && strides[1] == sizeof(TO)) {                                       \
            const FROM *from = (const FROM *)args[0];                                                       \
            TO *to = (TO *)args[1];                                                                         \
            _Pragma("GCC ivdep") for (npy_intp k = 0; k < *count; k++) { to[k] = (TO)from[k]; }             \
            return;                                                                                         \
        }                                                                                                   \
        for (npy_intp k = 0; k < *count; k++) {                                                             \
            *(TO *)(args[1] + k * strides[1]) = (TO) * (const FROM *)(args[0] + k * strides[0]);            \
        }                                                                                                   \
    }

#define CASTS(FROM) CAST(FROM, npy_float) CAST(FROM, npy_double)

CASTS(npy_bool)
CASTS(npy_ubyte)
CASTS(npy_byte)
CASTS(npy_short)
CASTS(npy_int)
CASTS(npy_long)
CASTS(npy_float)
CASTS(npy_double)

static const struct {
    int from;
    PyUFuncGenericFunction to[2]; /* float, double */
} casts[] = {{NPY_BOOL, {cast_npy_bool_npy_float, cast_npy_bool_npy_double}},
             {NPY_UBYTE, {cast_npy_ubyte_npy_float, cast_npy_ubyte_npy_double}},
             {NPY_BYTE, {cast_npy_byte_npy_float, cast_npy_byte_npy_double}},
             {NPY_SHORT, {cast_npy_short_npy_float, cast_npy_short_npy_double}},
             {NPY_INT, {cast_npy_int_npy_float, cast_npy_int_npy_double}},
             {NPY_LONG, {cast_npy_long_npy_float, cast_npy_long_npy_double}},
             {NPY_FLOAT, {cast_npy_float_npy_float, cast_npy_float_npy_double}},
             {NPY_DOUBLE, {cast_npy_double_npy_float, cast_npy_double_npy_double}}};

/* ---- half precision; contiguous */

typedef void (*Narrow)(const void *from, void *to, npy_intp count);

CLONES static void
bfloat16_of_float(const void *from, void *to, npy_intp count)
{
    const npy_uint32 *bits = from;
    npy_uint16 *out = to;
    for (npy_intp k = 0; k < count; k++) {
        npy_uint32 x = bits[k], nearest = (x + 0x7fff + (x >> 16 & 1)) >> 16, nan = (x >> 16 & 0x8000) | 0x7fc0;
        out[k] = (npy_uint16)((x & 0x7fffffff) > 0x7f800000 ? nan : nearest);
    }
}

CLONES static void
float_of_bfloat16(const void *from, void *to, npy_intp count)
{
    const npy_uint16 *bits = from;
    npy_uint32 *out = to;
    for (npy_intp k = 0; k < count; k++) {
        out[k] = (npy_uint32)bits[k] << 16;
    }
}

#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx512f"))) static npy_intp
half_of_float_16(const float *x, npy_uint16 *out, npy_intp count)
{
    npy_intp k = 0;
    for (; k + 16 <= count; k += 16) {
        __m256i half = _mm512_cvtps_ph(_mm512_loadu_ps(x + k), _MM_FROUND_TO_NEAREST_INT);
        _mm256_storeu_si256((__m256i *)(out + k), half);
    }
    return k;
}

__attribute__((target("avx512f"))) static npy_intp
float_of_half_16(const npy_uint16 *x, float *out, npy_intp count)
{
    npy_intp k = 0;
    for (; k + 16 <= count; k += 16) {
        _mm512_storeu_ps(out + k, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(x + k))));
    }
    return k;
}

#define HAS_WIDE __builtin_cpu_supports("avx512f")

__attribute__((target("avx,f16c"))) static void
half_of_float(const void *from, void *to, npy_intp count)
{
    const float *x = from;
    npy_uint16 *out = to;
    npy_intp k = HAS_WIDE ? half_of_float_16(x, out, count) : 0;
    for (; k + 8 <= count; k += 8) {
        _mm_storeu_si128((__m128i *)(out + k), _mm256_cvtps_ph(_mm256_loadu_ps(x + k), _MM_FROUND_TO_NEAREST_INT));
    }
    for (; k < count; k++) {
        out[k] = _cvtss_sh(x[k], _MM_FROUND_TO_NEAREST_INT);
    }
}

__attribute__((target("avx,f16c"))) static void
float_of_half(const void *from, void *to, npy_intp count)
{
    const npy_uint16 *x = from;
    float *out = to;
    npy_intp k = HAS_WIDE ? float_of_half_16(x, out, count) : 0;
    for (; k + 8 <= count; k += 8) {
        _mm256_storeu_ps(out + k, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + k))));
    }
    for (; k < count; k++) {
        out[k] = _cvtsh_ss(x[k]);
    }
}

#define HAS_HALF __builtin_cpu_supports("f16c")
#else
#define HAS_HALF 0
#define half_of_float NULL
#define float_of_half NULL
#endif

static int
is_bfloat16(const PyArray_Descr *descr)
{
    const char *name = descr->typeobj->tp_name, *tail = strrchr(name, '.');
    return PyDataType_ELSIZE(descr) == 2 && strcmp(tail == NULL ? name : tail + 1, "bfloat16") == 0;
}

static const Narrow narrow_casts[2][2] = {{float_of_half, half_of_float}, {float_of_bfloat16, bfloat16_of_float}};

static const Narrow *
narrow_cast(const PyArray_Descr *from, const PyArray_Descr *to)
{
    int narrows = from->type_num == NPY_FLOAT;
    const PyArray_Descr *narrow = narrows ? to : from;
    if (!narrows && to->type_num != NPY_FLOAT) {
        return NULL;
    }
    return narrow->type_num == NPY_HALF && HAS_HALF ? &narrow_casts[0][narrows]
           : is_bfloat16(narrow)                    ? &narrow_casts[1][narrows]
                                                    : NULL;
}

/* A step of a program, by the function that `data` points to: what is one number for all elements is cast once. */
static void
narrow_loop(char **args, const npy_intp *count, const npy_intp *strides, void *data)
{
    npy_intp found = strides[0] == 0 && *count > 1 ? 1 : *count;
    (*(const Narrow *)data)(args[0], args[1], found);
    for (npy_intp k = found; k < *count; k++) {
        memcpy(args[1] + k * strides[1], args[1], strides[1]);
    }
}

static PyUFuncGenericFunction
narrow_loop_of(int from, int to, void **data)
{
    PyArray_Descr *first = PyArray_DescrFromType(from), *second = PyArray_DescrFromType(to);
    *data = first == NULL || second == NULL ? NULL : (void *)narrow_cast(first, second);
    Py_XDECREF(first);
    Py_XDECREF(second);
    return *data == NULL ? NULL : narrow_loop;
}

static PyUFuncGenericFunction
plain_cast(int from, int to)
{
    for (size_t k = 0; k < sizeof(casts) / sizeof(casts[0]); k++) {
        if (casts[k].from == from && (to == NPY_FLOAT || to == NPY_DOUBLE)) {
            return casts[k].to[to == NPY_DOUBLE];
        }
    }
    return NULL;
}

PyUFuncGenericFunction
cast_of(int from, int to, void **data)
{
    *data = NULL;
    return is_narrow_type(from) || is_narrow_type(to) ? narrow_loop_of(from, to, data) : plain_cast(from, to);
}

/* ---- arrays */

#define MANY 32768 /* elements that are worth it */
#define PIECE 8192

typedef struct {
    PyUFuncGenericFunction loop;
    const Narrow *narrow; /* instead of it */
    const char *from;
    char *to;
    npy_intp count, from_size, to_size;
} Cast;

static void
cast_pieces(void *context, Py_ssize_t first, Py_ssize_t last)
{
    Cast *cast = context;
    npy_intp start = first * PIECE, end = last * PIECE < cast->count ? last * PIECE : cast->count;
    npy_intp count = end - start, strides[] = {cast->from_size, cast->to_size};
    char *args[] = {(char *)cast->from + start * cast->from_size, cast->to + start * cast->to_size};
    if (cast->narrow != NULL) {
        (*cast->narrow)(args[0], args[1], count);
        forget_exceptions();
    }
    else {
        cast->loop(args, &count, strides, NULL);
    }
}

/* The numbers of an array in another dtype (borrowed), in the order of the array; None: NumPy should do it. Half precision
 * takes NumPy ten times as long, however few there are. */
static PyObject *
converted_here(PyArrayObject *array, PyArray_Descr *descr)
{
    npy_intp strides[NPY_MAXDIMS], size = PyDataType_ELSIZE(descr);
    Cast cast = {.from = PyArray_BYTES(array), .count = PyArray_SIZE(array), .from_size = PyArray_ITEMSIZE(array)};
    cast.narrow = narrow_cast(PyArray_DESCR(array), descr);
    cast.loop = cast.narrow != NULL || cast.count < MANY ? NULL : plain_cast(PyArray_TYPE(array), descr->type_num);
    cast.to_size = size;
    if ((cast.narrow == NULL && cast.loop == NULL) || !PyArray_ISONESEGMENT(array) || !PyArray_ISBEHAVED_RO(array) ||
        !PyDataType_ISNOTSWAPPED(descr)) {
        Py_RETURN_NONE;
    }
    for (int d = 0; d < PyArray_NDIM(array); d++) {
        strides[d] = PyArray_STRIDE(array, d) / cast.from_size * size;
    }
    Py_INCREF(descr);
    PyObject *out = new_large(PyArray_NDIM(array), PyArray_DIMS(array), strides, descr);
    if (out == NULL) {
        return NULL;
    }
    cast.to = PyArray_BYTES((PyArrayObject *)out);
    double nanoseconds = 0.05 * (cast.from_size + size) * cast.count;
    WORK(cast.count, divide(cast_pieces, &cast, (cast.count + PIECE - 1) / PIECE, nanoseconds));
    return out;
}

PyObject *
cast_array(PyArrayObject *array, PyArray_Descr *descr)
{
    PyObject *out = converted_here(array, descr);
    if (out == Py_None) {
        Py_DECREF(out);
        return PyArray_CastToType(array, descr, 0);
    }
    Py_DECREF(descr);
    return out;
}

/* converted(array, dtype): the same numbers in another dtype, in the order of the array; None: NumPy should do it. Numbers
 * beyond the range of the dtype are infinite. */
PyObject *
converted(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2 || !PyArray_CheckExact(arguments[0]) || !PyArray_DescrCheck(arguments[1])) {
        Py_RETURN_NONE;
    }
    return converted_here((PyArrayObject *)arguments[0], (PyArray_Descr *)arguments[1]);
}

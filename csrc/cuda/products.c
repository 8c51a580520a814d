/* Matrix products: by cuBLAS, which is found when the first one is asked for; on the emulated device in plain loops. */
#include "cuda/cuda.h"
#include "cuda/product.h"

#include <complex.h>
#include <dlfcn.h>

typedef void *Handle;

static int (*blas_create)(Handle *), (*blas_set_stream)(Handle, Stream), (*blas_set_workspace)(Handle, void *, size_t);

typedef int (*BatchedProduct)(Handle, int, int, int, int, int, const void *, const void *, int, long long, const void *,
                              int, long long, const void *, void *, int, long long, int);
static BatchedProduct batched[4]; /* float32, float64, complex64, complex128 */

#define LOOPS(T)                                                                                                       \
    for (int z = 0; z < p->batch; z++) {                                                                               \
        const T *a = (const T *)p->a + z * p->step_a, *b = (const T *)p->b + z * p->step_b;                            \
        T *c = (T *)p->c + z * p->step_c;                                                                              \
        for (int j = 0; j < p->n; j++) {                                                                               \
            for (int i = 0; i < p->m; i++) {                                                                           \
                T sum = 0;                                                                                             \
                for (int l = 0; l < p->k; l++) {                                                                       \
                    sum += (p->transposes_a ? a[l + (long)i * p->lda] : a[i + (long)l * p->lda]) *                     \
                           (p->transposes_b ? b[j + (long)l * p->ldb] : b[l + (long)j * p->ldb]);                      \
                }                                                                                                      \
                c[i + (long)j * p->ldc] = sum;                                                                         \
            }                                                                                                          \
        }                                                                                                              \
    }

static void
multiply_on_host(const Product *p)
{
    switch (p->type) {
    case CODE_F32: LOOPS(float) break;
    case CODE_F64: LOOPS(double) break;
    case CODE_C64: LOOPS(float complex) break;
    default: LOOPS(double complex)
    }
}

/* It has a workspace of its own. */
Handle
blas_handle(void)
{
    if (the_lane->blas == NULL) {
        Handle made = NULL;
        char *workspace = workspace_of(the_lane);
        if (workspace != NULL && blas_create(&made) == 0 && blas_set_stream(made, the_stream) == 0 &&
            blas_set_workspace(made, workspace, WORKSPACE_BYTES) == 0) {
            the_lane->blas = made;
        }
        else {
            PyErr_SetString(PyExc_RuntimeError, "cuBLAS could not be started on this device");
        }
    }
    return the_lane->blas;
}

int
issue_product(const void *product)
{
    const Product *p = product;
    if (is_emulated) {
        multiply_on_host(p);
        return 0;
    }
    const float complex singles[] = {1, 0};
    const double complex doubles[] = {1, 0};
    int is_double = p->type == CODE_F64 || p->type == CODE_C128;
    const void *one = is_double ? (const void *)&doubles[0] : &singles[0];
    const void *zero = is_double ? (const void *)&doubles[1] : &singles[1];
    Handle handle = blas_handle();
    int result = handle == NULL
                     ? -1
                     : batched[p->type - CODE_F32](handle, p->transposes_a, p->transposes_b, p->m, p->n, p->k, one, p->a,
                                                   p->lda, p->step_a, p->b, p->ldb, p->step_b, zero, p->c, p->ldc,
                                                   p->step_c, p->batch);
    if (result > 0) {
        PyErr_Format(PyExc_RuntimeError, "cuBLAS failed at a product of matrices, with status %d", result);
    }
    return result ? -1 : 0;
}

/* start_blas(path) */
PyObject *
module_start_blas(PyObject *module, PyObject *path)
{
    static const char *const names[] = {"cublasSgemmStridedBatched", "cublasDgemmStridedBatched",
                                        "cublasCgemmStridedBatched", "cublasZgemmStridedBatched"};
    const char *text = PyUnicode_AsUTF8(path);
    void *library = text == NULL ? NULL : dlopen(text, RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        if (text != NULL) {
            PyErr_Format(PyExc_RuntimeError, "cuBLAS cannot be loaded: %s", dlerror());
        }
        return NULL;
    }
    *(void **)&blas_create = dlsym(library, "cublasCreate_v2");
    *(void **)&blas_set_stream = dlsym(library, "cublasSetStream_v2");
    *(void **)&blas_set_workspace = dlsym(library, "cublasSetWorkspace_v2");
    for (int k = 0; k < 4; k++) {
        *(void **)&batched[k] = dlsym(library, names[k]);
    }
    if (blas_create == NULL || blas_set_stream == NULL || blas_set_workspace == NULL || batched[3] == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this is no cuBLAS that undertow knows: functions of it are missing");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- operands */

int
lies(const Array *array, int *step)
{
    npy_intp item = PyDataType_ELSIZE(array->dtype), rows = array->dims[array->nd - 2];
    npy_intp columns = array->dims[array->nd - 1], down = array->strides[array->nd - 2];
    npy_intp across = array->strides[array->nd - 1];
    if ((across == item || columns == 1) && ((down >= columns * item && down % item == 0) || rows == 1)) {
        *step = (int)(rows == 1 ? columns : down / item);
        return *step >= columns ? 0 : -1;
    }
    if ((down == item || rows == 1) && ((across >= rows * item && across % item == 0) || columns == 1)) {
        *step = (int)(columns == 1 ? rows : across / item);
        return *step >= rows ? 1 : -1;
    }
    return -1;
}

npy_intp
step_of_stack(const Array *array)
{
    npy_intp step = 0, count = 1;
    for (int d = array->nd - 3; d >= 0; d--) {
        if (array->dims[d] == 1) {
            continue;
        }
        if (count == 1) {
            step = array->strides[d];
        }
        else if (array->strides[d] != step * count) {
            return -1;
        }
        count *= array->dims[d];
    }
    return step;
}

static npy_intp
count_of_stack(const Array *array)
{
    npy_intp count = 1;
    for (int d = 0; d < array->nd - 2; d++) {
        count *= array->dims[d];
    }
    return count;
}

/* The operand as cuBLAS can take it: itself, or a copy; a new reference. */
static Array *
prepared(Array *array, int *order, int *step, npy_intp *stack)
{
    Array *found = (Array *)Py_NewRef(array);
    *order = lies(array, step);
    *stack = step_of_stack(array);
    if (*order < 0 || *stack < 0) {
        Py_SETREF(found, array_new(array->dtype, array->nd, array->dims, NULL));
        if (found != NULL && copy_into(found, array) < 0) {
            Py_CLEAR(found);
        }
        if (found != NULL) {
            *order = lies(found, step);
            *stack = step_of_stack(found);
        }
    }
    return found;
}

static Array *
multiply(Array *a, Array *b, Array *out)
{
    npy_intp item = PyDataType_ELSIZE(a->dtype), m = a->dims[a->nd - 2], k = a->dims[a->nd - 1];
    npy_intp n = b->dims[b->nd - 1], in_a = count_of_stack(a), in_b = count_of_stack(b), of_a, of_b;
    int order_a, order_b, step_a, step_b;
    /* a stack of small matrices times one: put in a row, they are one product, which is worth a copy */
    Array *rows = in_b == 1 && in_a > 1 && m < 256 ? contiguous(a) : (Array *)Py_NewRef(a);
    Array *left = rows == NULL ? NULL : prepared(rows, &order_a, &step_a, &of_a);
    Array *right = prepared(b, &order_b, &step_b, &of_b);
    Py_XDECREF(rows);
    if (left == NULL || right == NULL) {
        Py_XDECREF(left);
        Py_XDECREF(right);
        return NULL;
    }
    if (in_b == 1 && in_a > 1 && left->is_contiguous) { /* a stack times one matrix is one product */
        m *= in_a;
        in_a = 1;
        order_a = 0;
        step_a = (int)k;
    }
    Product p;
    memset(&p, 0, sizeof(p)); /* equal products are equal to the last byte */
    p = (Product){.transposes_a = order_b, .transposes_b = order_a, .m = (int)n, .n = (int)m, .k = (int)k, .lda = step_b,
                 .ldb = step_a, .ldc = (int)n, .batch = (int)(in_a > in_b ? in_a : in_b), .type = a->code, .out_type = a->code,
                 .step_a = in_b == 1 ? 0 : of_b / item, .step_b = in_a == 1 ? 0 : of_a / item,
                 .step_c = (long long)m * n, .a = right->data, .b = left->data, .c = out->data};
    static const unsigned grid[] = {1, 1, 1};
    int is_long = (double)m * n * k * p.batch > 5e8;
    int status = light_takes(p.type) ? enqueue_light(&p, NULL, is_long)
                                     : enqueue(PRODUCT_ENTRY, NULL, grid, 1, &p, sizeof(p), is_long);
    Py_DECREF(left);
    Py_DECREF(right);
    return status < 0 ? NULL : (Array *)Py_NewRef(out);
}

static int
can_hold(const Array *out, char code, int nd, const npy_intp *dims)
{
    return out->code == code && out->nd == nd && out->is_contiguous && out->is_writeable &&
           memcmp(out->dims, dims, nd * sizeof(npy_intp)) == 0;
}

/* matmul(a, b, out=a new one): matrices, or stacks of them that have the same leading dimensions, or one of which is a
 * single one; of one dtype, none of them empty. `out` is contiguous, and shares no memory with the others. */
PyObject *
module_matmul(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    if (count < 2 || count > 3 || !IS_ARRAY(given[0]) || !IS_ARRAY(given[1]) || !IS_ARRAY(given[count - 1])) {
        PyErr_SetString(PyExc_TypeError, "matmul(a, b, out) takes arrays on cuda");
        return NULL;
    }
    Array *a = (Array *)given[0], *b = (Array *)given[1];
    npy_intp dims[MOST_DIMS];
    int is_known = (a->code >= CODE_F32 && a->code <= CODE_C128) || light_takes(a->code);
    if (a->nd < 2 || b->nd < 2 || a->code != b->code || !is_known || !a->size || !b->size) {
        PyErr_SetString(PyExc_NotImplementedError, "a product of arrays of these shapes or dtypes on cuda");
        return NULL;
    }
    npy_intp m = a->dims[a->nd - 2], k = a->dims[a->nd - 1], n = b->dims[b->nd - 1];
    if (b->dims[b->nd - 2] != k) {
        PyErr_Format(PyExc_ValueError,
                     "matmul: Input operand 1 has a mismatch in its core dimension 0 (size %zd is different from %zd)",
                     b->dims[b->nd - 2], k);
        return NULL;
    }
    npy_intp in_a = count_of_stack(a), in_b = count_of_stack(b);
    const Array *stack = in_a > in_b || (in_a == in_b && a->nd >= b->nd) ? a : b, *other = stack == a ? b : a;
    int alike = stack->nd >= other->nd;
    if (in_a != 1 && in_b != 1) {
        alike = a->nd == b->nd && memcmp(a->dims, b->dims, (a->nd - 2) * sizeof(npy_intp)) == 0;
    }
    if (!alike || in_a * m > INT32_MAX || in_b * k > INT32_MAX || n > INT32_MAX) {
        PyErr_SetString(PyExc_NotImplementedError, "a product of stacks of these sizes on cuda");
        return NULL;
    }
    int nd = stack->nd;
    memcpy(dims, stack->dims, nd * sizeof(npy_intp));
    dims[nd - 2] = m;
    dims[nd - 1] = n;
    if (count == 3 && !can_hold((Array *)given[2], a->code, nd, dims)) {
        PyErr_SetString(PyExc_NotImplementedError, "a product into an array of this shape or dtype on cuda");
        return NULL;
    }
    Array *out = count == 3 ? (Array *)Py_NewRef(given[2]) : array_new(a->dtype, nd, dims, NULL);
    Array *result = out == NULL ? NULL : multiply(a, b, out);
    Py_XDECREF(out);
    return (PyObject *)result;
}

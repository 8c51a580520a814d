/* Matrix products by cuBLASLt: quicker to call than cuBLAS, in half precision too (added up in float32), and with a bias.
 * A plan, with the algorithm that the library advises, is made for each kind of product and kept. On the emulated device
 * plain loops compute the same.
 */
#include "cuda/cuda.h"
#include "cuda/product.h"

#include <dlfcn.h>

typedef void *Handle;

static Handle handles[MOST_GPUS]; /* one for each device */
static int is_started_here, allows_tf32;

static struct {
    int (*create)(Handle *);
    int (*describe)(void **, int, int);
    int (*set_description)(void *, int, const void *, size_t);
    int (*lay_out)(void **, int, uint64_t, uint64_t, int64_t);
    int (*set_layout)(void *, int, const void *, size_t);
    int (*drop_description)(void *), (*drop_layout)(void *), (*prefer)(void **);
    int (*set_preference)(void *, int, const void *, size_t);
    int (*advise)(Handle, void *, void *, void *, void *, void *, void *, int, void *, int *);
    int (*multiply)(Handle, void *, const void *, const void *, void *, const void *, void *, const void *, const void *,
                    void *, void *, void *, const void *, void *, size_t, Stream);
} light;

static const struct {
    const char *name;
    void *place;
} light_names[] = {
    {"cublasLtCreate", &light.create},
    {"cublasLtMatmulDescCreate", &light.describe},
    {"cublasLtMatmulDescSetAttribute", &light.set_description},
    {"cublasLtMatrixLayoutCreate", &light.lay_out},
    {"cublasLtMatrixLayoutSetAttribute", &light.set_layout},
    {"cublasLtMatmulDescDestroy", &light.drop_description},
    {"cublasLtMatrixLayoutDestroy", &light.drop_layout},
    {"cublasLtMatmulPreferenceCreate", &light.prefer},
    {"cublasLtMatmulPreferenceSetAttribute", &light.set_preference},
    {"cublasLtMatmulAlgoGetHeuristic", &light.advise},
    {"cublasLtMatmul", &light.multiply},
};

/* The library's numbers. */
enum { TRANSPOSES_A = 3, TRANSPOSES_B = 4, EPILOGUE = 7, BIAS_POINTER = 8 };
enum { BATCH_COUNT = 5, BATCH_STEP = 6 };
enum { MOST_WORKSPACE = 1, ALIGNMENT_OF_A = 5 };
enum { WITH_BIAS = 4 };
enum { IN_FLOAT32 = 68, IN_FLOAT64 = 70, IN_TF32 = 77 };

typedef struct {
    uint64_t algorithm[8];
    size_t bytes;
    int status;
    float waves;
    int reserved[4];
} Advice;

/* What a plan depends on. */
typedef struct {
    Product product; /* without its pointers */
    int has_bias, in_tf32;
    unsigned aligned[4];
} Key;

typedef struct {
    Key key;
    void *description, *a, *b, *c;
    uint64_t algorithm[8];
} Plan;

#define MOST_PLANS 4096
static Plan *plans[MOST_PLANS];

typedef struct {
    Product product;
    const void *bias;
    long long in_tf32;
} Light;

int
light_takes(int type)
{
    return (is_emulated || is_started_here) &&
           (type == CODE_F16 || type == CODE_BF16 || type == CODE_F32 || type == CODE_F64);
}

/* ---- plans */

static unsigned
alignment_of(const void *pointer)
{
    uintptr_t lowest = (uintptr_t)pointer & -(uintptr_t)pointer;
    return lowest == 0 || lowest > 256 ? 256 : (unsigned)lowest;
}

static Key
key_of(const Light *call)
{
    Key key;
    memset(&key, 0, sizeof(key));
    key.product = call->product;
    key.product.a = key.product.b = NULL;
    key.product.c = NULL;
    key.has_bias = call->bias != NULL;
    key.in_tf32 = (int)call->in_tf32;
    key.aligned[0] = alignment_of(call->product.a);
    key.aligned[1] = alignment_of(call->product.b);
    key.aligned[2] = key.aligned[3] = alignment_of(call->product.c);
    return key;
}

static void *
layout(int type, int rows, int columns, int step, int batch, long long stack)
{
    static const int numbers[] = {[CODE_F16] = 2, [CODE_F32] = 0, [CODE_F64] = 1, [CODE_BF16] = 14};
    void *made = NULL;
    int64_t offset = stack;
    if (light.lay_out(&made, numbers[type], (uint64_t)rows, (uint64_t)columns, step) ||
        (batch > 1 && (light.set_layout(made, BATCH_COUNT, &batch, sizeof(batch)) ||
                       light.set_layout(made, BATCH_STEP, &offset, sizeof(offset))))) {
        return NULL;
    }
    return made;
}

/* Ask for the algorithm; 0, or the library's number of what is wrong. */
static int
ask(Plan *plan)
{
    static void *preference; /* one for all: it is set anew for each */
    uint64_t most = WORKSPACE_BYTES;
    Advice advice;
    int found = 0, status = preference == NULL ? light.prefer(&preference) : 0;
    memset(&advice, 0, sizeof(advice));
    status = status ? status : light.set_preference(preference, MOST_WORKSPACE, &most, sizeof(most));
    for (int k = 0; k < 4 && status == 0; k++) {
        status = light.set_preference(preference, ALIGNMENT_OF_A + k, &plan->key.aligned[k], sizeof(unsigned));
    }
    status = status ? status
                    : light.advise(handles[the_lane->gpu->index], plan->description, plan->a, plan->b, plan->c, plan->c, preference, 1, &advice,
                                   &found);
    memcpy(plan->algorithm, advice.algorithm, sizeof(plan->algorithm));
    return status ? status : found ? 0 : -1;
}

static int
make_plan(Plan *plan)
{
    const Product *p = &plan->key.product;
    int is_double = p->type == CODE_F64, computed = is_double ? IN_FLOAT64 : plan->key.in_tf32 ? IN_TF32 : IN_FLOAT32;
    uint32_t epilogue = WITH_BIAS;
    int status = light.describe(&plan->description, computed, is_double ? 1 : 0);
    status = status ? status
                    : light.set_description(plan->description, TRANSPOSES_A, &p->transposes_a, sizeof(p->transposes_a));
    status = status ? status
                    : light.set_description(plan->description, TRANSPOSES_B, &p->transposes_b, sizeof(p->transposes_b));
    if (status == 0 && plan->key.has_bias) {
        status = light.set_description(plan->description, EPILOGUE, &epilogue, sizeof(epilogue));
    }
    plan->a = layout(p->type, p->transposes_a ? p->k : p->m, p->transposes_a ? p->m : p->k, p->lda, p->batch, p->step_a);
    plan->b = layout(p->type, p->transposes_b ? p->n : p->k, p->transposes_b ? p->k : p->n, p->ldb, p->batch, p->step_b);
    plan->c = layout(p->out_type, p->m, p->n, p->ldc, p->batch, p->step_c);
    if (status || plan->a == NULL || plan->b == NULL || plan->c == NULL) {
        return status ? status : -1;
    }
    return ask(plan);
}

static void
drop_plan(Plan *plan)
{
    if (plan != NULL) {
        void *layouts[] = {plan->a, plan->b, plan->c};
        for (int k = 0; k < 3; k++) {
            if (layouts[k] != NULL) {
                light.drop_layout(layouts[k]);
            }
        }
        if (plan->description != NULL) {
            light.drop_description(plan->description);
        }
        free(plan);
    }
}

static Plan *
find_plan(const Light *call)
{
    Key key = key_of(call);
    uint64_t hash = 1469598103934665603ull;
    const unsigned char *bytes = (const unsigned char *)&key;
    for (size_t k = 0; k < sizeof(key); k++) {
        hash = (hash ^ bytes[k]) * 1099511628211ull;
    }
    Plan **place = &plans[hash % MOST_PLANS];
    if (*place != NULL && memcmp(&(*place)->key, &key, sizeof(key)) == 0) {
        return *place;
    }
    Plan *made = calloc(1, sizeof(Plan));
    if (made == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    made->key = key;
    int status = make_plan(made);
    if (status) {
        drop_plan(made);
        PyErr_Format(PyExc_RuntimeError, "cuBLASLt has no algorithm for a product of matrices (%d x %d x %d), status %d",
                     key.product.m, key.product.k, key.product.n, status);
        return NULL;
    }
    drop_plan(*place); /* what was sent holds nothing of it, nor do graphs */
    return *place = made;
}

static int
issue_light(const void *arguments)
{
    const Light *call = arguments;
    const Product *p = &call->product;
    if (is_emulated) {
        emulate_product(p, call->bias);
        return 0;
    }
    const float one = 1, zero = 0;
    const double ones = 1, zeros = 0;
    int is_double = p->type == CODE_F64;
    const void *alpha = is_double ? (const void *)&ones : &one, *none = is_double ? (const void *)&zeros : &zero;
    const void *beta = p->adds ? alpha : none;
    Handle *handle = &handles[the_lane->gpu->index];
    char *workspace = workspace_of(the_lane);
    if (workspace == NULL || (*handle == NULL && light.create(handle))) {
        PyErr_SetString(PyExc_RuntimeError, "cuBLASLt could not be started on this device");
        return -1;
    }
    Plan *plan = find_plan(call);
    if (plan == NULL) {
        return -1;
    }
    int status = call->bias == NULL
                     ? 0
                     : light.set_description(plan->description, BIAS_POINTER, &call->bias, sizeof(call->bias));
    status = status ? status
                    : light.multiply(*handle, plan->description, alpha, p->a, plan->a, p->b, plan->b, beta, p->c, plan->c,
                                     p->c, plan->c, plan->algorithm, workspace, WORKSPACE_BYTES, the_stream);
    if (status) {
        PyErr_Format(PyExc_RuntimeError, "cuBLASLt failed at a product of matrices, with status %d", status);
    }
    return status ? -1 : 0;
}

int
enqueue_light(const Product *product, const void *bias, int is_long)
{
    static const unsigned grid[] = {1, 1, 1};
    Light call;
    memset(&call, 0, sizeof(call));
    call.product = *product;
    call.bias = bias;
    call.in_tf32 = allows_tf32 && product->type == CODE_F32;
    Function function;
    int (*issue)(const void *) = issue_light;
    memcpy(&function, &issue, sizeof(function));
    return enqueue(CALL_ENTRY, function, grid, 1, &call, sizeof(call), is_long);
}

/* ---- the module's */

/* start_light(path) */
PyObject *
module_start_light(PyObject *module, PyObject *path)
{
    const char *text = PyUnicode_AsUTF8(path);
    void *library = text == NULL ? NULL : dlopen(text, RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        if (text != NULL) {
            PyErr_Format(PyExc_RuntimeError, "cuBLASLt cannot be loaded: %s", dlerror());
        }
        return NULL;
    }
    for (size_t k = 0; k < sizeof(light_names) / sizeof(light_names[0]); k++) {
        void *found = dlsym(library, light_names[k].name);
        if (found == NULL) {
            PyErr_Format(PyExc_RuntimeError, "cuBLASLt is too old: it has no %s", light_names[k].name);
            return NULL;
        }
        memcpy(light_names[k].place, &found, sizeof(found));
    }
    if (enter_context() < 0 || light.create(&handles[the_gpu->index])) {
        PyErr_SetString(PyExc_RuntimeError, "cuBLASLt could not be started on this device");
        return NULL;
    }
    is_started_here = 1;
    Py_RETURN_NONE;
}

/* allow_tf32(allowed) */
PyObject *
module_allow_tf32(PyObject *module, PyObject *allowed)
{
    allows_tf32 = PyObject_IsTrue(allowed);
    Py_RETURN_NONE;
}

/* linear(input, weight, bias): input @ weight.T + bias, of contiguous arrays of one dtype; None where that is not so */
PyObject *
module_linear(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    if (count != 3 || !IS_ARRAY(given[0]) || !IS_ARRAY(given[1]) || !IS_ARRAY(given[2])) {
        PyErr_SetString(PyExc_TypeError, "linear(input, weight, bias) takes three arrays on cuda");
        return NULL;
    }
    Array *x = (Array *)given[0], *weight = (Array *)given[1], *bias = (Array *)given[2];
    npy_intp dims[MOST_DIMS], k = x->nd ? x->dims[x->nd - 1] : 0, n = weight->nd == 2 ? weight->dims[0] : 0;
    if (!light_takes(x->code) || x->code != weight->code || x->code != bias->code || !weight->is_contiguous || !bias->is_contiguous || !k || !n || weight->dims[1] != k || bias->nd != 1 ||
        bias->dims[0] != n || !x->size || x->size / k > INT32_MAX || k > INT32_MAX || n > INT32_MAX) {
        Py_RETURN_NONE;
    }
    memcpy(dims, x->dims, x->nd * sizeof(npy_intp));
    dims[x->nd - 1] = n;
    Array *input = contiguous(x), *out = input == NULL ? NULL : array_new(x->dtype, x->nd, dims, NULL);
    if (out == NULL) {
        Py_XDECREF(input);
        return NULL;
    }
    npy_intp rows = x->size / k;
    Product p;
    memset(&p, 0, sizeof(p));
    p = (Product){.transposes_a = 1, .m = (int)n, .n = (int)rows, .k = (int)k, .lda = (int)k, .ldb = (int)k,
                 .ldc = (int)n, .batch = 1, .type = x->code, .out_type = x->code, .a = weight->data, .b = input->data, .c = out->data};
    if (enqueue_light(&p, bias->data, (double)rows * n * k > 5e8) < 0) {
        Py_CLEAR(out);
    }
    Py_DECREF(input);
    return (PyObject *)out;
}

/* multiply_into(a, b, out, adds): products of two stacks of matrices (three dimensions), written or added to a third */
PyObject *
module_multiply_into(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    if (count != 4 || !IS_ARRAY(given[0]) || !IS_ARRAY(given[1]) || !IS_ARRAY(given[2])) {
        PyErr_SetString(PyExc_TypeError, "multiply_into(a, b, out, adds) takes three arrays on cuda");
        return NULL;
    }
    Array *a = (Array *)given[0], *b = (Array *)given[1], *out = (Array *)given[2];
    int order_a, order_b, order_out, step_a, step_b, step_out;
    if (a->nd != 3 || b->nd != 3 || out->nd != 3 || a->code != b->code || !light_takes(a->code) ||
        !light_takes(out->code) || (order_a = lies(a, &step_a)) < 0 || (order_b = lies(b, &step_b)) < 0 ||
        (order_out = lies(out, &step_out)) != 0 || a->dims[2] != b->dims[1] || out->dims[1] != a->dims[1] ||
        out->dims[2] != b->dims[2] || a->dims[0] != b->dims[0] || a->dims[0] != out->dims[0] || !a->size || !b->size) {
        PyErr_SetString(PyExc_ValueError, "multiply_into(): the stacks of matrices do not fit each other");
        return NULL;
    }
    npy_intp item = PyDataType_ELSIZE(a->dtype), item_out = PyDataType_ELSIZE(out->dtype);
    Product p;
    memset(&p, 0, sizeof(p));
    p = (Product){.transposes_a = order_b, .transposes_b = order_a, .m = (int)b->dims[2], .n = (int)a->dims[1],
                 .k = (int)a->dims[2], .lda = step_b, .ldb = step_a, .ldc = step_out, .batch = (int)a->dims[0],
                 .type = a->code, .out_type = out->code, .adds = PyObject_IsTrue(given[3]),
                 .step_a = step_of_stack(b) / item, .step_b = step_of_stack(a) / item,
                 .step_c = step_of_stack(out) / item_out, .a = b->data, .b = a->data, .c = out->data};
    return enqueue_light(&p, NULL, 0) < 0 ? NULL : Py_NewRef(Py_None);
}

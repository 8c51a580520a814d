/* Program: the array functions of a formula, in their order, evaluated over large arrays a block at a time.
 *
 * A block of every intermediate result stays in the processor's nearest memory, and none exists as a whole; the last
 * step writes into the result. The loops are those of NumPy's ufuncs (for elementary functions ours, functions.c), so the
 * numbers are those that the ufuncs would give, one after the other. Blocks are divided among threads, which do not
 * need Python's lock. What the processor notes is remembered for every step, and reported as NumPy does it.
 *
 * A program may add up what its last step computes: a sum for every block, and these one after the other, so that it
 * does not depend on the number of threads (kernels/sums.c adds the same numbers in the same order). And it may assume
 * that a test is true of all elements: where it is not, there is no result, and the function itself is called.
 *
 * backend/blocks.py makes programs; None of what they refer to changes afterwards.
 */
#define PY_UFUNC_UNIQUE_SYMBOL UNDERTOW_BLOCKS_UFUNC_API
#include "formula/blocks.h"

#include "formula/functions.h"
#include "formula/small_arrays.h"
#include "kernels/casts.h"
#include "kernels/kernels.h"
#include "loops/compile.h"
#include "loops/threads.h"

#include <fenv.h>
#include <stdatomic.h>

/* ---- a step that is no ufunc: a choice (casts, which are none either, are in kernels/casts.c) */

#define CHOOSE(TYPE)                                                                                        \
    CLONES static void choose_##TYPE(char **args, const npy_intp *count, const npy_intp *strides, void *data) \
    {                                                                                                       \
        const char *test = args[0];                                                                         \
        const npy_intp a = strides[1] / (npy_intp)sizeof(TYPE), b = strides[2] / (npy_intp)sizeof(TYPE);    \
        const TYPE *x = (const TYPE *)args[1], *y = (const TYPE *)args[2];                                  \
        TYPE *out = (TYPE *)args[3];                                                                        \
        if (strides[0] == 1 && a == 1 && b == 1) {                                                          \
            _Pragma("GCC ivdep") for (npy_intp k = 0; k < *count; k++) { out[k] = test[k] ? x[k] : y[k]; }  \
        }                                                                                                   \
        else if (strides[0] == 1 && a == 1 && b == 0) {                                                     \
            const TYPE v = *y;                                                                              \
            _Pragma("GCC ivdep") for (npy_intp k = 0; k < *count; k++) { out[k] = test[k] ? x[k] : v; }     \
        }                                                                                                   \
        else if (strides[0] == 1 && a == 0 && b == 1) {                                                     \
            const TYPE v = *x;                                                                              \
            _Pragma("GCC ivdep") for (npy_intp k = 0; k < *count; k++) { out[k] = test[k] ? v : y[k]; }     \
        }                                                                                                   \
        else if (strides[0] == 1 && a == 0 && b == 0) {                                                     \
            const TYPE v = *x, w = *y;                                                                      \
            _Pragma("GCC ivdep") for (npy_intp k = 0; k < *count; k++) { out[k] = test[k] ? v : w; }        \
        }                                                                                                   \
        else {                                                                                              \
            for (npy_intp k = 0; k < *count; k++) {                                                         \
                out[k] = test[k * strides[0]] ? x[k * a] : y[k * b];                                        \
            }                                                                                               \
        }                                                                                                   \
    }

CHOOSE(npy_uint8)
CHOOSE(npy_uint16)
CHOOSE(npy_uint32)
CHOOSE(npy_uint64)

static PyUFuncGenericFunction
choice_of(int size)
{
    return size == 1 ? choose_npy_uint8 : size == 2 ? choose_npy_uint16 : size == 4 ? choose_npy_uint32
         : size == 8 ? choose_npy_uint64                                            : NULL;
}

/* ---- adding up */

#define REAL float
#include "loops/max_and_sum.h"
#undef REAL
#define REAL double
#include "loops/max_and_sum.h"
#undef REAL

CLONES static double
sum_of_floats(const float *x, npy_intp count)
{
    return sum_of_block_float(x, NULL, count);
}

CLONES static double
sum_of_doubles(const double *x, npy_intp count)
{
    return sum_of_block_double(x, NULL, count);
}

#define BLOCKS_IN_PIECE 16 /* of those that kernels/sums.c adds up first */

static double
sum_of_blocks(const double *sums, npy_intp count)
{
    double total = 0;
    for (npy_intp start = 0; start < count; start += BLOCKS_IN_PIECE) {
        double piece = 0;
        for (npy_intp k = start; k < count && k < start + BLOCKS_IN_PIECE; k++) {
            piece += sums[k];
        }
        total += piece;
    }
    return total;
}

/* ---- making a program */

/* The loop of a ufunc with that number; 0 with an exception if it is none that fits the operands. */
static int
find_loop(Program *self, Step *step, PyObject *function, int number)
{
    PyUFuncObject *ufunc = (PyUFuncObject *)function;
    if (!PyObject_TypeCheck(function, &PyUFunc_Type) || ufunc->nin != step->inputs || ufunc->nout != 1 ||
        ufunc->core_enabled || number < 0 || number >= ufunc->ntypes) {
        PyErr_SetString(PyExc_ValueError, "a step of a program is a loop of a ufunc");
        return 0;
    }
    const char *types = ufunc->types + number * ufunc->nargs;
    for (int k = 0; k < step->inputs; k++) {
        if (self->places[step->operands[k]].type != types[k]) {
            PyErr_SetString(PyExc_ValueError, "a step of a program reads what its loop is not for");
            return 0;
        }
    }
    step->loop = ufunc->functions[number];
    step->data = ufunc->data[number];
    step->name = ufunc->name;
    self->places[step->place].type = types[step->inputs];
    return 1;
}

/* "where", or "cast" to a type; 0 with an exception if there is no such loop */
static int
find_other(Program *self, Step *step, PyObject *name, int number)
{
    const Place *places = self->places;
    const int *operands = step->operands;
    int type = number;
    if (PyUnicode_CompareWithASCIIString(name, "cast") == 0 && step->inputs == 1) {
        step->loop = cast_of(places[operands[0]].type, number, &step->data);
        step->name = "cast";
    }
    else if (PyUnicode_CompareWithASCIIString(name, "where") == 0 && step->inputs == 3 &&
             places[operands[0]].type == NPY_BOOL && places[operands[1]].type == places[operands[2]].type) {
        type = places[operands[1]].type;
        step->loop = choice_of(places[operands[1]].size);
        step->name = "where";
    }
    if (step->loop == NULL) {
        PyErr_SetString(PyExc_ValueError, "a program has no such step");
        return 0;
    }
    self->places[step->place].type = type;
    return 1;
}

static int
set_size(Program *self, Place *place)
{
    PyArray_Descr *descr = PyArray_DescrFromType(place->type);
    if (descr == NULL) {
        return 0;
    }
    place->size = (int)PyDataType_ELSIZE(descr);
    place->buffer = -1;
    if (self->buffer_size < (size_t)place->size * IN_BLOCK) {
        self->buffer_size = (size_t)place->size * IN_BLOCK;
    }
    Py_DECREF(descr);
    return 1;
}

/* (ufunc, number of its loop, operand, ...) or ("where" or "cast", type, operand, ...) */
static int
read_step(Program *self, PyObject *description, int number)
{
    Step *step = &self->steps[number];
    step->place = self->input_count + self->constant_count + number;
    step->inputs = PyTuple_Check(description) ? (int)PyTuple_GET_SIZE(description) - 2 : 0;
    if (step->inputs < 1 || step->inputs > 3) {
        PyErr_SetString(PyExc_ValueError, "a step of a program has one to three operands");
        return 0;
    }
    for (int k = 0; k < step->inputs; k++) {
        long operand = PyLong_AsLong(PyTuple_GET_ITEM(description, k + 2));
        if (operand < 0 || operand >= step->place) {
            PyErr_SetString(PyExc_ValueError, "a step of a program reads what is not there yet");
            return 0;
        }
        step->operands[k] = (int)operand;
    }
    PyObject *function = PyTuple_GET_ITEM(description, 0);
    long chosen = PyLong_AsLong(PyTuple_GET_ITEM(description, 1));
    if (PyErr_Occurred() || !(PyUnicode_Check(function) ? find_other(self, step, function, (int)chosen)
                                                        : find_loop(self, step, function, (int)chosen))) {
        return 0;
    }
    Place *place = &self->places[step->place];
    if (!set_size(self, place)) {
        return 0;
    }
    self->nanoseconds += nanoseconds_of(step->name, place->type == NPY_DOUBLE);
    return 1;
}

/* Buffers for the results of all steps but the last (which has one if its numbers are added up); one is used again when
 * nobody reads it any more. */
static void
assign_buffers(Program *self)
{
    int free_buffers[MOST_STEPS], free_count = 0, last_use[MOST_PLACES] = {0};
    for (int k = 0; k < self->step_count; k++) {
        for (int j = 0; j < self->steps[k].inputs; j++) {
            last_use[self->steps[k].operands[j]] = k;
        }
    }
    for (int k = 0; k < self->step_count; k++) {
        const Step *step = &self->steps[k];
        if (k < self->step_count - 1 || self->adds_up) {
            self->places[step->place].buffer = free_count > 0 ? free_buffers[--free_count] : self->buffer_count++;
        }
        for (int j = 0; j < step->inputs; j++) { /* afterwards: a loop may read what lies behind what it writes */
            Place *operand = &self->places[step->operands[j]];
            if (operand->buffer >= 0 && last_use[step->operands[j]] == k) {
                free_buffers[free_count++] = operand->buffer;
                last_use[step->operands[j]] = -1;
            }
        }
    }
}

/* Mark the steps that are taken for true: bools, before the last. */
static int
read_assumed(Program *self, PyObject *assumed)
{
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(assumed); k++) {
        long step = PyLong_AsLong(PyTuple_GET_ITEM(assumed, k));
        if (step < 0 || step >= self->step_count - 1 || self->places[self->steps[step].place].type != NPY_BOOL) {
            PyErr_SetString(PyExc_ValueError, "a program assumes what is none of its tests");
            return 0;
        }
        self->steps[step].is_assumed = 1;
    }
    return 1;
}

/* The number that the sum is divided by; None if nothing is added up. */
static int
read_divisor(Program *self, PyObject *divisor)
{
    if (divisor == Py_None) {
        return 1;
    }
    int type = self->places[self->steps[self->step_count - 1].place].type;
    self->adds_up = 1;
    self->divisor = PyFloat_AsDouble(divisor);
    self->nanoseconds += 0.1;
    if (!PyErr_Occurred() && type != NPY_FLOAT && type != NPY_DOUBLE) {
        PyErr_SetString(PyExc_ValueError, "a program adds up floating-point numbers");
    }
    return !PyErr_Occurred();
}

/* Program(types of the inputs, constants, steps, numbers of steps that are assumed to be true, divisor or None) */
static PyObject *program_call(PyObject *, PyObject *const *, size_t, PyObject *);

static PyObject *
program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *types, *constants, *steps, *assumed, *divisor;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O", &PyTuple_Type, &types, &PyTuple_Type, &constants, &PyTuple_Type, &steps,
                          &PyTuple_Type, &assumed, &divisor) ||
        _import_umath() < 0) {
        return NULL;
    }
    Py_ssize_t inputs = PyTuple_GET_SIZE(types), numbers = PyTuple_GET_SIZE(constants), count = PyTuple_GET_SIZE(steps);
    if (inputs < 1 || inputs > MOST_INPUTS || numbers > MOST_STEPS || count < 1 || count > MOST_STEPS) {
        PyErr_SetString(PyExc_ValueError, "a program has too many parts");
        return NULL;
    }
    Program *self = (Program *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = program_call;
    self->kept = Py_NewRef(args);
    self->input_count = (int)inputs;
    self->constant_count = (int)numbers;
    self->step_count = (int)count;
    int is_fine = 1;
    for (int k = 0; is_fine && k < inputs; k++) {
        self->places[k].type = (int)PyLong_AsLong(PyTuple_GET_ITEM(types, k));
        is_fine = !PyErr_Occurred() && set_size(self, &self->places[k]);
    }
    for (int k = 0; is_fine && k < numbers; k++) {
        PyArrayObject *constant = (PyArrayObject *)PyTuple_GET_ITEM(constants, k);
        is_fine = PyArray_CheckExact(constant) && PyArray_NDIM(constant) == 0 && PyArray_ISBEHAVED_RO(constant);
        if (!is_fine) {
            PyErr_SetString(PyExc_TypeError, "a constant of a program is an array of one number");
            break;
        }
        self->constants[k] = PyArray_DATA(constant);
        self->places[inputs + k].type = PyArray_TYPE(constant);
        is_fine = set_size(self, &self->places[inputs + k]);
    }
    for (int k = 0; is_fine && k < count; k++) {
        is_fine = read_step(self, PyTuple_GET_ITEM(steps, k), k);
    }
    if (!is_fine || !read_assumed(self, assumed) || !read_divisor(self, divisor)) {
        Py_DECREF(self);
        return NULL;
    }
    assign_buffers(self);
    return (PyObject *)self;
}

static void
program_dealloc(Program *self)
{
    Py_XDECREF(self->kept);
    Py_TYPE(self)->tp_free(self);
}

/* ---- running it */

/* Where an operand is broadcast or has gaps, a block is a part of one row, if rows are long enough: in it, most operands
 * follow each other or are one number, and need not be copied. The more steps there are, the more a short block costs. */
#define LONG_ROW 512
#define LONG_ROW_FOR_ONE_STEP 192

typedef struct {
    const Program *program;
    Walk walk;
    npy_intp block_size, row_size, blocks_in_row; /* one row has all elements if blocks are no parts of rows */
    size_t buffer_size; /* bytes: that of the program, less if there are few elements */
    char *out;
    double *sums;        /* of blocks, if they are added up */
    atomic_int is_short; /* of memory */
    atomic_int is_wrong; /* something that was assumed */
} Run;

static char *
block_of_input(const Run *run, int number, npy_intp first, npy_intp count, char *buffer, npy_intp *stride)
{
    const Operand *operand = &run->walk.operands[number];
    int size = run->program->places[number].size;
    *stride = operand->kind == ONE_NUMBER ? 0 : size;
    if (operand->kind != SCATTERED) {
        return (char *)operand->data + (operand->kind == ONE_NUMBER ? 0 : first * size);
    }
    npy_intp step = operand->strides[run->walk.ndim - 1];
    if (run->row_size < run->walk.size && (step == 0 || step == size)) {
        *stride = step;
        return (char *)find_element(&run->walk, operand, first);
    }
    gather_elements(&run->walk, operand, first, count, size, buffer);
    return buffer;
}

/* Where the result of a step goes. What all elements have in common is computed once: `count` becomes 1, and the stride 0. */
static char *
block_of_result(const Run *run, int number, npy_intp first, char *scratch, const npy_intp *steps, npy_intp *count,
                npy_intp *stride)
{
    const Program *program = run->program;
    const Step *step = &program->steps[number];
    const Place *place = &program->places[step->place];
    int is_last = number == program->step_count - 1, varies = is_last;
    for (int j = 0; j < step->inputs; j++) {
        varies |= steps[j] != 0;
    }
    *stride = varies ? place->size : 0;
    *count = varies ? *count : 1;
    return is_last && !program->adds_up ? run->out + first * place->size
                                        : scratch + place->buffer * run->buffer_size;
}

/* 0 if something that is assumed is not so */
static int
run_block(const Run *run, npy_intp block, npy_intp first, npy_intp count, char *scratch)
{
    const Program *program = run->program;
    char *blocks[MOST_PLACES];
    npy_intp strides[MOST_PLACES];
    int constants = program->input_count, results = constants + program->constant_count, last = program->step_count - 1;
    for (int k = 0; k < program->input_count; k++) {
        char *buffer = scratch + (program->buffer_count + k) * run->buffer_size;
        blocks[k] = block_of_input(run, k, first, count, buffer, &strides[k]);
    }
    for (int k = 0; k < program->constant_count; k++) {
        blocks[constants + k] = (char *)program->constants[k];
        strides[constants + k] = 0;
    }
    for (int k = 0; k <= last; k++) {
        const Step *step = &program->steps[k];
        char *args[4];
        npy_intp steps[4], now = count;
        for (int j = 0; j < step->inputs; j++) {
            args[j] = blocks[step->operands[j]];
            steps[j] = strides[step->operands[j]];
        }
        char *result = block_of_result(run, k, first, scratch, steps, &now, &strides[results + k]);
        blocks[results + k] = args[step->inputs] = result;
        steps[step->inputs] = program->places[step->place].size;
        step->loop(args, &now, steps, step->data);
        if (step->is_assumed && memchr(result, 0, now) != NULL) {
            return 0;
        }
    }
    if (program->adds_up) {
        const void *terms = blocks[results + last];
        run->sums[block] = program->places[results + last].type == NPY_FLOAT ? sum_of_floats(terms, count)
                                                                             : sum_of_doubles(terms, count);
    }
    return 1;
}

static void
run_blocks(void *context, Py_ssize_t first, Py_ssize_t last)
{
    Run *run = context;
    const Program *program = run->program;
    npy_intp block_size = run->block_size;
    char *memory = malloc((program->buffer_count + program->input_count) * run->buffer_size + 64);
    if (memory == NULL) {
        atomic_store(&run->is_short, 1);
        return;
    }
    char *scratch = memory + (64 - (uintptr_t)memory % 64);
    for (Py_ssize_t block = first; block < last && !atomic_load_explicit(&run->is_wrong, memory_order_relaxed); block++) {
        npy_intp within = block % run->blocks_in_row * block_size, left = run->row_size - within;
        npy_intp start = block / run->blocks_in_row * run->row_size + within;
        if (!run_block(run, block, start, left < block_size ? left : block_size, scratch)) {
            atomic_store(&run->is_wrong, 1);
        }
    }
    free(memory);
}

/* The result from the sums of blocks, as the type at hand before it is divided. */
static void
finish_sum(Run *run, npy_intp count, int type)
{
    double sum = sum_of_blocks(run->sums, count), divisor = run->program->divisor;
    if (type == NPY_FLOAT) {
        *(float *)run->out = (float)((float)sum / divisor);
    }
    else {
        *(double *)run->out = sum / divisor;
    }
}

/* How to divide the elements: see LONG_ROW. A single step that copies nothing has no intermediate results to keep near. */
static void
choose_blocks(Run *run)
{
    const Walk *walk = &run->walk;
    int is_direct = run->program->step_count == 1 && !run->program->adds_up, is_scattered = 0;
    npy_intp row = walk->ndim > 1 ? walk->shape[walk->ndim - 1] : 0;
    npy_intp long_row = run->program->step_count == 1 ? LONG_ROW_FOR_ONE_STEP : LONG_ROW;
    for (int k = 0; k < run->program->input_count; k++) {
        int is_spread = walk->ndim > 0 && walk->operands[k].kind == SCATTERED;
        npy_intp step = is_spread ? walk->operands[k].strides[walk->ndim - 1] : 0;
        is_scattered |= is_spread;
        is_direct &= !is_spread || (row >= long_row && (step == 0 || step == run->program->places[k].size));
    }
    run->row_size = is_scattered && row >= long_row ? row : walk->size;
    run->block_size = is_direct ? 8 * IN_BLOCK : IN_BLOCK;
    run->blocks_in_row = (run->row_size + run->block_size - 1) / run->block_size;
    npy_intp most = walk->size < IN_BLOCK ? (walk->size + 63) / 64 * 64 : IN_BLOCK;
    run->buffer_size = run->program->buffer_size / IN_BLOCK * most;
}

/* Whether the program was made for such arrays. */
static int
fits_inputs(const Program *self, PyObject *const *given, Py_ssize_t count)
{
    if (count != self->input_count) {
        return 0;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        if (!PyArray_CheckExact(given[k]) || PyArray_TYPE((PyArrayObject *)given[k]) != self->places[k].type ||
            !PyArray_ISBEHAVED_RO((PyArrayObject *)given[k])) {
            return 0;
        }
    }
    return 1;
}

/* The result, in a new array or in `into`; NULL without an exception: it is not for such arrays, or not in that one. */
static PyObject *
run_program(Program *self, PyObject *const *given, PyArrayObject *into)
{
    Run run;
    run.is_short = run.is_wrong = 0;
    run.program = self;
    int type = self->places[self->steps[self->step_count - 1].place].type;
    PyArrayObject *const *arrays = (PyArrayObject *const *)given;
    PyObject *result = begin_walk(&run.walk, arrays, self->input_count, type, self->adds_up, into);
    if (result == NULL) {
        return NULL;
    }
    run.out = PyArray_BYTES((PyArrayObject *)result);
    choose_blocks(&run);
    npy_intp size = run.walk.size, count = size / run.row_size * run.blocks_in_row;
    run.sums = self->adds_up ? malloc(count * sizeof(double)) : NULL;
    if (self->adds_up && run.sums == NULL) {
        run.is_short = 1;
    }
    else {
        WORK(size, divide(run_blocks, &run, count, self->nanoseconds * size));
    }
    if (run.is_short) {
        PyErr_NoMemory();
    }
    else if (self->adds_up && !run.is_wrong) {
        finish_sum(&run, count, type);
    }
    if (run.is_short || run.is_wrong) {
        Py_CLEAR(result);
    }
    free(run.sums);
    return result;
}

PyObject *
program_value(Program *self, PyObject *const *given, Py_ssize_t count)
{
    return fits_inputs(self, given, count) ? run_program(self, given, NULL) : NULL;
}

/* program(array, ...): the result; NotImplemented if it is not for such arrays */
static PyObject *
program_call(PyObject *callable, PyObject *const *given, size_t flagged, PyObject *names)
{
    PyObject *result = names == NULL ? program_value((Program *)callable, given, PyVectorcall_NARGS(flagged)) : NULL;
    return result == NULL && !PyErr_Occurred() ? Py_NewRef(Py_NotImplemented) : result;
}

/* ---- in place */

int
fits_target(PyObject *call, PyArrayObject *target)
{
    PyObject *const *parts = &PyTuple_GET_ITEM(call, 0);
    if (!PyObject_TypeCheck(parts[0], &Program_Type)) {
        return 0;
    }
    const Program *program = (Program *)parts[0];
    int assumes = program->adds_up;
    for (int k = 0; k < program->step_count; k++) {
        assumes |= program->steps[k].is_assumed;
    }
    if (assumes || !PyArray_ISBEHAVED(target) || !fits_inputs(program, parts + 1, PyTuple_GET_SIZE(call) - 1)) {
        return 0;
    }
    Walk walk;
    int type = program->places[program->steps[program->step_count - 1].place].type;
    PyObject *into = begin_walk(&walk, (PyArrayObject *const *)parts + 1, program->input_count, type, 0, target);
    Py_XDECREF(into);
    return into != NULL;
}

int
write_target(PyObject *call, PyArrayObject *target)
{
    PyObject *const *parts = &PyTuple_GET_ITEM(call, 0);
    PyObject *written = run_program((Program *)parts[0], parts + 1, target);
    Py_XDECREF(written);
    return written == NULL ? -1 : 0;
}

/* ---- a single function of two numbers, in place */

#define MANY (1 << 17) /* elements */
#define PIECE 16384

typedef struct {
    PyUFuncGenericFunction loop;
    void *data;
    const char *first, *second;
    char *out;
    npy_intp count, size, step; /* of elements; of one; between two of the second operand */
} Change;

static void
change_pieces(void *context, Py_ssize_t first, Py_ssize_t last)
{
    Change *change = context;
    npy_intp start = first * PIECE, end = last * PIECE < change->count ? last * PIECE : change->count;
    npy_intp count = end - start, strides[] = {change->size, change->step, change->size};
    char *args[] = {(char *)change->first + start * change->size, (char *)change->second + start * change->step,
                    change->out + start * change->size};
    change->loop(args, &count, strides, change->data);
}

/* Whether `other` can be read while the target is written: it is the same, or all of it lies elsewhere. */
static int
lies_apart(PyArrayObject *target, PyArrayObject *other)
{
    const char *a = PyArray_BYTES(target), *b = PyArray_BYTES(other);
    return a == b || a + PyArray_NBYTES(target) <= b || b + PyArray_NBYTES(other) <= a;
}

/* The loop of a ufunc of two numbers of one type that gives a third; 0 if it has none. */
static int
find_plain_loop(PyObject *function, int type, Change *change)
{
    if ((PyUFunc_API == NULL && _import_umath() < 0) || !PyObject_TypeCheck(function, &PyUFunc_Type)) {
        PyErr_Clear();
        return 0;
    }
    PyUFuncObject *ufunc = (PyUFuncObject *)function;
    for (int k = 0; ufunc->nin == 2 && ufunc->nout == 1 && !ufunc->core_enabled && k < ufunc->ntypes; k++) {
        const char *types = ufunc->types + 3 * k;
        if (types[0] == type && types[1] == type && types[2] == type) {
            change->loop = ufunc->functions[k];
            change->data = ufunc->data == NULL ? NULL : ufunc->data[k];
            return 1;
        }
    }
    return 0;
}

/* Whether both operands are large and lie plainly: `change` says how to compute them. */
static int
read_change(PyObject *ufunc, PyObject *target, PyObject *other, Change *change, double *number)
{
    PyArrayObject *array = (PyArrayObject *)target, *second = (PyArrayObject *)other;
    if (!is_plain(target) || PyArray_SIZE(array) < MANY) {
        return 0;
    }
    int type = PyArray_TYPE(array);
    *change = (Change){.first = PyArray_BYTES(array), .count = PyArray_SIZE(array), .size = PyArray_ITEMSIZE(array)};
    if (PyArray_CheckExact(other)) {
        if (!is_plain(other) || PyArray_TYPE(second) != type || !PyArray_SAMESHAPE(array, second)) {
            return 0;
        }
        change->second = PyArray_BYTES(second);
        change->step = change->size;
    }
    else {
        if (!as_number(other, number)) {
            return 0;
        }
        if (type == NPY_FLOAT) {
            float single = (float)*number;
            memcpy(number, &single, sizeof(single));
        }
        change->second = (const char *)number;
    }
    return find_plain_loop(ufunc, type, change);
}

static void
run_change(PyObject *ufunc, Change *change)
{
    const char *name = ((PyUFuncObject *)ufunc)->name;
    double nanoseconds = nanoseconds_of(name, change->size == sizeof(double)) * change->count;
    WORK(change->count, divide(change_pieces, change, (change->count + PIECE - 1) / PIECE, nanoseconds));
}

int
change_large(PyObject *ufunc, PyObject *target, PyObject *other)
{
    Change change;
    double number;
    if (!read_change(ufunc, target, other, &change, &number) || !PyArray_ISWRITEABLE((PyArrayObject *)target) ||
        (change.step && !lies_apart((PyArrayObject *)target, (PyArrayObject *)other))) {
        return 0;
    }
    change.out = (char *)change.first;
    run_change(ufunc, &change);
    return 1;
}

PyObject *
large_result(PyObject *ufunc, PyObject *first, PyObject *second)
{
    Change change;
    double number;
    PyObject *out = read_change(ufunc, first, second, &change, &number) ? new_like((PyArrayObject *)first) : NULL;
    if (out != NULL) {
        change.out = PyArray_BYTES((PyArrayObject *)out);
        run_change(ufunc, &change);
    }
    return out;
}

PyTypeObject Program_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._core.Program",
    .tp_basicsize = sizeof(Program),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = program_new,
    .tp_dealloc = (destructor)program_dealloc,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Program, vectorcall),
};

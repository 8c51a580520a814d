/* Programs: formulas over large arrays, evaluated in blocks that stay in the processor's nearest memory. See blocks.c. */
#ifndef UNDERTOW_BLOCKS_H
#define UNDERTOW_BLOCKS_H

#include "core.h"

#include <numpy/ufuncobject.h>

#define MOST_INPUTS 12
#define MOST_STEPS 48
#define MOST_PLACES (MOST_INPUTS + 2 * MOST_STEPS) /* inputs, constants and results of steps */
#define IN_BLOCK 2048 /* elements */

/* One array function. */
typedef struct {
    PyUFuncGenericFunction loop;
    void *data;
    const char *name;
    int inputs;
    int operands[3]; /* places */
    int place;       /* of the result */
    int is_assumed;  /* to be true everywhere: otherwise the program gives up */
} Step;

/* What a step reads or writes. */
typedef struct {
    int type, size;  /* of the elements: NumPy's number, bytes */
    int buffer;      /* which piece of scratch memory has a block of it; -1 for inputs, constants and the result */
} Place;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *kept;      /* what loops and constants belong to */
    int input_count, constant_count, step_count, buffer_count;
    size_t buffer_size;
    double nanoseconds;  /* for each element */
    int adds_up;         /* the result is the sum of what the last step computes, divided by something */
    double divisor;
    Place places[MOST_PLACES];
    const void *constants[MOST_STEPS];
    Step steps[MOST_STEPS];
} Program;

/* What a program gives for these arrays; NULL without an exception if it is not for such ones. */
PyObject *program_value(Program *self, PyObject *const *given, Py_ssize_t count);

/* target (ufunc)= other, an array or a number, in place, if both are large and lie plainly; whether it is done */
int change_large(PyObject *ufunc, PyObject *target, PyObject *other);

/* The same in a new array; NULL without an exception: it is left to NumPy. */
PyObject *large_result(PyObject *ufunc, PyObject *first, PyObject *second);

/* A program and its inputs, as a tuple: whether the result can be written into that array (which may be an input, but
 * otherwise shares no memory with any); and to do so, -1 with an exception. */
int fits_target(PyObject *call, PyArrayObject *target);
int write_target(PyObject *call, PyArrayObject *target);

/* ---- programs.c */

/* Whether there are arrays of different shapes, others than those of no dimensions: ufuncs begin anew with each row. */
int are_broadcast(PyObject *const *values, int count);

/* The program of a function for these arguments, and its inputs, as a tuple; NULL without an exception: none. */
PyObject *program_and_inputs(PyObject *programs, PyObject *const *arguments, Py_ssize_t count);

/* What a function's program gives for small arrays; NULL without an exception: the function is to be called. */
PyObject *value_of_small(PyObject *programs, PyObject *const *arguments, Py_ssize_t count);

/* ---- walk.c: operands of many shapes and strides as one sequence of elements */

typedef struct {
    const char *data;
    npy_intp strides[NPY_MAXDIMS];
    enum { IN_ORDER, ONE_NUMBER, SCATTERED } kind; /* elements follow each other; are all the same; are to be copied */
    int ndim;                                      /* the fewest dimensions that this one is passed through in */
    npy_intp shape[NPY_MAXDIMS], steps[NPY_MAXDIMS];
} Operand;

typedef struct {
    int ndim, count;
    npy_intp size, shape[NPY_MAXDIMS];
    Operand operands[MOST_INPUTS];
} Walk;

/* Find the common shape, and the order in which the elements of a result lie, which is NumPy's; make the result, which
 * is of one number only if the elements are to be added up, or take `into` for it, if that is given and lies so. NULL
 * without an exception: NumPy has to say what is wrong. */
PyObject *begin_walk(Walk *walk, PyArrayObject *const *arrays, int count, int type, int adds_up, PyArrayObject *into);

/* Where the element with this number is. */
const char *find_element(const Walk *walk, const Operand *operand, npy_intp number);

/* Copy `count` elements from the one with the number `first` on. */
void gather_elements(const Walk *walk, const Operand *operand, npy_intp first, npy_intp count, int size, char *to);

#endif

/* What the files of elementwise kernels share: elementwise.c has the type, and says what it is. */
#pragma once
#include "cuda/cuda.h"

enum { NUMBER_BIT = 32, PYTHON_INT = 16, PYTHON_FLOAT = 17, PYTHON_COMPLEX = 18 };
#define KEY_BITS 6

typedef struct {
    uint64_t key;
    PyArray_Descr *out;
    Function plain, strided, vector[1 << 5]; /* vector: by which operands are a single element, and INNER */
    char casts[MOST_IN]; /* the codes that operands are computed in */
} Variant;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *name, *compile, *compile_vector, *slow, *dict;
    int nin, count;
    Variant **variants;
} Elementwise;

/* An operand that is a number: what kernels find in the place of an array. */
typedef struct {
    union {
        long long i;
        double d;
    };
    double imaginary;
} Value;

typedef struct {
    Array *array; /* NULL: a number */
    Value value;
    int code, is_single, is_copy;
} Operand;

/* Beside the bits of single elements: vectors lie side by side in the last dimension alone. */
#define INNER (1 << 4)

/* ---- variants.c */

/* The variant for operands of these codes (a key has KEY_BITS for each); NULL with an exception. */
Variant *find_variant(Elementwise *self, uint64_t key);
/* Its kernel that takes vectors, where the operands of these bits are single elements. */
Function find_vector(Elementwise *self, Variant *variant, int singles);

/* ---- operands.c */

/* An operand from an array of the device or a number; -1 with an exception. */
int read_operand(const Elementwise *self, PyObject *object, Operand *operand);
/* Refuse a number that what it is computed in cannot hold. */
int check_range(const Operand *operand, int cast);

/* ---- elementwise_launch.c */

/* Start the kernel for these operands; `alike`: they and the result lie in memory in one way. */
int launch_variant(Elementwise *self, Variant *variant, const Operand *operands, Array *out, int alike);

/* ---- chains.c */

/* What would be launched for a piece alone. */
typedef struct {
    Function function;
    unsigned grid[3], block;
    const void *arguments;
    size_t size;
    int is_long;
} Launch;
/* Ask for a launch on arrays that lie in one way, in whose place a later one may do its work, too. */
int enqueue_piece(Elementwise *kernel, Variant *variant, const Operand *operands, Array *out, const Launch *launch);

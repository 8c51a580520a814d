/* The structure of arrays on a GPU, as both extensions see it. Whoever includes it has included NumPy's headers. */
#ifndef UNDERTOW_CUDA_ARRAY_H
#define UNDERTOW_CUDA_ARRAY_H

#include <stdint.h>

#define MOST_DIMS 16

/* A stretch of device memory, shared by the arrays that show it. */
typedef struct Block {
    char *data;
    size_t size;   /* of the block, at least what was asked for */
    Py_ssize_t references;
    int bin, index; /* of a small one: its size class, and which of that it is */
    PyObject *owner;   /* whoever lent the memory; NULL: it is ours */
    struct Lane *lane; /* the stream it belongs to */
    uint64_t uses[4];  /* a bit for each other stream that it was said to be used on, by their numbers */
    int has_uses;
    int is_chained; /* whether a chain that is not closed writes it: chains.c */
    int is_free;    /* of a large one, as is all that follows: see ranges.c */
    struct Block **free_list, *previous_free, *next_free, *before, *behind; /* the last two: its neighbours in memory */
} Block;

typedef struct {
    PyObject_HEAD
    PyArray_Descr *dtype;
    Block *block;
    char *data;
    PyObject *base; /* the array that it is a view of, or NULL */
    PyObject *weak_references;
    Py_ssize_t size;
    int nd;
    char code; /* of the dtype, see code_of */
    char is_contiguous, is_writeable;
    npy_intp dims[MOST_DIMS], strides[MOST_DIMS];
} Array;

#endif

/* undertow._cuda: arrays in the memory of a GPU, and launching kernels on them.
 *
 * driver.c       the functions of the driver, found when a device is first used; the emulated device
 * memory.c       blocks of device memory: lowest free one first, statistics, what happens when there is none left
 * queue.c        what is asked of the device, sent together; repeated sequences as graphs
 * launch.c       a kernel, a grid and its arguments
 * array.c        the array type            views.c   the same memory with other shapes and strides
 * copies.c       to and from the host      operators.c   what `+`, `<`, `@` and their like mean
 * elementwise.c  kernels of one formula, for arrays of any layout
 * reduce.c       sums and their like       products.c    matrix products, by cuBLAS
 * updates.c      one launch for many arrays: the steps of optimizers
 * convolution.c  convolutions, by cuDNN    light.c       matrix products, by cuBLASLt: half precision, and with a bias
 *
 * Everything happens under Python's lock, and on one stream. With UNDERTOW_CUDA=emulate "device" memory is the host's, and
 * the same kernels are compiled by the host's compiler.
 */
#ifndef UNDERTOW_CUDA_H
#define UNDERTOW_CUDA_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#define PY_ARRAY_UNIQUE_SYMBOL undertow_cuda_array_api
#ifndef UNDERTOW_CUDA_MODULE
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include <stdint.h>

#include "cuda/array.h"

/* ---- driver.c */

typedef unsigned long long DevicePointer;
typedef void *Stream, *Function, *Module;

extern int is_emulated, is_started;
extern Stream the_stream;

/* Whether a call of the driver has failed; then with an exception that names what was being done. */
int failed(int result, const char *what);
/* Make the device's context that of this thread. */
int enter_context(void);
/* Memory of the device, or 0: it has none left. */
char *driver_allocate(size_t bytes);
void driver_free(char *memory);
int driver_copy_to_device(char *to, const void *from, size_t bytes);
int driver_copy_to_host(void *to, const char *from, size_t bytes);
int driver_fill_zero(char *memory, size_t bytes);
/* Wait for the stream, without Python's lock. */
int driver_synchronize(void);
int driver_launch(Function function, const unsigned *grid, unsigned block, void *arguments);
int driver_begin_capture(void);
/* End it; with NULL for the graph what was recorded is dropped. */
int driver_end_capture(void **graph);
int driver_launch_graph(void *graph);
void driver_free_graph(void *graph);
/* The word that kernels write to when an index is out of range. */
extern long long *index_error;
/* Raise what kernels have noted since the last look. */
int raise_index_error(void);
/* Memory of the host that the device reads and writes without a detour. */
extern char *staging;
#define STAGING_BYTES 4096

PyObject *module_start(PyObject *module, PyObject *args);
PyObject *module_load(PyObject *module, PyObject *args);
PyObject *module_synchronize(PyObject *module, PyObject *nothing);
PyObject *module_stream(PyObject *module, PyObject *nothing);
PyObject *module_error_word(PyObject *module, PyObject *nothing);

/* ---- memory.c */

/* A block of at least so many bytes; NULL with OutOfMemoryError. */
Block *block_new(size_t bytes);
Block *block_lent(char *data, PyObject *owner);
void block_release(Block *block);

PyObject *module_memory_stats(PyObject *module, PyObject *nothing);
PyObject *module_reset_peak(PyObject *module, PyObject *nothing);
PyObject *module_empty_cache(PyObject *module, PyObject *nothing);
PyObject *module_set_memory_limit(PyObject *module, PyObject *bytes);
extern PyObject *out_of_memory_error;

/* ---- queue.c */

enum { KERNEL_ENTRY, PRODUCT_ENTRY, ZERO_ENTRY, CALL_ENTRY = 16 };

typedef struct {
    char *memory;
    size_t bytes;
} Zero;

/* Ask for a launch. `size` is that of the arguments; is_long: it keeps the device busy, and is sent at once. */
int enqueue(int kind, Function function, const unsigned *grid, unsigned block, const void *arguments, size_t size,
            int is_long);
int enqueue_zero(char *memory, size_t bytes);
/* Send what was asked for: before anybody looks at memory of the device, or gives it away. */
int flush(void);

PyObject *module_flush(PyObject *module, PyObject *nothing);
PyObject *module_set_launch_mode(PyObject *module, PyObject *args);
PyObject *module_launch_stats(PyObject *module, PyObject *nothing);
PyObject *module_forget_graphs(PyObject *module, PyObject *nothing);

/* ---- launch.c */

/* Start a kernel on so many elements. `size` is that of the arguments. */
int launch(Function function, unsigned blocks, unsigned block, const void *arguments, size_t size, npy_intp elements);
extern PyTypeObject Kernel_Type;
Function kernel_function(PyObject *kernel);

/* ---- updates.c */

PyObject *module_update_together(PyObject *module, PyObject *args);

/* ---- array.c */

extern PyTypeObject Array_Type;
extern PyTypeObject *array_class; /* the subclass that Python made of it */
#define IS_ARRAY(object) (Py_TYPE(object) == array_class)

/* The numbers of dtypes, in the order of `DTYPES` in backend/cuda/kernel_text.py; of one that kernels do not know. */
enum { CODE_BOOL, CODE_U8, CODE_U16, CODE_U32, CODE_U64, CODE_I8, CODE_I16, CODE_I32, CODE_I64, CODE_F16, CODE_F32,
       CODE_F64, CODE_C64, CODE_C128, CODE_BF16, CODE_UNKNOWN };
int code_of(const PyArray_Descr *dtype);
extern int bfloat16_number; /* NumPy's number of the dtype of ml_dtypes; -1 before its first use */

/* A new array; `strides` NULL: row after row. All borrow the dtype. */
Array *array_new(PyArray_Descr *dtype, int nd, const npy_intp *dims, const npy_intp *strides);
Array *array_view(Array *of, int nd, const npy_intp *dims, const npy_intp *strides, npy_intp offset,
                  PyArray_Descr *dtype);
Array *array_alloc(PyArray_Descr *dtype, int nd);
/* The array itself or a copy, row after row; a new reference. */
Array *contiguous(Array *array);
int lies_by_rows(int nd, const npy_intp *dims, const npy_intp *strides, npy_intp item);
/* Sizes from a tuple, a list or several numbers; how many, or -1 with an exception. */
int read_sizes(PyObject *const *given, Py_ssize_t count, npy_intp *sizes);
/* The lowest byte of an array's elements, and the one behind the highest. */
void bounds_of(const Array *array, const char **low, const char **high);

PyObject *module_empty(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *module_lent(PyObject *module, PyObject *args);
PyObject *module_setup(PyObject *module, PyObject *args);

/* ---- views.c */

extern PyMethodDef view_methods[];
PyObject *array_reshape(PyObject *self, PyObject *const *given, Py_ssize_t count);
PyObject *array_transpose(PyObject *self, PyObject *const *given, Py_ssize_t count);
PyObject *array_swapaxes(PyObject *self, PyObject *const *given, Py_ssize_t count);
PyObject *array_getitem(PyObject *self, PyObject *index);
int array_setitem(PyObject *self, PyObject *index, PyObject *value);
PyObject *module_as_view(PyObject *module, PyObject *args);
PyObject *module_broadcast_to(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *module_shadow(PyObject *module, PyObject *array);
PyObject *module_adopt(PyObject *module, PyObject *args);
extern PyObject *slow_getitem, *slow_setitem;

/* ---- copies.c */

PyObject *module_from_host(PyObject *module, PyObject *array);
PyObject *array_to_host(PyObject *self, PyObject *nothing);
PyObject *module_overwrite(PyObject *module, PyObject *args);

/* ---- elementwise.c */

extern PyTypeObject Elementwise_Type;
#define MOST_IN 8
#define MOST_LOOP 12
/* The result of a kernel, a new reference; `out` may be NULL. */
PyObject *elementwise_run(PyObject *kernel, PyObject *const *operands, PyObject *out);
/* The same; what there is no kernel for (dtypes, operands of the host) goes the long way. */
PyObject *elementwise_or_leave(PyObject *kernel, PyObject *const *operands, PyObject *out);

/* ---- operators.c */

extern PyNumberMethods array_number;
PyObject *array_compare(PyObject *a, PyObject *b, int op);
int read_operators(PyObject *table);
/* Write `value` into `to` by the kernel of copies. */
int copy_into(Array *to, Array *value);

/* ---- reduce.c */

PyObject *module_reduce(PyObject *module, PyObject *args);
PyObject *module_sum_to(PyObject *module, PyObject *const *given, Py_ssize_t count);
extern PyObject *reduction_maker;

/* ---- products.c */

/* Send a product that was asked for. */
int issue_product(const void *product);
PyObject *module_start_blas(PyObject *module, PyObject *path);
PyObject *module_matmul(PyObject *module, PyObject *const *given, Py_ssize_t count);

/* ---- light.c */

PyObject *module_start_light(PyObject *module, PyObject *path);
PyObject *module_allow_tf32(PyObject *module, PyObject *allowed);
PyObject *module_multiply_into(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *module_linear(PyObject *module, PyObject *const *given, Py_ssize_t count);

/* ---- convolution.c */

PyObject *module_start_dnn(PyObject *module, PyObject *path);
PyObject *module_convolution(PyObject *module, PyObject *args);

#endif

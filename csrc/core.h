/* The compiled core: the hot paths of ops/declare/ and engine/loop.py, in C.
 *
 * Everything it does, the Python code does too: whatever is out of the ordinary (another device than the CPU, an
 * interceptor, bfloat16, hooks, ...) is handed to the Python function that it stands in for. The classes are
 * Python's; C reads and writes their slots at the offsets that their descriptors name (see bind in module.c).
 */
#ifndef UNDERTOW_CORE_H
#define UNDERTOW_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#define PY_ARRAY_UNIQUE_SYMBOL undertow_array_api
#ifndef UNDERTOW_MODULE
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "plan.h"

#include <fenv.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#define SLOT(object, offset) (*(PyObject **)((char *)(object) + (offset)))

static inline void
set_slot(PyObject *object, Py_ssize_t offset, PyObject *value) /* steals value */
{
    PyObject *old = SLOT(object, offset);
    SLOT(object, offset) = value;
    Py_XDECREF(old);
}

/* PyArray_SIZE, without a call of NumPy */
static inline npy_intp
count_of(PyArrayObject *array)
{
    npy_intp count = 1;
    for (int k = PyArray_NDIM(array); k > 0; k--) {
        count *= PyArray_DIMS(array)[k - 1];
    }
    return count;
}

/* What Python told us of its classes and functions; filled by bind(). */
typedef struct {
    /* tensor/ */
    PyTypeObject *Tensor, *Parameter;
    Py_ssize_t t_array, t_xp, t_edge, t_extra;
    PyTypeObject *Extra;
    Py_ssize_t e_counter, e_view, e_accumulate, e_used_by, e_grad, e_rare;
    PyTypeObject *View;
    Py_ssize_t v_base, v_replay, v_creation, v_version;
    PyTypeObject *Replay;
    Py_ssize_t r_before, r_function, r_arguments, r_output;
    PyTypeObject *VersionCounter;
    Py_ssize_t c_value, c_operation, c_code, c_lasti;
    PyObject *counter_of;
    PyObject *LEAF, *LAST, *NO_COUNTER, *extra_of, *version_of, *current_replay, *attach_view;
    PyObject *DEFAULT, *NO_GRAD, *INFERENCE, *MULTIPLE_OUTPUTS, *share_inference;
    /* modes */
    PyObject *state_variable;
    PyTypeObject *State;
    Py_ssize_t s_intercept, s_unusual, s_grad_enabled, s_record, s_extra, s_inference, s_lowered;
    /* autograd/: vmap */
    PyTypeObject *Transforms, *VmapLevel, *BatchedTensor, *Example;
    Py_ssize_t transforms_order, transforms_duals, b_value, b_dim, b_level, example_array;
    /* graph/ */
    PyTypeObject *Node;
    Py_ssize_t n_sequence_nr, n_recorded_edges, n_saved, n_params, n_shape, n_dtype, n_extra, n_code, n_lasti;
    PyObject *sequence;       /* the itertools.count behind next_sequence_nr */
    PyTypeObject *AccumulateGrad;
    Py_ssize_t a_variable;
    PyTypeObject *OutputEdge;
    PyTypeObject *Freed;
    PyObject *recorded_edge, *current_edge, *leaf_edge, *rebase_history, *resolve_leaves, *unpack_input, *unpack_output;
    PyObject *own_files;      /* file name -> whether it is one of undertow's own */
    int sites;                /* whether nodes remember the line that made them */
    int without_twins;        /* whether Python functions do what their twins would */
    /* backend/ */
    PyObject *cpu;
    PyObject *errors_variable, *QUIET; /* what NumPy does about floating-point errors, and the value that is nothing */
    PyTypeObject *ufunc;
    PyArray_Descr *float32, *float64;
    PyTypeObject *PublicDtype;
    Py_ssize_t d_numpy;       /* where a public dtype keeps NumPy's */
    PyTypeObject *device_array; /* the class of arrays on a GPU, and their namespace: NULL until one is used */
    PyObject *device_xp;
    PyTypeObject *StreamExtra; /* the class of what nodes of one stream share, and where an array's node gets it from */
    PyObject *extra_on;
    /* ops/ */
    PyObject *recorded; /* the namespace of recorded passes */
    PyObject *device_forms, *device_rules; /* what an operation, and a class of nodes, does on a GPU */
    PyObject *ask_first; /* NULL until there is a class with __torch_function__: see tensor/torch_function.py */
    PyObject *common_dtype, *default_dtype; /* what operands are promoted to; a list of the dtype of new floats */
    /* engine/ */
    PyObject *RUNS, *evaluate, *buffered, *conform, *finish_leaf, *describe_failure, *refuse_result, *pause;
    PyTypeObject *ExecInfo;
    Py_ssize_t x_captures, x_needed;
    PyTypeObject *Capture;
    Py_ssize_t p_hooks, p_output_idx;
    /* instrument/: NULL until a program uses the profiler */
    PyTypeObject *Profiled;
    PyObject *place_of_space, *facts_of_node; /* where work goes, and what is known of a node there */
    PyObject *look_on; /* NULL until there is a profile: see tensor/torch_function.py */
    Py_ssize_t o_rows;
    /* distributed/: NULL until a program uses it */
    PyTypeObject *Arrivals;
    Py_ssize_t arrivals_is_open, arrivals_as_view, arrivals_left, arrivals_buckets, arrivals_views, arrivals_missing,
        arrivals_unusual, arrivals_complete;
} Core;

extern Core core;

/* ---- module.c */

/* Where the objects of a class keep a slot; -1 and an exception if it has none of that name. */
int find_slot(PyTypeObject *type, PyObject *name, Py_ssize_t *offset);

/* ---- expression.c: formulas */

typedef struct Expression Expression;

/* Compile the nested tuples that ops/declare/core_plan.py makes of a formula. */
Expression *expression_new(PyObject *description);
void expression_free(Expression *);
/* How many arguments it needs: one more than the highest number of those in it. */
int expression_reach(const Expression *);
/* The value (a new reference) for these arguments (borrowed). */
PyObject *expression_value(const Expression *, PyObject *const *arguments);
/* The same, only if it is a sum, difference, product or quotient of two arguments that are small arrays or numbers;
 * otherwise NULL without an exception. */
PyObject *arithmetic_value(const Expression *, PyObject *const *arguments);
/* The program that would be run for these arguments, if they are large, and its inputs, as a tuple; otherwise NULL, without
 * an exception if there is none. */
PyObject *program_call_of(const Expression *, PyObject *const *arguments);
/* The value on large arrays of half precision, computed in float32 and rounded, block by block; NULL without an exception:
 * they have to be widened as a whole. */
PyObject *narrow_value(const Expression *, PyObject *const *arguments);
PyObject *set_large(PyObject *module, PyObject *elements);

/* ---- multiples.c */

/* target += alpha * other (or -=, by the ufunc), in place, if both are large; whether it is done */
int add_multiple(PyObject *ufunc, PyObject *target, PyObject *other, PyObject *alpha);

/* ---- operation.c */

extern PyTypeObject Operation_Type, InPlace_Type, Variadic_Type, Shortcut_Type, Gate_Type;

/* scopes.c */
extern PyTypeObject Scope_Type, Held_Type;
int find_scope_names(void);
PyObject *plain_leaf_edge(PyObject *module, PyObject *leaf);
PyObject *watch_nodes(PyObject *module, PyObject *nothing);
PyObject *keep_apart(PyObject *module, PyObject *node);
PyObject *quicken_attributes(PyObject *module, PyObject *const *given, Py_ssize_t count);
int set_variable(PyObject *variable, PyObject *value); /* a ContextVar, or what has set(); -1 with an exception */
PyObject *call_with(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *set_value(PyObject *module, PyObject *const *args, Py_ssize_t count);
int put_back(PyObject *variable, PyObject *value);
PyObject *set_for_now(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *note_all(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *reset_variable(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *calls_left(PyObject *module, PyObject *ignored);
PyObject *class_builder(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

/* ---- pull.c */

extern PyTypeObject Pull_Type;

/* How many edges the nodes have, if pull_gradients can be used with this namespace and gradient; otherwise 0. -1: an
 * exception. */
int pull_applies(PyObject *pull, PyObject *xp, PyObject *grad);
/* Whether everything that a node saved is there, and no SavedTensor. */
int keeps_plainly(PyObject *pull, PyObject *node);
/* Gradients (new references, NULL for none) for the edges of a node; -1 and an exception if that failed. */
int pull_gradients(PyObject *pull, PyObject *node, PyObject *grad, PyObject *edges, PyObject *keep, PyObject *xp,
                   PyObject **gradients);

/* ---- engine.c */

PyObject *run_pass(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

/* ---- dependencies.c */

PyObject *compute_dependencies(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *are_all_ends(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

/* ---- arrivals.c */

extern PyTypeObject Arrival_Type;
PyObject *give_gradients(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

/* ---- twins/table.c */

extern PyTypeObject Twin_Type;
int is_twin_of_more(PyObject *function); /* whether it is a twin, and of more than a ufunc */
extern PyTypeObject Sizes_Type;

/* ---- formula/blocks.c */

extern PyTypeObject Program_Type, Programs_Type;

/* ---- small things */

/* What the processor notes of floating-point arithmetic. */
#if defined(__SSE2__)
#define UNDERFLOW_NOTED _MM_EXCEPT_UNDERFLOW
#define NOTED (_MM_EXCEPT_INVALID | _MM_EXCEPT_DIV_ZERO | _MM_EXCEPT_OVERFLOW | _MM_EXCEPT_UNDERFLOW)
static inline void
forget_exceptions(void)
{
    unsigned int status = _mm_getcsr();
    if (status & NOTED) {
        _mm_setcsr(status & ~NOTED);
    }
}
static inline int
exceptions_noted(void)
{
    return _mm_getcsr() & NOTED;
}
#else
#define UNDERFLOW_NOTED FE_UNDERFLOW
#define NOTED (FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW)
static inline void
forget_exceptions(void)
{
    feclearexcept(NOTED);
}
static inline int
exceptions_noted(void)
{
    return fetestexcept(NOTED);
}
#endif


/* A new tensor; takes over `array`, borrows edge and extra. */
static inline PyObject *
new_tensor(PyObject *array, PyObject *edge, PyObject *extra)
{
    PyObject *tensor = core.Tensor->tp_alloc(core.Tensor, 0);
    if (tensor == NULL) {
        Py_DECREF(array);
        return NULL;
    }
    SLOT(tensor, core.t_array) = array;
    SLOT(tensor, core.t_xp) = Py_NewRef(Py_TYPE(array) == core.device_array ? core.device_xp : core.cpu);
    SLOT(tensor, core.t_edge) = Py_NewRef(edge);
    SLOT(tensor, core.t_extra) = Py_NewRef(extra);
    return tensor;
}

/* Whether the object is a tensor whose slots can be read: a Tensor or a Parameter. Another subclass may have put
 * properties in their place; and whoever deletes a slot, or puts something strange there, hears of it from Python. */
static inline int
is_tensor(PyObject *object)
{
    if (!Py_IS_TYPE(object, core.Tensor) && !Py_IS_TYPE(object, core.Parameter)) {
        return 0;
    }
    PyObject *extra = SLOT(object, core.t_extra);
    return SLOT(object, core.t_array) != NULL && SLOT(object, core.t_edge) != NULL && extra != NULL &&
           (extra == Py_None || Py_IS_TYPE(extra, core.Extra));
}

/* The View behind an Extra (both borrowed), or NULL if there is none that can be read. */
static inline PyObject *
readable_view(PyObject *extra)
{
    PyObject *view = extra == Py_None ? NULL : SLOT(extra, core.e_view);
    return view != NULL && Py_IS_TYPE(view, core.View) && SLOT(view, core.v_base) != NULL ? view : NULL;
}

/* Edges (taken over), if they are a tuple or a list; otherwise NULL and an exception. */
static inline PyObject *
checked_edges(PyObject *edges)
{
    if (edges != NULL && !PyTuple_Check(edges) && !PyList_Check(edges)) {
        PyErr_Format(PyExc_TypeError, "a node keeps its edges in a tuple or a list, not in %s", Py_TYPE(edges)->tp_name);
        Py_CLEAR(edges);
    }
    return edges;
}

/* The edges of a node, a new reference: a tuple or a list. */
static inline PyObject *
edges_of(PyObject *node)
{
    PyObject *edges = SLOT(node, core.n_recorded_edges);
    return checked_edges(edges != NULL ? Py_NewRef(edges) : PyObject_GetAttrString(node, "recorded_edges"));
}

/* ---- call/nodes.c: the tp_dealloc of most classes of nodes, and of nothing else */
void free_node(PyObject *node);

/* The node (borrowed) that an edge leads to; NULL and an exception if it is none. */
static inline PyObject *
node_behind(PyObject *edge)
{
    PyObject *node = edge;
    if (Py_IS_TYPE(edge, core.OutputEdge)) {
        node = PyTuple_GET_SIZE(edge) == 2 ? PyTuple_GET_ITEM(edge, 0) : edge;
    }
    if (Py_TYPE(node)->tp_dealloc != free_node && !PyObject_TypeCheck(node, core.Node)) {
        PyErr_Format(PyExc_TypeError, "an edge leads to a node, not to %s", Py_TYPE(node)->tp_name);
        return NULL;
    }
    return node;
}

/* The object behind a weak reference, a new reference, or NULL if it is gone. */
static inline PyObject *
referent(PyObject *reference)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *found = NULL;
    if (PyWeakref_GetRef(reference, &found) < 0) {
        PyErr_Clear();
    }
    return found;
#else
    PyObject *found = PyWeakref_GetObject(reference);
    return found == NULL || found == Py_None ? NULL : Py_NewRef(found);
#endif
}

/* An int as a size; whether it is one, and not too large. */
static inline int
read_size(PyObject *object, npy_intp *size)
{
    if (!PyLong_CheckExact(object)) {
        return 0;
    }
    *size = PyLong_AsSsize_t(object);
    if (*size == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return 1;
}

/* Whether a dtype is of half precision, which is computed in float32 (ops/arguments/half_precision.py): float16, or
 * bfloat16, which NumPy does not know. */
static inline int
is_narrow_type(int type)
{
    return type == NPY_HALF || type >= NPY_USERDEF;
}

/* Whether it is an array of half precision. */
static inline int
is_narrow(PyObject *value)
{
    return PyArray_CheckExact(value) && is_narrow_type(PyArray_TYPE((PyArrayObject *)value));
}

/* ---- call/stand_in.c: the type that those of objects that pass for a Python function are based on */

#define STAND_IN_HEAD                                                                                                  \
    PyObject_HEAD vectorcallfunc vectorcall;                                                                           \
    PyObject *function; /* Python's */                                                                                 \
    PyObject *shown;    /* the name by which profiles show it as made of others, while there are any; or NULL */       \
    PyObject *weak_references;

#define STAND_IN_FLAGS                                                                                                 \
    (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR)

typedef struct {
    STAND_IN_HEAD
} StandIn;

extern PyTypeObject StandIn_Type;
extern PyGetSetDef stand_in_attributes[];
int stand_in_traverse(PyObject *self, visitproc visit, void *arg);
int stand_in_clear(PyObject *self);
/* Ends weak references, calls the type's tp_clear and frees the memory. */
void stand_in_dealloc(PyObject *self);
/* The function behind a C object, which asks first, if functions do (call/gate.c); and the same without asking. */
PyObject *call_python(StandIn *self, PyObject *const *given, size_t flagged, PyObject *names);
PyObject *call_unasked(StandIn *self, PyObject *const *given, size_t flagged, PyObject *names);

/* What stands behind a value that is an array already, or a number that NumPy returned for one without dimensions:
 * an array (takes over the value). */
PyObject *as_cpu_array(PyObject *value);

#endif

/* Twin: a Python function on arrays whose usual case is computed in C, by the function of this folder that the table
 * below names. What that one leaves alone, the Python function does; it is marked by the decorator `twin` of compiled.py.
 */
#include "twins/table.h"
#include "quiet.h"

/* Returns NULL without an exception if Python should do it. */
typedef PyObject *(*Kernel)(PyObject *const *arguments);

typedef struct {
    STAND_IN_HEAD
    Kernel kernel;
    Py_ssize_t count; /* of arguments */
    PyObject *names;  /* a tuple: which of them, the last ones, are given by name alone */
} Twin;

/* ---- the table */

static const struct {
    const char *name;
    Kernel kernel;
    Py_ssize_t count;
} kernels[] = {{"transpose_matrix", transpose_matrix, 2}, {"broadcast_to", broadcast_to, 2}, {"sum_to", sum_to, 2},
               {"multiply_matrices", multiply_matrices, 3}, {"threshold_gradient", threshold_gradient, 4},
               {"positive_part", positive_part, 2},
               {"cross_entropy_forward", cross_entropy_forward, 6}, {"nll_forward", nll_forward, 6},
               {"scores_from_classes", scores_from_classes, 5},
               {"softmax_minus_target", softmax_minus_target, 5}, {"target_coefficients", target_coefficients, 7},
               {"descend", descend, 4}, {"sum_all_forward", sum_all_forward, 2}, {"join", join, 3}, {"pile", pile, 3},
               {"normalized_exponentials", normalized_exponentials, 4}, {"logs_of_softmax", logs_of_softmax, 4},
               {"softmax_gradient", softmax_gradient, 4}, {"log_softmax_gradient", log_softmax_gradient, 4},
                {"select_array", select_array, 4},
               {"slice_array", slice_array, 6}, {"swap", swap, 4}, {"permute_array", permute_array, 3},
               {"inverse", inverse, 1}, {"unsqueeze_array", unsqueeze_array, 3}, {"squeeze_all", squeeze_all, 2},
               {"squeeze_one", squeeze_one, 3}, {"expand_array", expand_array, 3}, {"view_array", view_array, 3},
               {"unbind_array", unbind_array, 3}, {"cut_evenly", cut_evenly, 4},
               {"select_gradient", select_gradient, 5}, {"slice_gradient", slice_gradient, 7},
               {"sum_dims_forward", sum_dims_forward, 4}, {"mean_forward", mean_forward, 4},
               {"var_forward", var_forward, 6}, {"max_along", max_along, 4}, {"min_along", min_along, 4},
               {"places_along", places_along, 4}, {"fold", fold, 5},
               {"sort_forward", sort_forward, 4}, {"topk_forward", topk_forward, 6},
               {"scatter_selected", scatter_selected, 6}, {"restore", restore, 5},
               {"clamped_to_numbers", clamped_to_numbers, 4}, {"masked_fill_array", masked_fill_array, 4},
               {"clamp_to_numbers_rule", clamp_to_numbers_rule, 5}, {"logistic", logistic, 2},
               {"sigmoid_gradient", sigmoid_gradient, 3}, {"tanh_gradient", tanh_gradient, 3},
               {"sigmoid_linear", sigmoid_linear, 2},
               {"silu_gradient", slope_of_silu_twin, 3}, {"log_one_plus_exp", log_one_plus_exp, 4},
               {"difference", difference, 3}, {"negated", negated, 2}, {"less", less, 3},
               {"less_equal", less_equal, 3}, {"greater", greater, 3}, {"greater_equal", greater_equal, 3},
               {"power", power, 3}, {"gaussian_linear", gaussian_linear, 3}, {"copied", copied_small, 1},
               {"apply_linear", apply_linear, 4}, {"exponential_linear", exponential_linear, 5}, {"elu_gradient", elu_gradient, 6},
               {"dim", dim, 1}, {"numel", numel, 1}, {"element_size", element_size, 1}, {"data_ptr", data_ptr, 1},
               {"is_contiguous", is_contiguous, 1}, {"stride", stride, 1}, {"storage_offset", storage_offset, 1}};

/* ---- the type */

/* Whether all arguments are given, in their order. */
static int
are_all(const Twin *self, Py_ssize_t given, PyObject *names)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (named > 0 && named != PyTuple_GET_SIZE(self->names)) {
        return 0;
    }
    for (Py_ssize_t k = 0; k < named; k++) {
        if (PyTuple_GET_ITEM(names, k) != PyTuple_GET_ITEM(self->names, k)) { /* both are interned */
            return 0;
        }
    }
    return given + named == self->count;
}

static PyObject *
twin_call(PyObject *callable, PyObject *const *given, size_t flagged, PyObject *names)
{
    Twin *self = (Twin *)callable;
    if (are_all(self, PyVectorcall_NARGS(flagged), names) && !core.without_twins) {
        PyObject *result = self->kernel(given);
        if (result != NULL || PyErr_Occurred()) {
            return result;
        }
    }
    return quiet_call(self->function, given, flagged, names);
}

/* The names of the arguments that a Python function takes by name alone. */
static PyObject *
names_given(PyObject *function)
{
    if (!PyFunction_Check(function)) {
        return PyTuple_New(0);
    }
    PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(function);
    PyObject *all = PyCode_GetVarnames(code);
    PyObject *names =
        all == NULL ? NULL : PyTuple_GetSlice(all, code->co_argcount, code->co_argcount + code->co_kwonlyargcount);
    Py_XDECREF(all);
    return names;
}

static void
twin_dealloc(PyObject *self)
{
    Py_CLEAR(((Twin *)self)->names);
    stand_in_dealloc(self);
}

static PyObject *
twin_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *function, *name;
    if (!PyArg_ParseTuple(args, "O", &function)) {
        return NULL;
    }
    PyObject *names = names_given(function);
    name = names == NULL ? NULL : PyObject_GetAttrString(function, "__name__");
    const char *text = name == NULL ? NULL : PyUnicode_AsUTF8(name);
    Twin *self = NULL;
    size_t k = 0, known = sizeof(kernels) / sizeof(kernels[0]);
    while (text != NULL && k < known && strcmp(kernels[k].name, text) != 0) {
        k++;
    }
    if (text != NULL && k == known) {
        PyErr_Format(PyExc_ValueError, "the compiled core has no %s", text);
    }
    else if (text != NULL && (self = (Twin *)type->tp_alloc(type, 0)) != NULL) {
        self->vectorcall = twin_call;
        self->function = Py_NewRef(function);
        self->kernel = kernels[k].kernel;
        self->count = kernels[k].count;
        self->names = Py_NewRef(names);
    }
    Py_XDECREF(names);
    Py_XDECREF(name);
    return (PyObject *)self;
}

static PyMemberDef twin_members[] = {{"__wrapped__", T_OBJECT, offsetof(Twin, function), READONLY}, {NULL}};

PyTypeObject Twin_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._core.Twin",
    .tp_base = &StandIn_Type,
    .tp_basicsize = sizeof(Twin),
    .tp_flags = STAND_IN_FLAGS,
    .tp_new = twin_new,
    .tp_dealloc = twin_dealloc,
    .tp_traverse = stand_in_traverse,
    .tp_clear = stand_in_clear,
    .tp_getset = stand_in_attributes,
    .tp_members = twin_members,
};

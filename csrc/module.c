/* The module undertow._core: types and functions, and what Python tells it. */
#define UNDERTOW_MODULE
#include "core.h"
#include "call/batched.h"
#include "formula/functions.h"
#include "formula/small_arrays.h"
#include "loops/memory.h"
#include "loops/threads.h"
#include "kernels/kernels.h"
#include "kernels/ranges.h"
#include "kernels/running_extremes.h"
#include "kernels/softmax_columns.h"
#include "rows.h"

Core core;

/* ---- bind: names -> where in `core` they go */

typedef struct {
    const char *name;
    PyObject **place;
    int is_type;
} Object;

typedef struct {
    const char *type; /* a name of the above */
    const char *slot;
    Py_ssize_t *place;
} Slot;

#define TYPE(name) {#name, (PyObject **)&core.name, 1}
#define OBJECT(name) {#name, &core.name, 0}

static const Object objects[] = {
    TYPE(Tensor), TYPE(Parameter), TYPE(Extra), TYPE(View), TYPE(Replay), TYPE(VersionCounter), TYPE(State), TYPE(Node),
    TYPE(AccumulateGrad), TYPE(OutputEdge), TYPE(Freed), TYPE(ExecInfo), TYPE(Capture), TYPE(Profiled), TYPE(Arrivals),
    TYPE(Transforms), TYPE(VmapLevel), TYPE(BatchedTensor), TYPE(Example), TYPE(PublicDtype), TYPE(device_array), TYPE(StreamExtra), OBJECT(device_xp), OBJECT(device_forms),
    OBJECT(device_rules), OBJECT(extra_on), OBJECT(LEAF), OBJECT(LAST),
    OBJECT(NO_COUNTER), OBJECT(extra_of), OBJECT(version_of), OBJECT(current_replay), OBJECT(DEFAULT), OBJECT(NO_GRAD),
    OBJECT(INFERENCE), OBJECT(MULTIPLE_OUTPUTS), OBJECT(counter_of), OBJECT(current_edge), OBJECT(rebase_history),
    OBJECT(share_inference), OBJECT(attach_view), OBJECT(state_variable), OBJECT(sequence),
    OBJECT(recorded_edge), OBJECT(leaf_edge), OBJECT(resolve_leaves), OBJECT(unpack_input), OBJECT(unpack_output),
    OBJECT(own_files), OBJECT(cpu), OBJECT(errors_variable), OBJECT(QUIET), TYPE(ufunc), OBJECT(recorded),
    OBJECT(common_dtype), OBJECT(ask_first), OBJECT(look_on), OBJECT(default_dtype), OBJECT(RUNS), OBJECT(evaluate), OBJECT(buffered), OBJECT(conform),
    OBJECT(finish_leaf), OBJECT(describe_failure), OBJECT(refuse_result), OBJECT(pause),
    OBJECT(place_of_space), OBJECT(facts_of_node)};

static const Slot slots[] = {
    {"Tensor", "_array", &core.t_array}, {"Tensor", "_xp", &core.t_xp}, {"Tensor", "_edge", &core.t_edge},
    {"Tensor", "_extra", &core.t_extra}, {"Extra", "counter", &core.e_counter}, {"Extra", "view", &core.e_view},
    {"Extra", "accumulate", &core.e_accumulate}, {"Extra", "used_by", &core.e_used_by},
    {"Extra", "grad", &core.e_grad}, {"Extra", "rare", &core.e_rare}, {"View", "base", &core.v_base},
    {"View", "replay", &core.v_replay}, {"View", "creation", &core.v_creation},
    {"View", "version", &core.v_version}, {"Replay", "before", &core.r_before},
    {"Replay", "function", &core.r_function}, {"Replay", "arguments", &core.r_arguments},
    {"Replay", "output", &core.r_output}, {"State", "intercept", &core.s_intercept},
    {"State", "unusual", &core.s_unusual}, {"VersionCounter", "value", &core.c_value},
    {"VersionCounter", "operation", &core.c_operation}, {"VersionCounter", "code", &core.c_code},
    {"VersionCounter", "lasti", &core.c_lasti},
    {"State", "grad_enabled", &core.s_grad_enabled}, {"State", "_lowered", &core.s_lowered},
    {"Profiled", "rows_for_core", &core.o_rows},
    {"State", "record", &core.s_record}, {"State", "extra", &core.s_extra}, {"State", "inference", &core.s_inference},
    {"Transforms", "order", &core.transforms_order}, {"Transforms", "duals", &core.transforms_duals},
    {"BatchedTensor", "_value", &core.b_value}, {"BatchedTensor", "_dim", &core.b_dim},
    {"BatchedTensor", "_level", &core.b_level}, {"Example", "_array", &core.example_array},
    {"Node", "sequence_nr", &core.n_sequence_nr}, {"Node", "recorded_edges", &core.n_recorded_edges},
    {"Node", "params", &core.n_params}, {"Node", "saved", &core.n_saved}, {"Node", "shape", &core.n_shape},
    {"Node", "dtype", &core.n_dtype}, {"Node", "extra", &core.n_extra}, {"Node", "code", &core.n_code},
    {"Node", "lasti", &core.n_lasti},
    {"AccumulateGrad", "variable", &core.a_variable}, {"ExecInfo", "captures", &core.x_captures},
    {"ExecInfo", "needed", &core.x_needed}, {"Capture", "hooks", &core.p_hooks},
    {"Capture", "output_idx", &core.p_output_idx}, {"PublicDtype", "dtype", &core.d_numpy},
    {"Arrivals", "is_open", &core.arrivals_is_open}, {"Arrivals", "as_view", &core.arrivals_as_view},
    {"Arrivals", "left", &core.arrivals_left}, {"Arrivals", "buckets", &core.arrivals_buckets},
    {"Arrivals", "views", &core.arrivals_views}, {"Arrivals", "missing", &core.arrivals_missing},
    {"Arrivals", "unusual", &core.arrivals_unusual}, {"Arrivals", "complete", &core.arrivals_complete}};

int
find_slot(PyTypeObject *type, PyObject *name, Py_ssize_t *offset)
{
    PyObject *found = PyObject_GetAttr((PyObject *)type, name);
    if (found == NULL) {
        return -1;
    }
    int is_slot = Py_IS_TYPE(found, &PyMemberDescr_Type);
    if (is_slot) {
        *offset = ((PyMemberDescrObject *)found)->d_member->offset;
    }
    else {
        PyErr_Format(PyExc_TypeError, "%U of %s is no slot", name, type->tp_name);
    }
    Py_DECREF(found);
    return is_slot ? 0 : -1;
}

static int
bind_slots(const char *type_name, PyObject *type)
{
    int status = 0;
    for (size_t k = 0; k < sizeof(slots) / sizeof(slots[0]) && status == 0; k++) {
        if (strcmp(slots[k].type, type_name) == 0) {
            PyObject *name = PyUnicode_FromString(slots[k].slot);
            status = name == NULL ? -1 : find_slot((PyTypeObject *)type, name, slots[k].place);
            Py_XDECREF(name);
        }
    }
    return status;
}

/* bind(name=object, ...): tell the core of classes and functions; their slots are found by itself */
static PyObject *
bind(PyObject *module, PyObject *args, PyObject *given)
{
    PyObject *name, *value;
    Py_ssize_t position = 0;
    while (given != NULL && PyDict_Next(given, &position, &name, &value)) {
        const char *text = PyUnicode_AsUTF8(name);
        size_t k = 0, known = sizeof(objects) / sizeof(objects[0]);
        while (k < known && strcmp(objects[k].name, text) != 0) {
            k++;
        }
        if (k == known) {
            PyErr_Format(PyExc_TypeError, "the compiled core knows no %s", text);
            return NULL;
        }
        if (objects[k].is_type && !PyType_Check(value)) {
            PyErr_Format(PyExc_TypeError, "%s is a class", text);
            return NULL;
        }
        if (PyType_Check(value) && bind_slots(text, value) < 0) {
            return NULL;
        }
        Py_XSETREF(*objects[k].place, Py_NewRef(value));
    }
    Py_RETURN_NONE;
}

/* take_sites(whether nodes remember the line that made them) */
static PyObject *
take_sites(PyObject *module, PyObject *enabled)
{
    core.sites = PyObject_IsTrue(enabled);
    Py_RETURN_NONE;
}

/* evaluate(tree, arguments): the value of a formula, for tests */
static PyObject *
evaluate(PyObject *module, PyObject *args)
{
    PyObject *description, *arguments, *value = NULL;
    if (!PyArg_ParseTuple(args, "OO!", &description, &PyTuple_Type, &arguments)) {
        return NULL;
    }
    PyObject *values[16];
    for (Py_ssize_t k = 0; k < 16; k++) {
        values[k] = k < PyTuple_GET_SIZE(arguments) ? PyTuple_GET_ITEM(arguments, k) : Py_None;
    }
    Expression *expression = expression_new(description);
    if (expression != NULL && expression_reach(expression) > 16) {
        PyErr_SetString(PyExc_ValueError, "a formula has at most 16 arguments here");
    }
    else if (expression != NULL) {
        value = expression_value(expression, values);
    }
    expression_free(expression);
    return value;
}

/* use_twins(whether twins serve, or leave everything to their functions), for tests of the latter */
static PyObject *
use_twins(PyObject *module, PyObject *enabled)
{
    core.without_twins = !PyObject_IsTrue(enabled);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"use_twins", use_twins, METH_O},
    {"set_small_product", set_small_product, METH_O},
    {"plain_leaf_edge", plain_leaf_edge, METH_O},
    {"watch_nodes", watch_nodes, METH_NOARGS},
    {"keep_apart", keep_apart, METH_O},
    {"quicken_attributes", (PyCFunction)(void (*)(void))quicken_attributes, METH_FASTCALL},
    {"threads_at_most", threads_at_most, METH_NOARGS},
    {"set_threads", set_threads, METH_O},
    {"keep_memory", keep_memory, METH_O},
    {"kept_memory", kept_memory, METH_NOARGS},
    {"set_large", set_large, METH_O},
    {"make_functions", make_functions, METH_NOARGS},
    {"evaluate", evaluate, METH_VARARGS},
    {"bind", (PyCFunction)(void (*)(void))bind, METH_VARARGS | METH_KEYWORDS},
    {"take_sites", take_sites, METH_O},
    {"call_with", (PyCFunction)(void (*)(void))call_with, METH_FASTCALL | METH_KEYWORDS},
    {"note_all", (PyCFunction)(void (*)(void))note_all, METH_FASTCALL},
    {"set_value", (PyCFunction)(void (*)(void))set_value, METH_FASTCALL},
    {"set_for_now", (PyCFunction)(void (*)(void))set_for_now, METH_FASTCALL},
    {"reset_variable", (PyCFunction)(void (*)(void))reset_variable, METH_FASTCALL},
    {"calls_left", calls_left, METH_NOARGS},
    {"class_builder", (PyCFunction)(void (*)(void))class_builder, METH_FASTCALL},
    {"batch", (PyCFunction)(void (*)(void))new_batch, METH_FASTCALL},
    {"run_watched", (PyCFunction)(void (*)(void))run_watched, METH_FASTCALL},
    {"run_pass", (PyCFunction)(void (*)(void))run_pass, METH_FASTCALL},
    {"are_all_ends", (PyCFunction)(void (*)(void))are_all_ends, METH_FASTCALL},
    {"give_gradients", (PyCFunction)(void (*)(void))give_gradients, METH_FASTCALL},
    {"compute_dependencies", (PyCFunction)(void (*)(void))compute_dependencies, METH_FASTCALL},
    {"norm_rows", (PyCFunction)(void (*)(void))norm_rows, METH_FASTCALL},
    {"norm_rows_gradient", (PyCFunction)(void (*)(void))norm_rows_gradient, METH_FASTCALL},
    {"norm_channels", (PyCFunction)(void (*)(void))norm_channels, METH_FASTCALL},
    {"norm_channels_gradient", (PyCFunction)(void (*)(void))norm_channels_gradient, METH_FASTCALL},
    {"gelu", (PyCFunction)(void (*)(void))gelu, METH_FASTCALL},
    {"gelu_gradient", (PyCFunction)(void (*)(void))gelu_gradient, METH_FASTCALL},
    {"softmax_scores", (PyCFunction)(void (*)(void))softmax_scores, METH_FASTCALL},
    {"weigh_scores", (PyCFunction)(void (*)(void))weigh_scores, METH_FASTCALL},
    {"slope_scores", (PyCFunction)(void (*)(void))slope_scores, METH_FASTCALL},
    {"lstm_step", (PyCFunction)(void (*)(void))lstm_step, METH_FASTCALL},
    {"lstm_step_gradient", (PyCFunction)(void (*)(void))lstm_step_gradient, METH_FASTCALL},
    {"adam_update", (PyCFunction)(void (*)(void))adam_update, METH_FASTCALL},
    {"random_words", (PyCFunction)(void (*)(void))random_words, METH_FASTCALL},
    {"random_singles", (PyCFunction)(void (*)(void))random_singles, METH_FASTCALL},
    {"random_doubles", (PyCFunction)(void (*)(void))random_doubles, METH_FASTCALL},
    {"random_normals", (PyCFunction)(void (*)(void))random_normals, METH_FASTCALL},
    {"distances", (PyCFunction)(void (*)(void))distances, METH_FASTCALL},
    {"distances_gradient", (PyCFunction)(void (*)(void))distances_gradient, METH_FASTCALL},
    {"gamma_slopes", (PyCFunction)(void (*)(void))gamma_slopes, METH_FASTCALL},
    {"beta_slopes", (PyCFunction)(void (*)(void))beta_slopes, METH_FASTCALL},
    {"random_gammas", (PyCFunction)(void (*)(void))random_gammas, METH_FASTCALL},
    {"random_poissons", (PyCFunction)(void (*)(void))random_poissons, METH_FASTCALL},
    {"random_binomials", (PyCFunction)(void (*)(void))random_binomials, METH_FASTCALL},
    {"triangle", (PyCFunction)(void (*)(void))triangle, METH_FASTCALL},
    {"solve_triangles", (PyCFunction)(void (*)(void))solve_triangles, METH_FASTCALL},
    {"solve_small", (PyCFunction)(void (*)(void))solve_small, METH_FASTCALL},
    {"cholesky_small", (PyCFunction)cholesky_small, METH_O},
    {"lu_small", (PyCFunction)lu_small, METH_O},
    {"places_of_rows", (PyCFunction)(void (*)(void))places_of_rows, METH_FASTCALL},
    {"blocks_to_normal", (PyCFunction)blocks_to_normal, METH_O},
    {"trust_twister", (PyCFunction)trust_twister, METH_O},
    {"read_twister", (PyCFunction)read_twister, METH_O},
    {"place_twister", (PyCFunction)(void (*)(void))place_twister, METH_FASTCALL},
    {"products_of_others", (PyCFunction)(void (*)(void))products_of_others, METH_FASTCALL},
    {"range_array", (PyCFunction)(void (*)(void))range_array, METH_FASTCALL},
    {"equal_distances", (PyCFunction)(void (*)(void))equal_distances, METH_FASTCALL},
    {"random_permutation", (PyCFunction)(void (*)(void))random_permutation, METH_FASTCALL},
    {"softmax_rows", (PyCFunction)(void (*)(void))softmax_rows, METH_FASTCALL},
    {"softmax_rows_gradient", (PyCFunction)(void (*)(void))softmax_rows_gradient, METH_FASTCALL},
    {"log_softmax_rows", (PyCFunction)(void (*)(void))log_softmax_rows, METH_FASTCALL},
    {"log_softmax_rows_gradient", (PyCFunction)(void (*)(void))log_softmax_rows_gradient, METH_FASTCALL},
    {"convolve", (PyCFunction)(void (*)(void))convolve, METH_FASTCALL},
    {"convolve_transposed", (PyCFunction)(void (*)(void))convolve_transposed, METH_FASTCALL},
    {"convolve_weight", (PyCFunction)(void (*)(void))convolve_weight, METH_FASTCALL},
    {"max_pool", (PyCFunction)(void (*)(void))max_pool, METH_FASTCALL},
    {"adaptive_max_pool", (PyCFunction)(void (*)(void))adaptive_max_pool, METH_FASTCALL},
    {"max_pool_gradient", (PyCFunction)(void (*)(void))max_pool_gradient, METH_FASTCALL},
    {"avg_pool", (PyCFunction)(void (*)(void))avg_pool, METH_FASTCALL},
    {"avg_pool_gradient", (PyCFunction)(void (*)(void))avg_pool_gradient, METH_FASTCALL},
    {"add_weighted_rows", (PyCFunction)(void (*)(void))add_weighted_rows, METH_FASTCALL},
    {"ctc_states", (PyCFunction)(void (*)(void))ctc_states, METH_FASTCALL},
    {"ctc_gradients", (PyCFunction)(void (*)(void))ctc_gradients, METH_FASTCALL},
    {"add_rows", (PyCFunction)(void (*)(void))add_rows, METH_FASTCALL},
    {"converted", (PyCFunction)(void (*)(void))converted, METH_FASTCALL},
    {"take", (PyCFunction)(void (*)(void))take, METH_FASTCALL},
    {"scaled_softmax_rows", (PyCFunction)(void (*)(void))scaled_softmax_rows, METH_FASTCALL},
    {"logsumexp_rows", (PyCFunction)(void (*)(void))logsumexp_rows, METH_FASTCALL},
    {"logsumexp_rows_gradient", (PyCFunction)(void (*)(void))logsumexp_rows_gradient, METH_FASTCALL},
    {"copied", (PyCFunction)(void (*)(void))copied, METH_FASTCALL},
    {"gather", (PyCFunction)(void (*)(void))gather, METH_FASTCALL},
    {"scatter_add", (PyCFunction)(void (*)(void))scatter_add, METH_FASTCALL},
    {"scatter_multiply", (PyCFunction)(void (*)(void))scatter_multiply, METH_FASTCALL},
    {"scatter_maximum", (PyCFunction)(void (*)(void))scatter_maximum, METH_FASTCALL},
    {"scatter_minimum", (PyCFunction)(void (*)(void))scatter_minimum, METH_FASTCALL},
    {"scatter", (PyCFunction)(void (*)(void))scatter, METH_FASTCALL},
    {"fourier", (PyCFunction)(void (*)(void))fourier, METH_FASTCALL},
    {"fourier_plan", (PyCFunction)(void (*)(void))fourier_plan, METH_FASTCALL},
    {"silu_values", (PyCFunction)(void (*)(void))silu_values, METH_FASTCALL},
    {"silu_slopes", (PyCFunction)(void (*)(void))silu_slopes, METH_FASTCALL},
    {"running_sums", (PyCFunction)(void (*)(void))running_sums, METH_FASTCALL},
    {"running_products", (PyCFunction)(void (*)(void))running_products, METH_FASTCALL},
    {"over_stacks", (PyCFunction)(void (*)(void))over_stacks, METH_FASTCALL},
    {"softmax_columns", (PyCFunction)(void (*)(void))softmax_columns, METH_FASTCALL},
    {"running_extremes", (PyCFunction)(void (*)(void))running_extremes, METH_FASTCALL},
    {"is_ahead_of_blas", is_ahead_of_blas, METH_NOARGS},
    {"matrix_product", (PyCFunction)(void (*)(void))matrix_product, METH_FASTCALL},
    {"packed_rows", packed_rows, METH_O},
    {"packed_product", (PyCFunction)(void (*)(void))packed_product, METH_FASTCALL},
    {"add_bias", (PyCFunction)(void (*)(void))add_bias, METH_FASTCALL},
    {"empty", (PyCFunction)(void (*)(void))new_filled, METH_FASTCALL},
    {"filled", (PyCFunction)(void (*)(void))new_filled, METH_FASTCALL},
    {"fill", (PyCFunction)(void (*)(void))fill, METH_FASTCALL},
    {"order_rows", (PyCFunction)(void (*)(void))order_rows, METH_FASTCALL},
    {"special_function", (PyCFunction)(void (*)(void))special_function, METH_FASTCALL},
    {"grid_sample", (PyCFunction)(void (*)(void))grid_sample, METH_FASTCALL},
    {"grid_sample_gradients", (PyCFunction)(void (*)(void))grid_sample_gradients, METH_FASTCALL},
    {"leaky", (PyCFunction)(void (*)(void))leaky, METH_FASTCALL},
    {NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "undertow._core",
                                        .m_doc = "The compiled core of undertow; see csrc/core.h.", .m_size = -1,
                                        .m_methods = functions};

PyMODINIT_FUNC
PyInit__core(void)
{
    import_array();
    core.float32 = PyArray_DescrFromType(NPY_FLOAT);
    core.float64 = PyArray_DescrFromType(NPY_DOUBLE);
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || find_scope_names() < 0 || find_ufuncs() < 0 || PyModule_AddType(module, &StandIn_Type) < 0 ||
        PyModule_AddType(module, &Operation_Type) < 0 || PyModule_AddType(module, &InPlace_Type) < 0 ||
        PyModule_AddType(module, &Shortcut_Type) < 0 || PyModule_AddType(module, &Gate_Type) < 0 ||
        PyModule_AddType(module, &Pull_Type) < 0 || PyModule_AddType(module, &Twin_Type) < 0 ||
        PyModule_AddType(module, &Program_Type) < 0 || PyModule_AddType(module, &Programs_Type) < 0 ||
        PyModule_AddType(module, &Variadic_Type) < 0 || PyModule_AddType(module, &Arrival_Type) < 0 ||
        PyModule_AddType(module, &Scope_Type) < 0 || PyModule_AddType(module, &Held_Type) < 0 ||
        PyModule_AddType(module, &Sizes_Type) < 0 || PyModule_AddType(module, &Rows_Type) < 0 ||
        PyModule_AddStringConstant(module, "PLAN_VERSION", PLAN_VERSION) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}

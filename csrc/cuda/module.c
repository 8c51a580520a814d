/* The module undertow._cuda. */
#define UNDERTOW_CUDA_MODULE
#include "cuda/cuda.h"

static PyObject *
module_set_bfloat16(PyObject *module, PyObject *dtype)
{
    if (!PyArray_DescrCheck(dtype)) {
        PyErr_SetString(PyExc_TypeError, "set_bfloat16() takes a dtype");
        return NULL;
    }
    bfloat16_number = ((PyArray_Descr *)dtype)->type_num;
    Py_RETURN_NONE;
}

/* zero(array): set all bytes of one that has no gaps to 0 */
static PyObject *
module_zero(PyObject *module, PyObject *object)
{
    if (!IS_ARRAY(object)) {
        PyErr_SetString(PyExc_TypeError, "zero() takes an array on cuda");
        return NULL;
    }
    Array *array = (Array *)object;
    int status = array->size ? enqueue_zero(array->data, array->size * PyDataType_ELSIZE(array->dtype)) : 0;
    return status < 0 ? NULL : Py_NewRef(object);
}

#define FAST(function) (PyCFunction)(void (*)(void)) function, METH_FASTCALL

static PyMethodDef functions[] = {
    {"start", module_start, METH_VARARGS},
    {"load", module_load, METH_VARARGS},
    {"describe", module_describe, METH_O},
    {"enter", module_enter, METH_O},
    {"can_reach_peer", module_can_reach_peer, METH_VARARGS},
    {"free_memory", module_free_memory, METH_NOARGS},
    {"start_lanes", module_start_lanes, METH_VARARGS},
    {"new_lane", module_new_lane, METH_VARARGS},
    {"lane_handle", module_lane_handle, METH_O},
    {"lane_is_idle", module_lane_is_idle, METH_O},
    {"synchronize_lane", module_synchronize_lane, METH_O},
    {"wait_lane", module_wait_lane, METH_VARARGS},
    {"sleep", module_sleep, METH_VARARGS},
    {"close_gate", module_close_gate, METH_O},
    {"open_gates", module_open_gates, METH_NOARGS},
    {"record_stream", module_record_stream, METH_VARARGS},
    {"pinned", module_pinned, METH_O},
    {"is_pinned", module_is_pinned, METH_O},
    {"copy_later", module_copy_later, METH_VARARGS},
    {"copy_to_peer", module_copy_to_peer, METH_VARARGS},
    {"to_dlpack", module_to_dlpack, METH_VARARGS},
    {"from_dlpack", module_from_dlpack, METH_O},
    {"capsule_device", module_capsule_device, METH_O},
    {"let_wait", module_let_wait, METH_O},
    {"wait_for", module_wait_for, METH_O},
    {"memory_blocks", module_memory_blocks, METH_NOARGS},
    {"set_class", module_set_class, METH_VARARGS},
    {"setup", module_setup, METH_VARARGS},
    {"set_bfloat16", module_set_bfloat16, METH_O},
    {"synchronize", module_synchronize, METH_NOARGS},
    {"stream", module_stream, METH_NOARGS},
    {"error_word", module_error_word, METH_O},
    {"name_sites", module_name_sites, METH_O},
    {"leave_out_flush", module_leave_out_flush, METH_O},
    {"set_watch", module_set_watch, METH_O},
    {"flush", module_flush, METH_NOARGS},
    {"flush_pass", module_flush_pass, METH_NOARGS},
    {"set_launch_mode", module_set_launch_mode, METH_VARARGS},
    {"set_chain_maker", module_set_chain_maker, METH_O},
    {"set_joining", module_set_joining, METH_VARARGS},
    {"launch_stats", module_launch_stats, METH_NOARGS},
    {"forget_graphs", module_forget_graphs, METH_NOARGS},
    {"memory_stats", module_memory_stats, METH_NOARGS},
    {"reset_peak", module_reset_peak, METH_NOARGS},
    {"empty_cache", module_empty_cache, METH_NOARGS},
    {"set_memory_limit", module_set_memory_limit, METH_O},
    {"empty", FAST(module_empty)},
    {"zero", module_zero, METH_O},
    {"lent", module_lent, METH_VARARGS},
    {"broadcast_to", FAST(module_broadcast_to)},
    {"join", FAST(module_join)},
    {"as_view", module_as_view, METH_VARARGS},
    {"shadow", module_shadow, METH_O},
    {"adopt", module_adopt, METH_VARARGS},
    {"from_host", module_from_host, METH_O},
    {"overwrite", module_overwrite, METH_VARARGS},
    {"reduce", module_reduce, METH_VARARGS},
    {"sum_to", FAST(module_sum_to)},
    {"start_blas", module_start_blas, METH_O},
    {"matmul", FAST(module_matmul)},
    {"update_together", module_update_together, METH_VARARGS},
    {"start_light", module_start_light, METH_O},
    {"allow_tf32", module_allow_tf32, METH_O},
    {"multiply_into", FAST(module_multiply_into)},
    {"linear", FAST(module_linear)},
    {"shortcut", module_shortcut, METH_VARARGS},
    {"start_solver", module_start_solver, METH_O},
    {"call_library", FAST(module_call_library)},
    {"start_dnn", module_start_dnn, METH_O},
    {"convolution", module_convolution, METH_VARARGS},
    {"execute_plan", module_execute_plan, METH_VARARGS},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "undertow._cuda",
    .m_doc = "Arrays on a GPU, and kernels.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__cuda(void)
{
    import_array();
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyModule_AddType(module, &Array_Type) < 0 || PyModule_AddType(module, &Elementwise_Type) < 0 ||
        PyModule_AddType(module, &Kernel_Type) < 0 || PyModule_AddType(module, &Event_Type) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}

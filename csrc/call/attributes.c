/* Attributes of tensors that programs read all the time, without the interpreter; and Sizes, what shapes are made of.
 *
 * Each descriptor stands for the property that the class had under that name (tensor/tensor.py,
 * autograd/tensor_attributes.py), which does what is not usual, and everything that changes the attribute. */
#include "core.h"

/* The value (a new reference) for a tensor whose slots can be read; NULL without an exception: the property knows. */
typedef PyObject *(*Getter)(PyObject *tensor);

static PyTypeObject *sizes_class; /* Size, of tensor/size.py */
static PyObject *public_dtypes;   /* NumPy's dtype -> ours */

static PyObject *
shape(PyObject *tensor)
{
    PyArrayObject *array = (PyArrayObject *)SLOT(tensor, core.t_array);
    if (!PyArray_CheckExact(array)) {
        return NULL;
    }
    PyObject *sizes = sizes_class->tp_alloc(sizes_class, PyArray_NDIM(array));
    for (int k = 0; sizes != NULL && k < PyArray_NDIM(array); k++) {
        PyObject *size = PyLong_FromSsize_t(PyArray_DIM(array, k));
        if (size == NULL) {
            Py_CLEAR(sizes);
        }
        else {
            PyTuple_SET_ITEM(sizes, k, size);
        }
    }
    return sizes;
}

static PyObject *
ndim(PyObject *tensor)
{
    PyObject *array = SLOT(tensor, core.t_array);
    return PyArray_CheckExact(array) ? PyLong_FromLong(PyArray_NDIM((PyArrayObject *)array)) : NULL;
}

static PyObject *
dtype(PyObject *tensor)
{
    PyObject *array = SLOT(tensor, core.t_array);
    if (!PyArray_CheckExact(array)) {
        return NULL;
    }
    PyObject *found = PyDict_GetItemWithError(public_dtypes, (PyObject *)PyArray_DESCR((PyArrayObject *)array));
    return Py_XNewRef(found);
}

/* Whether the edge of the tensor is what its slot says: it is no view, whose history may be stale. */
static int
has_edge_of_its_own(PyObject *tensor)
{
    PyObject *extra = SLOT(tensor, core.t_extra);
    return extra == Py_None || SLOT(extra, core.e_view) == Py_None;
}

static PyObject *
requires_grad(PyObject *tensor)
{
    int asks = SLOT(tensor, core.t_edge) != Py_None;
    return asks || has_edge_of_its_own(tensor) ? PyBool_FromLong(asks) : NULL;
}

static PyObject *
is_leaf(PyObject *tensor)
{
    PyObject *edge = SLOT(tensor, core.t_edge);
    return has_edge_of_its_own(tensor) ? PyBool_FromLong(edge == Py_None || edge == core.LEAF) : NULL;
}

static PyObject *
grad_fn(PyObject *tensor)
{
    PyObject *edge = SLOT(tensor, core.t_edge);
    if (!has_edge_of_its_own(tensor)) {
        return NULL;
    }
    return edge == Py_None || edge == core.LEAF ? Py_NewRef(Py_None) : Py_XNewRef(node_behind(edge));
}

static PyObject *
grad(PyObject *tensor)
{
    PyObject *extra = SLOT(tensor, core.t_extra), *edge = SLOT(tensor, core.t_edge);
    PyObject *found = extra == Py_None ? Py_None : SLOT(extra, core.e_grad);
    return found == NULL || (found == Py_None && edge != Py_None && edge != core.LEAF) ? NULL : Py_NewRef(found);
}

/* ---- descriptors */

static struct Attribute {
    const char *name;
    Getter getter;
    PyObject *property;
    PyGetSetDef definition;
} attributes[] = {{"shape", shape}, {"ndim", ndim},       {"dtype", dtype}, {"requires_grad", requires_grad},
                  {"is_leaf", is_leaf}, {"grad_fn", grad_fn}, {"grad", grad}};

static PyObject *
get_attribute(PyObject *tensor, void *closure)
{
    const struct Attribute *attribute = closure;
    PyObject *found = is_tensor(tensor) ? attribute->getter(tensor) : NULL;
    if (found != NULL || PyErr_Occurred()) {
        return found;
    }
    return Py_TYPE(attribute->property)->tp_descr_get(attribute->property, tensor, (PyObject *)Py_TYPE(tensor));
}

static int
set_attribute(PyObject *tensor, PyObject *value, void *closure)
{
    const struct Attribute *attribute = closure;
    return Py_TYPE(attribute->property)->tp_descr_set(attribute->property, tensor, value);
}

/* The text of a property, which lives as long as that. */
static const char *
text_of(PyObject *property)
{
    PyObject *text = PyObject_GetAttrString(property, "__doc__");
    const char *found = text == NULL || text == Py_None ? NULL : PyUnicode_AsUTF8(text);
    Py_XDECREF(text);
    PyErr_Clear();
    return found;
}

/* quicken_attributes(Size, PUBLIC) -> {name: property}: put descriptors where Tensor has these properties */
PyObject *
quicken_attributes(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    if (count != 2 || !PyType_Check(given[0]) || !PyType_IsSubtype((PyTypeObject *)given[0], &PyTuple_Type) ||
        !PyDict_Check(given[1])) {
        PyErr_SetString(PyExc_TypeError, "quicken_attributes() takes a class of tuples and a dict");
        return NULL;
    }
    Py_XSETREF(sizes_class, (PyTypeObject *)Py_NewRef(given[0]));
    Py_XSETREF(public_dtypes, Py_NewRef(given[1]));
    PyObject *properties = PyDict_New();
    if (properties == NULL) {
        return NULL;
    }
    for (size_t k = 0; k < sizeof(attributes) / sizeof(attributes[0]); k++) {
        struct Attribute *attribute = &attributes[k];
        PyObject *property = PyObject_GetAttrString((PyObject *)core.Tensor, attribute->name);
        if (property == NULL || PyDict_SetItemString(properties, attribute->name, property) < 0) {
            Py_XDECREF(property);
            Py_DECREF(properties);
            return NULL;
        }
        Py_XSETREF(attribute->property, property);
        attribute->definition =
            (PyGetSetDef){attribute->name, get_attribute, set_attribute, text_of(property), attribute};
        PyObject *descriptor = PyDescr_NewGetSet(core.Tensor, &attribute->definition);
        int status =
            descriptor == NULL ? -1 : PyObject_SetAttrString((PyObject *)core.Tensor, attribute->name, descriptor);
        Py_XDECREF(descriptor);
        if (status < 0) {
            Py_DECREF(properties);
            return NULL;
        }
    }
    return properties;
}

/* ---- Sizes: a tuple whose slices are of its class */

static PyObject *
sizes_subscript(PyObject *self, PyObject *index)
{
    PyObject *item = PyTuple_Type.tp_as_mapping->mp_subscript(self, index);
    if (item == NULL || !PySlice_Check(index)) {
        return item;
    }
    PyObject *made = PyObject_CallOneArg((PyObject *)Py_TYPE(self), item);
    Py_DECREF(item);
    return made;
}

static PyMappingMethods sizes_mapping = {.mp_subscript = sizes_subscript};

PyTypeObject Sizes_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._core.Sizes",
    .tp_base = &PyTuple_Type,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_as_mapping = &sizes_mapping,
};

/* What Python calls to make a class, with a word to somebody when it is made. A function of Python in its place would have
 * a frame between the class's body and the code that it stands in, and libraries look there for the names of its bases. */
#include "core.h"

static PyObject *
build_and_tell(PyObject *both, PyObject *const *arguments, Py_ssize_t count, PyObject *names)
{
    PyObject *made = PyObject_Vectorcall(PyTuple_GET_ITEM(both, 0), arguments, count, names);
    if (made == NULL) {
        return NULL;
    }
    PyObject *answer = PyObject_CallOneArg(PyTuple_GET_ITEM(both, 1), made);
    if (answer == NULL) {
        Py_DECREF(made);
        return NULL;
    }
    Py_DECREF(answer);
    return made;
}

static PyMethodDef method = {
    "__build_class__", (PyCFunction)(void (*)(void))build_and_tell, METH_FASTCALL | METH_KEYWORDS, NULL};

/* class_builder(build, tell): what calls `build`, and then `tell` with the class that it made */
PyObject *
class_builder(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "class_builder(build, tell)");
        return NULL;
    }
    PyObject *both = PyTuple_Pack(2, arguments[0], arguments[1]);
    PyObject *builder = both == NULL ? NULL : PyCFunction_New(&method, both);
    Py_XDECREF(both);
    return builder;
}

/* Which line of the program called: the nearest frame that is not undertow's own, as graph/user_lines.py finds it. */
#include "call/operation.h"

#define REMEMBERED 64

/* Whether a code object is undertow's own: the answers of the set of ids, which only grows. */
static int
is_internal(PyCodeObject *code)
{
    static struct {
        PyCodeObject *code;
        char answer;
    } answers[REMEMBERED];
    static Py_ssize_t size; /* of the set, when the answers were given */
    if (PySet_GET_SIZE(core.internal) != size) {
        memset(answers, 0, sizeof(answers));
        size = PySet_GET_SIZE(core.internal);
    }
    size_t entry = ((size_t)code >> 5) % REMEMBERED;
    if (answers[entry].code != code) {
        PyObject *id = PyLong_FromVoidPtr(code);
        if (id == NULL) {
            PyErr_Clear();
            return 0;
        }
        answers[entry].answer = PySet_Contains(core.internal, id) == 1;
        answers[entry].code = code;
        Py_DECREF(id);
    }
    return answers[entry].answer;
}

PyCodeObject *
user_site(int *lasti)
{
    PyFrameObject *frame = PyEval_GetFrame();
    PyCodeObject *code = NULL;
    Py_XINCREF(frame);
    while (frame != NULL) {
        code = PyFrame_GetCode(frame);
        *lasti = PyFrame_GetLasti(frame);
        PyFrameObject *back = is_internal(code) ? PyFrame_GetBack(frame) : NULL;
        Py_DECREF(frame);
        frame = back;
        if (frame != NULL) {
            Py_DECREF(code);
        }
    }
    return code;
}

int
take_site(PyObject *node)
{
    int lasti = 0;
    PyCodeObject *code = core.sites ? user_site(&lasti) : NULL;
    SLOT(node, core.n_code) = code == NULL ? Py_NewRef(Py_None) : (PyObject *)code;
    SLOT(node, core.n_lasti) = PyLong_FromLong(lasti);
    return SLOT(node, core.n_lasti) == NULL ? -1 : 0;
}

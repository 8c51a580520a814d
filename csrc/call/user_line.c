/* Which line of the program called: the nearest frame that is not undertow's own, as graph/user_lines.py finds it. */
#include "call/operation.h"

#define REMEMBERED 256

/* Whether a file is one of undertow's own. All code of a file has the same string for its name, and the answers keep the
 * strings, so that no other can come to lie at the address of one. */
static int
is_own(PyObject *file)
{
    static struct {
        PyObject *file;
        int answer;
    } answers[REMEMBERED];
    size_t place = ((size_t)file >> 5) % REMEMBERED;
    if (answers[place].file != file) {
        PyObject *found = PyObject_GetItem(core.own_files, file);
        if (found == NULL) {
            PyErr_Clear();
            return 0;
        }
        answers[place].answer = found == Py_True;
        Py_DECREF(found);
        Py_XSETREF(answers[place].file, Py_NewRef(file));
    }
    return answers[place].answer;
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
        PyFrameObject *back = is_own(code->co_filename) ? PyFrame_GetBack(frame) : NULL;
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

/* The module strat.oracles._loops: what Python sees of kernels.c. In the stable ABI of Python 3.11, so that one build serves
   every later Python. Arrays are taken by the buffer protocol: those to read are converted where they are not contiguous
   and of floats, those to write must be. Sizes are the caller's to know (kernels.py): nothing checks them here. */

#include <Python.h>

#include "kernels.c"

enum { MOST = 24 };

typedef union {
    ptrdiff_t n;
    double x;
    double *a;
    ptrdiff_t *i;
} value;

static void release(Py_buffer *views, int count)
{
    while (count-- > 0)
        PyBuffer_Release(&views[count]);
}

/* What makes an array of floats, contiguous, of one that is not: strat.oracles.kernels.of_floats. */
static PyObject *convert;

static int get(PyObject *array, int flags, const char *format, Py_buffer *view)
{
    if (PyObject_GetBuffer(array, view, flags | PyBUF_FORMAT))
        return 0;
    if (view->format && strchr(format, view->format[0]) && !view->format[1])
        return 1;
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_TypeError, "an array of another type than the loop takes");
    return 0;
}

/* An array to read, converted where it does not have the form that the loops take. */
static int get_floats(PyObject *array, Py_buffer *view)
{
    if (get(array, PyBUF_SIMPLE, "d", view))
        return 1;
    PyErr_Clear();
    PyObject *converted = PyObject_CallFunctionObjArgs(convert, array, NULL);
    const int good = converted && get(converted, PyBUF_SIMPLE, "d", view); /* the view keeps it alive */
    Py_XDECREF(converted);
    return good;
}

/* Read arguments of the types n (count), x (number), i (array of positions), p (the same to write), a (array to read) and w
   (array to write), None being NULL; return how many arrays there are, -1 with an exception set where an argument does not fit. */
static int unpack(const char *types, PyObject *const *args, Py_ssize_t count, value *v, Py_buffer *views)
{
    int arrays = 0;
    if (count != (Py_ssize_t)strlen(types)) {
        PyErr_Format(PyExc_TypeError, "%zd arguments instead of %zd", count, (Py_ssize_t)strlen(types));
        return -1;
    }
    for (; *types; types++, args++, v++) {
        int good = 1;
        Py_buffer *view = &views[arrays];
        if (*types == 'n')
            v->n = PyLong_AsSsize_t(*args);
        else if (*types == 'x')
            v->x = PyFloat_AsDouble(*args);
        else if (*args == Py_None)
            v->a = NULL;
        else {
            const char *position = sizeof(long) == sizeof(ptrdiff_t) ? "l" : "q";
            good = *types == 'a'   ? get_floats(*args, view)
                   : *types == 'w' ? get(*args, PyBUF_WRITABLE, "d", view)
                                   : get(*args, *types == 'p' ? PyBUF_WRITABLE : PyBUF_SIMPLE, position, view);
            v->a = view->buf;
            arrays += good;
        }
        if (!good || PyErr_Occurred()) {
            release(views, arrays);
            return -1;
        }
    }
    return arrays;
}

/* The loops run without Python's lock, so that threads share the strata. */
#define KERNEL(name, types, call)                                                               \
    static PyObject *py_##name(PyObject *module, PyObject *const *args, Py_ssize_t count)       \
    {                                                                                           \
        value v[MOST];                                                                          \
        Py_buffer views[MOST];                                                                  \
        double result = 0.0;                                                                    \
        const int arrays = unpack(types, args, count, v, views);                                \
        (void)module;                                                                           \
        if (arrays < 0)                                                                         \
            return NULL;                                                                        \
        Py_BEGIN_ALLOW_THREADS call;                                                            \
        Py_END_ALLOW_THREADS                                                                    \
        release(views, arrays);                                                                 \
        return PyFloat_FromDouble(result);                                                      \
    }

KERNEL(degrees, "naw", result = degrees(v[0].n, v[1].a, v[2].a))
KERNEL(add_ends, "naw", add_ends(v[0].n, v[1].a, v[2].a))
KERNEL(rows_times, "nniaaw", rows_times(v[0].n, v[1].n, v[2].i, v[3].a, v[4].a, v[5].a))
KERNEL(rows_sum, "nnniaaw", rows_sum(v[0].n, v[1].n, v[2].n, v[3].i, v[4].a, v[5].a, v[6].a))
KERNEL(grams, "nnniaaw", grams(v[0].n, v[1].n, v[2].n, v[3].i, v[4].a, v[5].a, v[6].a))
KERNEL(sums, "nnnianaw", result = sums(v[0].n, v[1].n, v[2].n, v[3].i, v[4].a, v[5].n, v[6].a, v[7].a))
KERNEL(soft_threshold, "nnaananw",
       soft_threshold(v[0].n, v[1].n, v[2].a, v[3].a, v[4].n, v[5].a, v[6].n, v[7].a))
KERNEL(path_prox, "nnaannananww",
       path_prox(v[0].n, v[1].n, v[2].a, v[3].a, v[4].n, v[5].n, v[6].a, v[7].n, v[8].a, v[9].n, v[10].a, v[11].a))
KERNEL(logistic, "naww", logistic(v[0].n, v[1].a, v[2].a, v[3].a))
KERNEL(logistic_slope, "naaw", logistic_slope(v[0].n, v[1].a, v[2].a, v[3].a))
KERNEL(elimination_tree, "niippp", elimination_tree(v[0].n, v[1].i, v[2].i, v[3].i, v[4].i, v[5].i))

/* Take the function `convert`. */
static PyObject *py_use(PyObject *module, PyObject *function)
{
    (void)module;
    convert = Py_NewRef(function);
    Py_RETURN_NONE;
}

#define METHOD(name) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL, NULL}

static PyMethodDef methods[] = {
    {"use", py_use, METH_O, NULL},
    METHOD(degrees),
    METHOD(add_ends),
    METHOD(rows_times),
    METHOD(rows_sum),
    METHOD(sums),
    METHOD(grams),
    METHOD(soft_threshold),
    METHOD(logistic),
    METHOD(logistic_slope),
    METHOD(path_prox),
    METHOD(elimination_tree),
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_loops", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__loops(void) { return PyModule_Create(&definition); }

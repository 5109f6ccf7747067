/* Loops for which NumPy needs several passes; strat/oracles/kernels.py says what each computes and sees to sizes and types. In
   the stable ABI of Python 3.11, so that one build serves every later Python. */

#include <Python.h>

#include <math.h>
#include <stddef.h>
#include <string.h>

static void rows_times(ptrdiff_t N, ptrdiff_t p, const ptrdiff_t *restrict stratum, const double *restrict x,
                       const double *restrict theta, double *restrict out)
{
    for (ptrdiff_t i = 0; i < N; i++, x += p) {
        const double *restrict own = theta + p * stratum[i];
        double sum = 0.0;
#pragma omp simd reduction(+ : sum)
        for (ptrdiff_t c = 0; c < p; c++)
            sum += x[c] * own[c];
        out[i] = sum;
    }
}

static void rows_sum(ptrdiff_t N, ptrdiff_t p, ptrdiff_t K, const ptrdiff_t *restrict stratum,
                     const double *restrict x, const double *restrict g, double *restrict out)
{
    for (ptrdiff_t e = 0; e < K * p; e++)
        out[e] = 0.0;
    for (ptrdiff_t i = 0; i < N; i++, x += p) {
        double *restrict own = out + p * stratum[i];
        const double factor = g[i];
        for (ptrdiff_t c = 0; c < p; c++)
            own[c] += factor * x[c];
    }
}

static void grams(ptrdiff_t N, ptrdiff_t p, ptrdiff_t K, const ptrdiff_t *restrict stratum,
                  const double *restrict x, const double *restrict weight, double *restrict out)
{
    for (ptrdiff_t e = 0; e < K * p * p; e++)
        out[e] = 0.0;
    for (ptrdiff_t i = 0; i < N;) { /* four records of a stratum at a time: one pass over its matrix */
        double *restrict own = out + p * p * stratum[i];
        const double *restrict r = x + p * i, *restrict w = weight + i;
        if (i + 3 < N && stratum[i + 3] == stratum[i]) {
            for (ptrdiff_t a = 0; a < p; a++, own += p) {
                const double f = w[0] * r[a], g = w[1] * r[p + a], h = w[2] * r[2 * p + a], l = w[3] * r[3 * p + a];
#pragma omp simd
                for (ptrdiff_t b = 0; b < p; b++)
                    own[b] += f * r[b] + g * r[p + b] + h * r[2 * p + b] + l * r[3 * p + b];
            }
            i += 4;
        } else {
            for (ptrdiff_t a = 0; a < p; a++, own += p) {
                const double f = w[0] * r[a];
#pragma omp simd
                for (ptrdiff_t b = 0; b < p; b++)
                    own[b] += f * r[b];
            }
            i++;
        }
    }
    for (ptrdiff_t k = 0; k < K; k++, out += p * p) /* symmetric to the last digit */
        for (ptrdiff_t a = 0; a < p; a++)
            for (ptrdiff_t b = 0; b < a; b++)
                out[a * p + b] = out[b * p + a];
}

/* One path: the derivative of the best value as a function of the last coordinate, by its outer lines and by the changes
   of line at the knots between (strat/oracles/prox_groups.py does the same in Python). */
typedef struct {
    double slope, shift;
} line;

typedef struct {
    double at;
    line change;
} knot;

static void path(ptrdiff_t L, const double *restrict v, const double *restrict c, const double *restrict up,
                 const double *restrict down, knot *knots, double *restrict lower, double *restrict upper,
                 double *restrict z)
{
    knot *first = knots + L, *last = first - 1;
    line left = {c[0], -c[0] * v[0]}, right = left;
    for (ptrdiff_t k = 0; k + 1 < L; k++) {
        const int falls = isfinite(down[k]);
        lower[k] = -INFINITY;
        upper[k] = INFINITY;
        if (falls) {
            const double level = -down[k];
            for (; first <= last && left.slope * first->at + left.shift <= level; first++) {
                left.slope += first->change.slope;
                left.shift += first->change.shift;
            }
            lower[k] = (level - left.shift) / left.slope;
            *--first = (knot){lower[k], {left.slope, left.shift - level}};
            left = (line){0.0, level};
        }
        if (isfinite(up[k])) {
            const double level = up[k];
            for (; last >= first + falls && right.slope * last->at + right.shift >= level; last--) {
                right.slope -= last->change.slope;
                right.shift -= last->change.shift;
            }
            upper[k] = (level - right.shift) / right.slope;
            *++last = (knot){upper[k], {-right.slope, level - right.shift}};
            right = (line){0.0, level};
        }
        const double next = c[k + 1], load = next * v[k + 1];
        left = (line){left.slope + next, left.shift - load};
        right = (line){right.slope + next, right.shift - load};
    }
    for (; first <= last && left.slope * first->at + left.shift <= 0.0; first++) {
        left.slope += first->change.slope;
        left.shift += first->change.shift;
    }
    z[L - 1] = -left.shift / left.slope;
    for (ptrdiff_t k = L - 2; k >= 0; k--)
        z[k] = z[k + 1] < lower[k] ? lower[k] : z[k + 1] > upper[k] ? upper[k] : z[k + 1];
}

/* `work` has room for 8 L + 6 numbers. */
static void path_proxes(ptrdiff_t P, ptrdiff_t L, const double *v, const double *curvature, const double *up, const double *down,
                      double *work, double *z)
{
    for (ptrdiff_t p = 0; p < P; p++, v += L, z += L, curvature += L, up += L - 1, down += L - 1)
        path(L, v, curvature, up, down, (knot *)(work + 2 * L), work, work + L, z);
}

typedef union {
    ptrdiff_t n;
    double *a;
    ptrdiff_t *i;
} value;

static void release(Py_buffer *views, int count)
{
    while (count-- > 0)
        PyBuffer_Release(&views[count]);
}

/* Read arguments of the types n (count), r (array to read) and w (array to write); return how many arrays there
   are, -1 with an exception set where an argument does not fit. */
static int unpack(const char *types, PyObject *const *args, Py_ssize_t count, value *v, Py_buffer *views)
{
    int arrays = 0;
    if (count != (Py_ssize_t)strlen(types))
        PyErr_SetString(PyExc_TypeError, "a wrong number of arguments");
    for (; *types && !PyErr_Occurred(); types++, args++, v++) {
        Py_buffer *view = &views[arrays];
        if (*types == 'n')
            v->n = PyLong_AsSsize_t(*args);
        else if (!PyObject_GetBuffer(*args, view, *types == 'w' ? PyBUF_WRITABLE : PyBUF_SIMPLE)) {
            v->a = view->buf;
            arrays++;
        }
    }
    if (!PyErr_Occurred())
        return arrays;
    release(views, arrays);
    return -1;
}

#define LOOPS(_)                                                                                              \
    _(rows_times, "nnrrrw", rows_times(v[0].n, v[1].n, v[2].i, v[3].a, v[4].a, v[5].a))                       \
    _(rows_sum, "nnnrrrw", rows_sum(v[0].n, v[1].n, v[2].n, v[3].i, v[4].a, v[5].a, v[6].a))                  \
    _(grams, "nnnrrrw", grams(v[0].n, v[1].n, v[2].n, v[3].i, v[4].a, v[5].a, v[6].a))                        \
    _(path_proxes, "nnrrrrww", path_proxes(v[0].n, v[1].n, v[2].a, v[3].a, v[4].a, v[5].a, v[6].a, v[7].a))

/* The loops run without Python's lock, so that threads share the strata. */
#define FUNCTION(name, types, call)                                                            \
    static PyObject *py_##name(PyObject *module, PyObject *const *args, Py_ssize_t count)      \
    {                                                                                          \
        value v[9];                                                                            \
        Py_buffer views[9];                                                                    \
        const int arrays = unpack(types, args, count, v, views);                               \
        (void)module;                                                                          \
        if (arrays < 0)                                                                        \
            return NULL;                                                                       \
        Py_BEGIN_ALLOW_THREADS call;                                                           \
        Py_END_ALLOW_THREADS release(views, arrays);                                           \
        Py_RETURN_NONE;                                                                        \
    }
#define METHOD(name, types, call) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL, NULL},

LOOPS(FUNCTION)
static PyMethodDef methods[] = {LOOPS(METHOD){NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_loops", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__loops(void) { return PyModule_Create(&definition); }

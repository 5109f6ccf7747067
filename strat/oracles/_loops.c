/* Loops for which NumPy needs several passes; strat/oracles/kernels.py says what each computes and ensures sizes and types.
   Written for the stable ABI of Python 3.11, so that one build serves every later Python. */

#include <Python.h>

#include <math.h>
#include <stddef.h>

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

/* One path: the derivative of the best value as a function of the last coordinate, stored as its outer lines and the changes
   of line at the knots between them (strat/oracles/prox_groups.py says more, and finds the same z in NumPy). */
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

/* `slopes` has the upward slopes of all paths, then the downward ones; `out` has another 8 L + 6 numbers of workspace. */
static void paths(ptrdiff_t P, ptrdiff_t L, ptrdiff_t E, const double *v, const double *curvature, const double *slopes, double *out)
{
    double *work = out + P * L;
    const double *up = slopes, *down = slopes + P * E;
    for (ptrdiff_t p = 0; p < P; p++, v += L, out += L, curvature += L, up += E, down += E)
        path(L, v, curvature, up, down, (knot *)(work + 2 * L), work, work + L, out);
}

/* out_ij += a_i + a_j + sum_c (theta_ci - theta_cj)^2 for all pairs i < j of K strata, ordered as in scipy.spatial.distance. */
static void add_to_pairs(ptrdiff_t n, ptrdiff_t K, const double *restrict theta, const double *restrict a, double *restrict out)
{
    for (ptrdiff_t i = 0; i < K; out += K - ++i) {
        const double *restrict t = theta + i;
        for (ptrdiff_t j = 1; j < K - i; j++)
            out[j - 1] += a[i] + a[i + j];
        for (ptrdiff_t c = 0; c < n; c++, t += K)
            for (ptrdiff_t j = 1; j < K - i; j++)
                out[j - 1] += (t[0] - t[j]) * (t[0] - t[j]);
    }
}

/* Each loop takes three counts n, three arrays x[0] to x[2] to read and one, x[3], to write, or some of these. The loops run
   without Python's lock, so that threads run at the same time. */
#define LOOP(name, ...)                                                                                     \
    static PyObject *py_##name(PyObject *module, PyObject *args)                                            \
    {                                                                                                       \
        ptrdiff_t n[3];                                                                                     \
        Py_buffer v[4];                                                                                     \
        (void)module;                                                                                       \
        if (!PyArg_ParseTuple(args, "nnny*y*y*w*", n, n + 1, n + 2, v, v + 1, v + 2, v + 3))                \
            return NULL;                                                                                    \
        void *x[] = {v[0].buf, v[1].buf, v[2].buf, v[3].buf};                                               \
        Py_BEGIN_ALLOW_THREADS name(__VA_ARGS__);                                                           \
        Py_END_ALLOW_THREADS for (int i = 0; i < 4; i++) PyBuffer_Release(v + i);                           \
        Py_RETURN_NONE;                                                                                     \
    }
LOOP(rows_times, n[0], n[1], x[0], x[1], x[2], x[3])
LOOP(rows_sum, n[0], n[1], n[2], x[0], x[1], x[2], x[3])
LOOP(grams, n[0], n[1], n[2], x[0], x[1], x[2], x[3])
LOOP(paths, n[0], n[1], n[2], x[0], x[1], x[2], x[3])
LOOP(add_to_pairs, n[0], n[1], x[0], x[1], x[3])
#define METHOD(name) {#name, py_##name, METH_VARARGS, NULL}

static PyMethodDef methods[] = {METHOD(rows_times), METHOD(rows_sum), METHOD(grams), METHOD(paths),
                                METHOD(add_to_pairs), {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_loops", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__loops(void) { return PyModule_Create(&definition); }

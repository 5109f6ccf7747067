/* Loops of an iteration for which NumPy needs several passes and calls; strat/kernels.py says what each computes, and
   _loops.c hands them to Python. Plain C: no Python, no threads, no memory of its own. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Loops over all pairs are built for wider registers, too, where the compiler can leave the choice to the machine. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && __GNUC__ >= 12 && !defined(__clang__)
#define WIDE __attribute__((target_clones("arch=x86-64-v3", "default")))
#define INLINE static inline __attribute__((always_inline))
#else
#define WIDE
#define INLINE static inline
#endif

/* The lower triangle of a K x K matrix in rectangular full packed format (see strat/edges/packed.py) is one sequence of
   runs: parts of a row or of a column, along which one index is fixed and the other grows by one. */
static ptrdiff_t runs(ptrdiff_t K) { return 2 * ((K + 1) / 2); }

static ptrdiff_t run(ptrdiff_t K, ptrdiff_t r, ptrdiff_t *fixed, ptrdiff_t *first)
{
    const ptrdiff_t half = (K + 1) / 2, odd = K % 2, column = r / 2;
    if (r % 2 == 0) { /* of a row of the second half, up to the diagonal */
        *fixed = half + column - odd;
        *first = half;
        return column + 1 - odd;
    }
    *fixed = *first = column; /* a column of the first half, from the diagonal on */
    return K - column;
}

WIDE static double degrees(ptrdiff_t K, const double *restrict w, double *restrict out)
{
    double total = 0.0;
    for (ptrdiff_t i = 0; i < K; i++)
        out[i] = 0.0;
    for (ptrdiff_t r = 0, i, first; r < runs(K); r++) {
        const ptrdiff_t length = run(K, r, &i, &first);
        double *restrict other = out + first, sum = 0.0;
#pragma omp simd reduction(+ : sum)
        for (ptrdiff_t j = 0; j < length; j++) {
            other[j] += w[j];
            sum += w[j];
        }
        out[i] += sum;
        total += 2.0 * sum;
        w += length;
    }
    return total;
}

WIDE static void add_ends(ptrdiff_t K, const double *restrict a, double *restrict g)
{
    for (ptrdiff_t r = 0, i, first; r < runs(K); r++) {
        const ptrdiff_t length = run(K, r, &i, &first);
        const double own = a[i], *restrict other = a + first;
        for (ptrdiff_t j = 0; j < length; j++)
            g[j] += own + other[j];
        g += length;
    }
}

WIDE static void rows_times(ptrdiff_t N, ptrdiff_t p, const ptrdiff_t *restrict stratum, const double *restrict x,
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

WIDE static void rows_sum(ptrdiff_t N, ptrdiff_t p, ptrdiff_t K, const ptrdiff_t *restrict stratum,
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

WIDE static void grams(ptrdiff_t N, ptrdiff_t p, ptrdiff_t K, const ptrdiff_t *restrict stratum,
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

static double sums(ptrdiff_t N, ptrdiff_t width, ptrdiff_t K, const ptrdiff_t *restrict stratum,
                   const double *restrict weight, ptrdiff_t stride, const double *restrict values, double *restrict out)
{
    double total = 0.0;
    for (ptrdiff_t k = 0; k < K; k++)
        out[k] = 0.0;
    for (ptrdiff_t i = 0; i < N; i++, values += width) {
        double sum = 0.0;
        if (weight) {
            for (ptrdiff_t c = 0; c < width; c++)
                sum += weight[c] * values[c];
            weight += stride;
        } else
            for (ptrdiff_t c = 0; c < width; c++)
                sum += values[c];
        out[stratum ? stratum[i] : i] += sum;
    }
    for (ptrdiff_t k = 0; k < K; k++) {
        out[k] = isnan(out[k]) ? INFINITY : out[k];
        total += out[k];
    }
    return total;
}

static void soft_threshold(ptrdiff_t K, ptrdiff_t n, const double *restrict v, const double *restrict t, ptrdiff_t t_stride,
                           const double *restrict weight, ptrdiff_t weight_stride, double *restrict out)
{
    for (ptrdiff_t k = 0; k < K; k++, v += n, out += n, t += t_stride, weight += weight_stride)
        for (ptrdiff_t c = 0; c < n; c++) {
            const double most = *t * weight[c], up = v[c] < -most ? -most : v[c];
            out[c] = v[c] - (up > most ? most : up);
        }
}

/* exp(x) for x <= 0: 2^n exp(r), |r| <= log(2)/2, with the Taylor polynomial of degree 13, which is exact to rounding. */
INLINE double exp_of_negative(double x)
{
    static const double log2_high = 6.93147180369123816490e-01, log2_low = 1.90821492927058770002e-10;
    const double magic = 6755399441055744.0; /* 1.5 2^52: adding it rounds to an integer, in the lowest bits */
    const double kept = x < -708.0 ? -708.0 : x, shifted = kept * 1.4426950408889634 + magic, n = shifted - magic;
    const double r = (kept - n * log2_high) - n * log2_low;
    int64_t bits;
    double power, sum = 1.0 / 6227020800.0;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (int64_t)((uint64_t)bits << 52) + INT64_C(0x3FF0000000000000); /* of 2^n */
    memcpy(&power, &bits, sizeof power);
    sum = sum * r + 1.0 / 479001600.0;
    sum = sum * r + 1.0 / 39916800.0;
    sum = sum * r + 1.0 / 3628800.0;
    sum = sum * r + 1.0 / 362880.0;
    sum = sum * r + 1.0 / 40320.0;
    sum = sum * r + 1.0 / 5040.0;
    sum = sum * r + 1.0 / 720.0;
    sum = sum * r + 1.0 / 120.0;
    sum = sum * r + 1.0 / 24.0;
    sum = sum * r + 1.0 / 6.0;
    sum = sum * r + 0.5;
    sum = sum * r + 1.0;
    sum = sum * r + 1.0;
    return x < -708.0 ? 0.0 : power * sum;
}

/* log(1 + e) for 0 <= e <= 1: 2 artanh(s), s = e / (2 + e) <= 1/3, by its series, to a relative rounding error. */
INLINE double log_of_one_plus(double e)
{
    const double s = e / (2.0 + e), z = s * s;
    double sum = 1.0 / 31.0;
    sum = sum * z + 1.0 / 29.0;
    sum = sum * z + 1.0 / 27.0;
    sum = sum * z + 1.0 / 25.0;
    sum = sum * z + 1.0 / 23.0;
    sum = sum * z + 1.0 / 21.0;
    sum = sum * z + 1.0 / 19.0;
    sum = sum * z + 1.0 / 17.0;
    sum = sum * z + 1.0 / 15.0;
    sum = sum * z + 1.0 / 13.0;
    sum = sum * z + 1.0 / 11.0;
    sum = sum * z + 1.0 / 9.0;
    sum = sum * z + 1.0 / 7.0;
    sum = sum * z + 1.0 / 5.0;
    sum = sum * z + 1.0 / 3.0;
    return 2.0 * s * (sum * z + 1.0);
}

WIDE static void logistic(ptrdiff_t size, const double *restrict u, double *restrict out, double *restrict e)
{
    for (ptrdiff_t i = 0; i < size; i++) {
        e[i] = exp_of_negative(-fabs(u[i]));
        out[i] = (u[i] < 0.0 ? 0.0 : u[i]) + log_of_one_plus(e[i]);
    }
}

WIDE static void logistic_slope(ptrdiff_t size, const double *restrict u, const double *restrict e, double *restrict out)
{
    for (ptrdiff_t i = 0; i < size; i++)
        out[i] = (u[i] < 0.0 ? e[i] : 1.0) / (1.0 + e[i]);
}

/* One path: the derivative of the best value as a function of the last coordinate, by its outer lines and by the changes
   of line at the knots between (see strat/oracles/path_dynamic.py, which does the same for all paths at once). */
typedef struct {
    double slope, shift;
} line;

typedef struct {
    double at;
    line change;
} knot;

static void path(ptrdiff_t L, const double *restrict v, const double *restrict c, ptrdiff_t step,
                 const double *restrict up, const double *restrict down, knot *knots, double *restrict lower,
                 double *restrict upper, double *restrict z)
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
        const double next = c[(k + 1) * step], load = next * v[k + 1];
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

/* What equal neighbours share, once more from their own numbers: the lines above hold sums over the whole path. */
static void means(ptrdiff_t L, const double *restrict v, const double *restrict c, ptrdiff_t step,
                  const double *restrict up, const double *restrict down, double *restrict mean, double *restrict z)
{
    double push = 0.0;
    for (ptrdiff_t first = 0, last; first < L; first = last) {
        double weight = 0.0, sum = 0.0;
        for (last = first; last < L && (last == first || z[last] == z[first]); last++) {
            weight += c[last * step];
            sum += c[last * step] * (v[last] - z[first]);
        }
        const double next = last == L ? 0.0 : z[last] > z[first] ? up[last - 1] : -down[last - 1];
        const double shared = z[first] + (sum + next - push) / weight;
        const int rises = first && z[first] > z[first - 1];
        if (first && (rises ? shared <= mean[first - 1] : shared >= mean[first - 1]))
            return; /* rounding would change the order */
        for (ptrdiff_t k = first; k < last; k++)
            mean[k] = shared;
        push = next;
    }
    memcpy(z, mean, (size_t)L * sizeof *z);
}

/* Rows of `curvature`, `up` and `down` begin `rows`, `ups` and `downs` numbers apart, entries of `curvature` `step`;
   `work` has room for 8 L + 6 numbers. */
static void path_prox(ptrdiff_t P, ptrdiff_t L, const double *v, const double *curvature, ptrdiff_t rows, ptrdiff_t step,
                      const double *up, ptrdiff_t ups, const double *down, ptrdiff_t downs, double *work, double *z)
{
    for (ptrdiff_t p = 0; p < P; p++, v += L, z += L, curvature += rows, up += ups, down += downs) {
        path(L, v, curvature, step, up, down, (knot *)(work + 2 * L), work, work + L, z);
        means(L, v, curvature, step, up, down, work, z);
    }
}

/* Sparse Cholesky factors: parents and lengths of the factor's columns, from the matrix's lower triangle by rows. */

static void elimination_tree(ptrdiff_t K, const ptrdiff_t *restrict start, const ptrdiff_t *restrict column,
                             ptrdiff_t *restrict seen, ptrdiff_t *restrict parent, ptrdiff_t *restrict count)
{
    for (ptrdiff_t k = 0; k < K; k++) {
        seen[k] = k;
        parent[k] = -1;
        count[k] = 1;
        for (ptrdiff_t e = start[k]; e < start[k + 1]; e++)
            for (ptrdiff_t c = column[e]; seen[c] != k; c = parent[c]) {
                if (parent[c] < 0)
                    parent[c] = k;
                count[c]++;
                seen[c] = k;
            }
    }
}

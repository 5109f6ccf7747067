/* Loops of an iteration for which NumPy needs several passes and calls; strat/kernels.py loads them and says what each
   computes. Plain C99: no Python, no threads, no memory of its own. */

#include <math.h>
#include <stddef.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT
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

EXPORT void degrees(ptrdiff_t K, const double *restrict w, double *restrict out)
{
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
        w += length;
    }
}

EXPORT void add_ends(ptrdiff_t K, const double *restrict a, double *restrict g)
{
    for (ptrdiff_t r = 0, i, first; r < runs(K); r++) {
        const ptrdiff_t length = run(K, r, &i, &first);
        const double own = a[i], *restrict other = a + first;
        for (ptrdiff_t j = 0; j < length; j++)
            g[j] += own + other[j];
        g += length;
    }
}

EXPORT void projected_step(ptrdiff_t size, double length, const double *restrict inverse,
                           const double *restrict curvature, const double *restrict gradient,
                           const double *restrict from, const double *restrict current, double *restrict to,
                           double *restrict sums)
{
    double slope = 0.0, square = 0.0, norm = 0.0, uphill = 0.0;
#pragma omp simd reduction(+ : slope, square, norm, uphill)
    for (ptrdiff_t e = 0; e < size; e++) {
        const double ahead = from[e] - length * inverse[e] * gradient[e];
        const double end = ahead < 0.0 ? 0.0 : ahead;
        const double move = end - from[e], weighted = curvature[e] * move;
        to[e] = end;
        slope += gradient[e] * move;
        square += weighted * move;
        norm += weighted * weighted;
        uphill += weighted * (end - current[e]);
    }
    sums[0] = slope;
    sums[1] = square;
    sums[2] = norm;
    sums[3] = uphill;
}

EXPORT void centre(ptrdiff_t K, ptrdiff_t n, const double *restrict theta, double *restrict out,
                   double *restrict half_squares)
{
    for (ptrdiff_t c = 0; c < n; c++) {
        double mean = 0.0;
        for (ptrdiff_t k = 0; k < K; k++)
            mean += theta[k * n + c];
        mean /= (double)K;
        for (ptrdiff_t k = 0; k < K; k++)
            out[k * n + c] = theta[k * n + c] - mean;
    }
    for (ptrdiff_t k = 0; k < K; k++, out += n) {
        double square = 0.0;
        for (ptrdiff_t c = 0; c < n; c++)
            square += out[c] * out[c];
        half_squares[k] = 0.5 * square;
    }
}

EXPORT void rows_times(ptrdiff_t N, ptrdiff_t p, const ptrdiff_t *restrict stratum, const double *restrict x,
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

EXPORT void rows_sum(ptrdiff_t N, ptrdiff_t p, ptrdiff_t K, const ptrdiff_t *restrict stratum,
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

EXPORT void grams(ptrdiff_t N, ptrdiff_t p, ptrdiff_t K, const ptrdiff_t *restrict stratum,
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

/* A symmetric matrix of bandwidth `width` in memory (N, width + 1): entry (j, d) is that at d rows below the diagonal.
   The factor keeps the inverse of its diagonal. */

EXPORT ptrdiff_t band_factor(ptrdiff_t N, ptrdiff_t width, double *restrict band)
{
    for (ptrdiff_t j = 0; j < N; j++) {
        double *restrict own = band + j * (width + 1);
        if (!(own[0] > 0.0))
            return 1;
        const ptrdiff_t length = j + width < N ? width : N - 1 - j;
        const double inverse = 1.0 / sqrt(own[0]);
        own[0] = inverse;
        for (ptrdiff_t d = 1; d <= length; d++)
            own[d] *= inverse;
        double *restrict other = own;
        for (ptrdiff_t d = 1; d <= length; d++) {
            const double factor = own[d];
            other += width + 1;
#pragma omp simd
            for (ptrdiff_t e = 0; e <= length - d; e++)
                other[e] -= factor * own[d + e];
        }
    }
    return 0;
}

EXPORT void band_solve(ptrdiff_t N, ptrdiff_t width, const double *restrict band, double *restrict b)
{
    for (ptrdiff_t j = 0; j < N; j++) {
        const double *restrict own = band + j * (width + 1);
        double *restrict after = b + j;
        const ptrdiff_t length = j + width < N ? width : N - 1 - j;
        const double x = after[0] *= own[0];
#pragma omp simd
        for (ptrdiff_t d = 1; d <= length; d++)
            after[d] -= own[d] * x;
    }
    for (ptrdiff_t j = N - 1; j >= 0; j--) {
        const double *restrict own = band + j * (width + 1);
        double *restrict after = b + j, sum = 0.0;
        const ptrdiff_t length = j + width < N ? width : N - 1 - j;
#pragma omp simd reduction(+ : sum)
        for (ptrdiff_t d = 1; d <= length; d++)
            sum += own[d] * after[d];
        after[0] = (after[0] - sum) * own[0];
    }
}

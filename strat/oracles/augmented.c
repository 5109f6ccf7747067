/* The augmented Lagrangian method of strat/oracles/augmented_lagrangian.py, one stratum after the other: there, all strata
   at once, is what each part does and why. Included by _loops.c after active_sets.c. Points, steps and rows come scaled, so that
   the proximal term is ½‖z‖² and rows have norm 1; groups of rows have one of the functions below. */

enum {
    POWER, /* of one number: a power of its size, or of the number where that must not be negative, */
    POWER_ABOVE_0,
    POWER_BELOW_1, /* convex with the sign of its weight, */
    ENTROPY,       /* z log z, */
    LOGARITHM,     /* −log z, */
    EXPONENTIAL,   /* and exp z, each with a multiple of z, */
    LENGTH, /* of all numbers together */
    BALL,
    CONE,
    P_NORM,
    LARGEST, /* sums of the largest, of the largest sizes, */
    LARGEST_SIZES,
    L1_BALL,
    SEMIDEFINITE,    /* of a matrix */
    TOP_EIGENVALUES, /* the sum of some */
    LOG_DET,
    TRACE_INVERSE,
    NUCLEAR,
    TOP_SINGULAR_VALUE,
    SPECTRAL_BALL,
    NUCLEAR_BALL
};

typedef struct {
    ptrdiff_t kind, start, size, high, wide; /* rows of the map; of a matrix: its longer and its shorter side */
    ptrdiff_t along, across;                 /* from entry to entry along the longer side, and across */
    double strength;                         /* weight or radius; the sign of a semidefinite cone */
    double power, scale, tilt, low;          /* exponent or count, the numbers' unit, the multiple of z, and their least */
    double length, ratio;                    /* of a row as a whole: its norm, and what is left of it */
    double *vectors, *columns, *values, *changed, *slope;
} group;

typedef struct {
    ptrdiff_t n, M, m, J, g; /* M rows, of which m are piecewise linear */
    const double *A, *offset, *G, *knots, *slopes, *load;
    ptrdiff_t *count, *column; /* of each row: its entries that are not 0, -1 where most are not; and where they are */
    group *groups;
    double *z, *y, *u, *s, *moved, *along, *gradient, *d, *Gd, *H, *row, *q;
} lagrangian;

INLINE double row_times(const lagrangian *l, ptrdiff_t i, const double *restrict x)
{
    const double *a = l->A + i * l->n;
    const ptrdiff_t *column = l->column + i * l->n;
    if (l->count[i] < 0)
        return dot(l->n, a, x);
    double sum = 0.0;
    for (ptrdiff_t k = 0; k < l->count[i]; k++)
        sum += a[column[k]] * x[column[k]];
    return sum;
}

INLINE void add_row(const lagrangian *l, ptrdiff_t i, double factor, double *restrict out)
{
    const double *a = l->A + i * l->n;
    const ptrdiff_t *column = l->column + i * l->n;
    if (l->count[i] < 0)
        add_scaled(l->n, factor, a, out);
    else
        for (ptrdiff_t k = 0; k < l->count[i]; k++)
            out[column[k]] += factor * a[column[k]];
}

/* H += weight a aᵀ for row i, below the diagonal and on it. */
INLINE void add_square(const lagrangian *l, ptrdiff_t i, double weight)
{
    const double *a = l->A + i * l->n;
    const ptrdiff_t *column = l->column + i * l->n;
    if (l->count[i] < 0)
        for (ptrdiff_t k = 0; k < l->n; k++)
            add_scaled(k + 1, weight * a[k], a, l->H + k * l->n);
    else
        for (ptrdiff_t k = 0; k < l->count[i]; k++)
            for (ptrdiff_t j = 0; j <= k; j++)
                l->H[column[k] * l->n + column[j]] += weight * a[column[k]] * a[column[j]];
}

/* The same for q = Σ r_i a_i over the rows of a group, r in l->row. */
WIDE static void add_direction(const lagrangian *l, const group *g, double weight)
{
    if (weight == 0.0)
        return;
    for (ptrdiff_t k = 0; k < l->n; k++)
        l->q[k] = 0.0;
    for (ptrdiff_t i = 0; i < g->size; i++)
        if (l->row[i] != 0.0)
            add_row(l, g->start + i, l->row[i], l->q);
    for (ptrdiff_t k = 0; k < l->n; k++)
        if (l->q[k] != 0.0)
            add_scaled(k + 1, weight * l->q[k], l->q, l->H + k * l->n);
}

/* Orthonormal again, after many rotations. */
WIDE static void orthonormal(ptrdiff_t count, ptrdiff_t length, double *vectors)
{
    for (ptrdiff_t k = 0; k < count; k++) {
        double *own = vectors + k * length;
        for (ptrdiff_t j = 0; j < k; j++)
            add_scaled(length, -dot(length, vectors + j * length, own), vectors + j * length, own);
        const double scale = 1.0 / sqrt(dot(length, own, own));
        for (ptrdiff_t i = 0; i < length; i++)
            own[i] *= scale;
    }
}

/* Eigenvalues and eigenvectors of a symmetric matrix by Jacobi's rotations, from vectors near them. */
WIDE static void eigen(group *g, const double *u)
{
    const ptrdiff_t d = g->high;
    double *V = g->vectors, *W = g->columns;
    orthonormal(d, d, V);
    for (ptrdiff_t k = 0; k < d; k++) {
        for (ptrdiff_t i = 0; i < d; i++)
            g->slope[i] = dot(d, u + i * d, V + k * d);
        for (ptrdiff_t j = 0; j < d; j++)
            W[j * d + k] = dot(d, V + j * d, g->slope);
    }
    for (int sweep = 0; sweep < 30; sweep++) {
        double off = 0.0, total = 0.0;
        for (ptrdiff_t p = 0; p < d; p++) {
            total += W[p * d + p] * W[p * d + p];
            for (ptrdiff_t q = 0; q < p; q++)
                off += W[p * d + q] * W[p * d + q];
        }
        if (!(off > 1e-33 * total))
            break;
        for (ptrdiff_t p = 1; p < d; p++)
            for (ptrdiff_t q = 0; q < p; q++) {
                const double a = W[p * d + q];
                if (a == 0.0)
                    continue;
                const double slant = (W[q * d + q] - W[p * d + p]) / (2.0 * a);
                const double t = (slant < 0.0 ? -1.0 : 1.0) / (fabs(slant) + sqrt(slant * slant + 1.0));
                const double c = 1.0 / sqrt(t * t + 1.0), s = -t * c;
                rotate(d, c, s, W + p * d, W + q * d);
                for (ptrdiff_t i = 0; i < d; i++)
                    rotate(1, c, s, W + i * d + p, W + i * d + q);
                rotate(d, c, s, V + p * d, V + q * d);
                W[p * d + q] = W[q * d + p] = 0.0;
            }
    }
    for (ptrdiff_t k = 0; k < d; k++)
        g->values[k] = W[k * d + k];
}

/* Singular values of a matrix, right singular vectors and the matrix times these, from vectors near them. */
WIDE static void singular(group *g, const double *u)
{
    const ptrdiff_t m = g->high, k = g->wide;
    double *V = g->vectors, *C = g->columns;
    orthonormal(k, k, V);
    for (ptrdiff_t j = 0; j < k; j++)
        for (ptrdiff_t a = 0; a < m; a++) {
            double sum = 0.0;
            for (ptrdiff_t b = 0; b < k; b++)
                sum += u[a * g->along + b * g->across] * V[j * k + b];
            C[j * m + a] = sum;
        }
    for (int sweep = 0; sweep < 30; sweep++) {
        int turned = 0;
        for (ptrdiff_t p = 1; p < k; p++)
            for (ptrdiff_t q = 0; q < p; q++) {
                const double alpha = dot(m, C + p * m, C + p * m), beta = dot(m, C + q * m, C + q * m);
                const double gamma = dot(m, C + p * m, C + q * m);
                if (!(gamma * gamma > 1e-32 * alpha * beta) || gamma * gamma < 1e-290)
                    continue;
                const double slant = (beta - alpha) / (2.0 * gamma);
                const double t = (slant < 0.0 ? -1.0 : 1.0) / (fabs(slant) + sqrt(slant * slant + 1.0));
                const double c = 1.0 / sqrt(t * t + 1.0), s = -t * c;
                rotate(m, c, s, C + p * m, C + q * m);
                rotate(k, c, s, V + p * k, V + q * k);
                turned = 1;
            }
        if (!turned)
            break;
    }
    for (ptrdiff_t j = 0; j < k; j++)
        g->values[j] = sqrt(dot(m, C + j * m, C + j * m));
}

/* x^p for x >= 0: the usual powers without logarithms. */
static double to_power(double x, double p)
{
    if (p == 1.0)
        return x;
    if (p == 2.0)
        return x * x;
    if (p == 3.0)
        return x * x * x;
    if (p == 4.0)
        return (x * x) * (x * x);
    if (p == 0.5)
        return sqrt(x);
    if (p == 1.5)
        return x * sqrt(x);
    if (p == -1.0 || p == -2.0)
        return p == -1.0 ? 1.0 / x : 1.0 / (x * x);
    return fabs(p - 1.0 / 3.0) < 1e-16 ? cbrt(x) : p == 0.0 ? 1.0 : pow(x, p);
}

/* The root x >= 0 of a x + b x^m = c, m >= 1: Newton's method from the right, where the left side is convex. */
static double power_root(double a, double b, double m, double c)
{
    double x = INFINITY;
    if (m == 2.0) {
        const double root = a + sqrt(a * a + 4.0 * b * c);
        return root > 0.0 ? 2.0 * c / root : 0.0;
    }
    if (a > 0.0)
        x = c / a;
    if (b > 0.0)
        x = fmin(x, to_power(c / b, 1.0 / m));
    if (!isfinite(x))
        return 0.0;
    for (int round = 0; round < 60; round++) {
        const double power = to_power(x, m - 1.0), slope = a + m * b * power;
        const double next = slope > 0.0 ? fmax(x - (a * x + b * power * x - c) / slope, 0.0) : x;
        const double moved = fabs(next - x);
        x = next;
        if (moved <= 1e-9 * x) /* the error of a step is about the square of the one before */
            break;
    }
    return x;
}

/* The root z >= 0 of z + c p z^(p−1) = u, p > 1. */
static double power_prox(double u, double c, double p)
{
    if (!(u > 0.0))
        return 0.0;
    return p >= 2.0 ? power_root(1.0, c * p, p - 1.0, u) : to_power(power_root(c * p, 1.0, 1.0 / (p - 1.0), u), 1.0 / (p - 1.0));
}

/* The root z > 0 of z − b z^(p−1) = u, b > 0 and p < 1: Newton's method from the left, where the left side is concave. */
static double below_root(double u, double c, double p)
{
    const double b = c * fabs(p);
    double z = to_power(b, 1.0 / (2.0 - p));
    if (u > 0.0)
        z = fmax(z, u);
    else {
        const double most = fmin(z, to_power(b / -u, 1.0 / (1.0 - p)));
        z = to_power(b / (most - u), 1.0 / (1.0 - p));
    }
    for (int round = 0; round < 100; round++) {
        const double pull = b * to_power(z, p - 1.0), next = z - (z - pull - u) / (1.0 + (1.0 - p) * pull / z);
        const double moved = fabs(next - z);
        z = next;
        if (moved <= 1e-15 * z)
            break;
    }
    return z;
}

/* The root w of w + log w = x (Fritsch, Shafer and Crowley 1973). */
static double omega(double x)
{
    if (x < -50.0)
        return exp(x);
    double w = x < -2.0 ? exp(x) : x < 4.0 ? exp(2.0 * (x - 1.0) / 3.0) : x - log(x) + log(x) / x;
    for (int round = 0; round < 3; round++) {
        const double r = x - w - log(w), t = (1.0 + w) * (1.0 + w + 2.0 / 3.0 * r);
        w *= 1.0 + r / (1.0 + w) * (t - 0.5 * r) / (t - r);
    }
    return w;
}

/* The level above which numbers exceed it by `total` together. */
WIDE static double level_of_excess(ptrdiff_t count, const double *values, double total)
{
    double level = -INFINITY;
    for (ptrdiff_t i = 0; i < count; i++) { /* Newton's method from the left of the largest level of all */
        const double one = values[i] - total;
        level = one > level ? one : level;
    }
    for (ptrdiff_t round = 0; round <= count; round++) {
        double sum = -total;
        ptrdiff_t above = 0;
        for (ptrdiff_t i = 0; i < count; i++)
            if (values[i] > level) {
                sum += values[i];
                above++;
            }
        if (!above)
            break;
        const double next = sum / (double)above;
        if (!(next > level))
            break;
        level = next;
    }
    return level;
}

/* The level with Σ clip(values − level, 0, most) = k most, from one near it. */
WIDE static double level_of_largest(ptrdiff_t count, const double *values, double most, double k, double near)
{
    const double total = k * most;
    double low = INFINITY, high = -INFINITY;
    if (k == 1.0)
        return level_of_excess(count, values, total);
    for (ptrdiff_t i = 0; i < count; i++) {
        low = fmin(low, values[i] - most);
        high = fmax(high, values[i]);
    }
    double level = near > low && near < high ? near : 0.5 * (low + high);
    for (int round = 0; round < 100; round++) {
        double sum = 0.0, inside = 0.0;
        for (ptrdiff_t i = 0; i < count; i++) {
            const double over = values[i] - level;
            sum += fmin(fmax(over, 0.0), most);
            inside += over > 0.0 && over < most;
        }
        if (fabs(sum - total) <= 4e-16 * (sum + total))
            break;
        if (sum > total)
            low = level;
        else
            high = level;
        const double middle = 0.5 * (low + high), next = inside > 0.0 && round % 4 < 3 ? level + (sum - total) / inside : middle;
        const double old = level;
        level = next > low && next < high ? next : middle;
        if (fabs(level - old) <= 1e-16 * (fabs(level) + most))
            break;
    }
    return level;
}

/* A number less its part in that: exact, where nothing is tied. */
INLINE double less_largest(double a, double level, double most)
{
    return a - level <= 0.0 ? a : a - level >= most ? a - most : level;
}

WIDE static void change_values(group *g, double step)
{
    const ptrdiff_t count = g->wide;
    const double *x = g->values, c = g->strength * step;
    double level = 0.0, sum = 0.0;
    if (g->kind == TOP_EIGENVALUES)
        level = level_of_largest(count, x, c, fmin(g->power, (double)count), g->length);
    else if (g->kind == TOP_SINGULAR_VALUE)
        level = fmax(level_of_excess(count, x, c), 0.0);
    else if (g->kind == NUCLEAR_BALL) {
        for (ptrdiff_t k = 0; k < count; k++)
            sum += x[k];
        level = sum > g->strength ? fmax(level_of_excess(count, x, g->strength), 0.0) : 0.0;
    }
    g->length = level;
    g->ratio = g->kind == NUCLEAR_BALL ? sum > g->strength : c;
    for (ptrdiff_t k = 0; k < count; k++) {
        const double root = sqrt(x[k] * x[k] + 4.0 * c);
        g->changed[k] = g->kind == SPECTRAL_BALL   ? fmin(x[k], g->strength)
                        : g->kind == TRACE_INVERSE ? below_root(x[k], c, -1.0)
                        : g->kind == TOP_EIGENVALUES    ? less_largest(x[k], level, c)
                        : g->kind == TOP_SINGULAR_VALUE ? fmin(x[k], level)
                        : g->kind == NUCLEAR_BALL       ? fmax(x[k] - level, 0.0)
                        : g->kind == SEMIDEFINITE ? (g->strength * x[k] > 0.0 ? x[k] : 0.0)
                        : g->kind == NUCLEAR      ? fmax(x[k] - c, 0.0)
                        : x[k] >= 0.0             ? 0.5 * (x[k] + root)
                                                  : 2.0 * c / (root - x[k]);
    }
}

/* Slopes of the changed values in the values themselves; return how many are tied to one level, with slopes −1, or, in a
   ball, to one sum. */
WIDE static ptrdiff_t value_slopes(group *g)
{
    ptrdiff_t tied = 0;
    for (ptrdiff_t k = 0; k < g->wide; k++) {
        const double x = g->values[k], z = g->changed[k];
        switch (g->kind) {
        case SEMIDEFINITE:
            g->slope[k] = g->strength * x > 0.0;
            break;
        case NUCLEAR:
            g->slope[k] = z > 0.0;
            break;
        case NUCLEAR_BALL:
            g->slope[k] = z > 0.0 || g->ratio == 0.0;
            tied += z > 0.0 && g->ratio > 0.0;
            break;
        case TOP_EIGENVALUES:
            g->slope[k] = x - g->length <= 0.0 || x - g->length >= g->ratio ? 1.0 : -1.0;
            tied += g->slope[k] < 0.0;
            break;
        case SPECTRAL_BALL:
            g->slope[k] = x <= z;
            break;
        case TRACE_INVERSE:
            g->slope[k] = z / (3.0 * z - 2.0 * x);
            break;
        case LOG_DET:
            g->slope[k] = z / (2.0 * z - x); /* z² / (z² + c), c = z² − xz */
            break;
        default:
            g->slope[k] = x <= z ? 1.0 : g->kind == TOP_SINGULAR_VALUE && z == 0.0 ? 0.0 : -1.0;
            tied += g->slope[k] < 0.0;
        }
    }
    return tied;
}

/* The prox of one number; its slope to g->ratio. */
WIDE static double number_prox(group *g, double step, double u)
{
    const double c = g->strength * step * g->scale * g->scale, p = g->power;
    const double at = u * g->scale - c * g->tilt, size = fabs(at);
    double z;
    if (c == 0.0) {
        z = g->kind != POWER && g->kind != EXPONENTIAL && at < 0.0 ? 0.0 : at;
        g->ratio = z == at;
    } else if (g->kind == EXPONENTIAL) { /* w = c exp z: where that is large, z from it */
        const double logs = log(c), w = omega(at + logs);
        z = w > 1.0 ? log(w) - logs : at - w;
        g->ratio = 1.0 / (1.0 + w);
    } else if (g->kind == POWER_BELOW_1) {
        z = below_root(at, c, p);
        g->ratio = 1.0 / (1.0 + c * fabs(p) * (1.0 - p) * to_power(z, p - 2.0));
    } else if (g->kind == ENTROPY) {
        z = c * omega(at / c - 1.0 - log(c));
        g->ratio = z / (z + c);
    } else if (g->kind == LOGARITHM) {
        const double root = sqrt(at * at + 4.0 * c);
        z = at >= 0.0 ? 0.5 * (at + root) : 2.0 * c / (root - at);
        g->ratio = z / (2.0 * z - at);
    } else {
        z = g->kind == POWER_ABOVE_0 && at < 0.0 ? 0.0 : power_prox(size, c, p);
        const double bend = c * p * (p - 1.0);
        g->ratio = z > 0.0 ? 1.0 / (1.0 + bend * to_power(z, p - 2.0)) : p > 2.0 && at >= 0.0 ? 1.0 : 0.0;
        z = at < 0.0 ? -z : z;
    }
    if (z < g->low) {
        z = g->low;
        g->ratio = 0.0;
    }
    return z / g->scale;
}

/* s = |z| / r for the p-norm r of the prox z of u: r s + step s^(p−1) = |u|; return Σ s^p and its slope in r. */
WIDE static double norm_parts(const group *g, double step, const double *u, double r, double top, double *s, double *slope)
{
    const double p = g->power;
    double total = 0.0;
    *slope = 0.0;
    for (ptrdiff_t i = 0; i < g->size; i++) {
        const double a = fabs(u[i]) / top;
        double power;
        if (p >= 2.0) {
            s[i] = power_root(r, step, p - 1.0, a);
            power = to_power(s[i], p - 2.0);
            const double moves = r + (p - 1.0) * step * power;
            power *= s[i];
            *slope -= moves > 0.0 ? p * power * s[i] / moves : 0.0;
        } else { /* in terms of s^(p−1), whose own power is above 1 */
            power = power_root(step, r, 1.0 / (p - 1.0), a);
            s[i] = to_power(power, 1.0 / (p - 1.0));
            const double moves = r + (p - 1.0) * step * (s[i] > 0.0 ? power / s[i] : power);
            *slope -= moves > 0.0 ? p * power * s[i] / moves : 0.0;
        }
        total += power * s[i];
    }
    return total;
}

/* See strat/rules/power_norms.py. */
WIDE static void norm_prox(group *g, double step, const double *u, double *s)
{
    const double p = g->power, q = p / (p - 1.0), before = g->length;
    double top = 0.0, dual = 0.0, high = 0.0, low = 0.0, slope;
    for (ptrdiff_t i = 0; i < g->size; i++)
        top = fmax(top, fabs(u[i]));
    g->length = 0.0;
    step *= g->strength;
    for (ptrdiff_t i = 0; i < g->size && top > 0.0; i++) {
        dual += to_power(fabs(u[i]) / top, q);
        high += to_power(fabs(u[i]) / top, p);
    }
    const double strength = top > 0.0 ? step / top : 0.0;
    if (!(dual > to_power(strength, q))) { /* within the ball of the dual norm all goes to 0 */
        for (ptrdiff_t i = 0; i < g->size; i++)
            s[i] = 0.0;
        return;
    }
    high = to_power(high, 1.0 / p);
    double r = before > 0.0 && before < high * top ? before / top : fmax(high - strength, 0.5 * high), last = INFINITY;
    for (int round = 0; round < 100; round++) {
        const double total = norm_parts(g, strength, u, r, top, s, &slope);
        const double level = to_power(total, -1.0 / p), f = level - 1.0, rise = -level * slope / (p * total);
        if (f < 0.0)
            low = r;
        if (f > 0.0)
            high = r;
        const double trial = r - f / rise;
        const double next = trial > low && trial < high && fabs(trial - r) <= last ? trial : 0.5 * (low + high);
        last = fabs(next - r);
        if (last <= 2e-16 * r || fabs(f) <= 4e-16)
            break;
        r = next;
    }
    norm_parts(g, strength, u, r, top, s, &slope);
    g->length = r * top; /* the norm of what is left */
    g->ratio = step;
    for (ptrdiff_t i = 0; i < g->size; i++)
        s[i] *= u[i] < 0.0 ? -g->length : g->length;
}

/* 1 − J of the same: a diagonal, and a matrix of rank 1. */
WIDE static void norm_curvature(const lagrangian *l, const group *g, double sigma)
{
    const double p = g->power, *s = l->s + g->start, strength = g->length > 0.0 ? (p - 1.0) * g->ratio / g->length : 0.0;
    double left = 1.0;
    for (ptrdiff_t i = 0; i < g->size; i++) {
        const double size = g->length > 0.0 ? fabs(s[i]) / g->length : 0.0;
        const double bend = size > 0.0 || p >= 2.0 ? strength * to_power(size, p - 2.0) : INFINITY;
        const double own = g->length > 0.0 ? 1.0 / (1.0 + bend) : 0.0, side = size > 0.0 ? to_power(size, p - 1.0) : 0.0;
        l->row[i] = own * (s[i] < 0.0 ? -side : side);
        left -= strength * own * side * side;
        add_square(l, g->start + i, sigma * (1.0 - own));
    }
    add_direction(l, g, -sigma * strength / fmax(left, 1e-300));
}

/* The k largest: z = u − s with s in [0, step] that sums to k step, s = clip(u − level). Sizes keep their signs. */
WIDE static void largest_prox(group *g, double step, const double *u, double *z)
{
    const int sizes = g->kind == LARGEST_SIZES;
    const double most = g->strength * step;
    for (ptrdiff_t i = 0; i < g->size; i++)
        z[i] = sizes ? fabs(u[i]) : u[i];
    g->length = level_of_largest(g->size, z, most, fmin(g->power, (double)g->size), g->length);
    g->ratio = most;
    for (ptrdiff_t i = 0; i < g->size; i++) {
        const double left = less_largest(z[i], g->length, most);
        z[i] = !sizes ? left : u[i] < 0.0 ? -fmax(left, 0.0) : fmax(left, 0.0);
    }
}

/* 1 − J of the same: what is neither left nor moved by the whole step is tied together. */
WIDE static void largest_curvature(const lagrangian *l, const group *g, double sigma)
{
    const int sizes = g->kind == LARGEST_SIZES;
    const double *u = l->moved + g->start, *s = l->s + g->start;
    double tied = 0.0;
    for (ptrdiff_t i = 0; i < g->size; i++) {
        const double over = (sizes ? fabs(u[i]) : u[i]) - g->length;
        const int own = over > 0.0 && over < g->ratio, gone = sizes && s[i] == 0.0;
        tied += own;
        l->row[i] = !own || gone ? 0.0 : sizes && u[i] < 0.0 ? -1.0 : 1.0;
        if (own || gone)
            add_square(l, g->start + i, sigma);
    }
    if (tied > 0.0)
        add_direction(l, g, -sigma / tied);
}

WIDE static void l1_ball(group *g, const double *u, double *z)
{
    double sum = 0.0;
    for (ptrdiff_t i = 0; i < g->size; i++) {
        z[i] = fabs(u[i]);
        sum += z[i];
    }
    g->ratio = sum > g->strength;
    const double level = g->ratio > 0.0 ? fmax(level_of_excess(g->size, z, g->strength), 0.0) : 0.0;
    for (ptrdiff_t i = 0; i < g->size; i++) {
        const double left = fmax(z[i] - level, 0.0);
        z[i] = u[i] < 0.0 ? -left : left;
    }
}

/* 1 − J outside: what is 0 stays there, the others move with their sum kept. */
WIDE static void l1_curvature(const lagrangian *l, const group *g, double sigma)
{
    const double *s = l->s + g->start;
    double count = 0.0;
    if (g->ratio == 0.0)
        return;
    for (ptrdiff_t i = 0; i < g->size; i++) {
        l->row[i] = (s[i] > 0.0) - (s[i] < 0.0);
        count += s[i] != 0.0;
        if (s[i] == 0.0)
            add_square(l, g->start + i, sigma);
    }
    if (count > 0.0)
        add_direction(l, g, sigma / count);
}

WIDE static void group_prox(group *g, double step, const double *restrict u, double *restrict s)
{
    const ptrdiff_t size = g->size;
    if (g->kind < LENGTH)
        s[0] = number_prox(g, step, u[0]);
    else if (g->kind == P_NORM)
        norm_prox(g, step, u, s);
    else if (g->kind == L1_BALL)
        l1_ball(g, u, s);
    else if (g->kind == LARGEST || g->kind == LARGEST_SIZES)
        largest_prox(g, step, u, s);
    else if (g->kind <= BALL) {
        g->length = sqrt(dot(size, u, u));
        if (g->kind == LENGTH)
            g->ratio = g->length > g->strength * step ? 1.0 - g->strength * step / g->length : 0.0;
        else
            g->ratio = g->length > g->strength ? g->strength / g->length : 1.0;
        for (ptrdiff_t i = 0; i < size; i++)
            s[i] = g->ratio * u[i];
    } else if (g->kind == CONE) {
        const double last = u[size - 1];
        g->length = sqrt(dot(size - 1, u, u));
        const double half = 0.5 * (g->length - last), height = g->length + last <= 0.0 ? -last : half > 0.0 ? half : 0.0;
        g->ratio = g->length > height ? height / g->length : 1.0;
        for (ptrdiff_t i = 0; i + 1 < size; i++)
            s[i] = g->ratio * u[i];
        s[size - 1] = -height;
    } else {
        const int symmetric = g->kind <= TRACE_INVERSE;
        const double *left = symmetric ? g->vectors : g->columns;
        symmetric ? eigen(g, u) : singular(g, u);
        change_values(g, step);
        for (ptrdiff_t i = 0; i < size; i++)
            s[i] = 0.0;
        for (ptrdiff_t k = 0; k < g->wide; k++) {
            const double own = symmetric ? g->changed[k] : g->values[k] > 0.0 ? g->changed[k] / g->values[k] : 0.0;
            if (own != 0.0)
                for (ptrdiff_t a = 0; a < g->high; a++)
                    for (ptrdiff_t b = 0; b < g->wide; b++)
                        s[a * g->along + b * g->across] += own * left[k * g->high + a] * g->vectors[k * g->wide + b];
        }
    }
}

/* l->row: x yᵀ, and what is added of y xᵀ where the matrix is square. */
WIDE static void outer(const lagrangian *l, const group *g, double factor, const double *x, const double *y)
{
    for (ptrdiff_t a = 0; a < g->high; a++)
        for (ptrdiff_t b = 0; b < g->wide; b++)
            l->row[a * g->along + b * g->across] += factor * x[a] * y[b];
}

INLINE void clear_row(const lagrangian *l, const group *g)
{
    for (ptrdiff_t i = 0; i < g->size; i++)
        l->row[i] = 0.0;
}

/* H += σ Aᵀ(1 − J)A for a function of the eigenvalues or singular values with derivative J of its prox. */
WIDE static void spectral_curvature(const lagrangian *l, group *g, double sigma)
{
    const ptrdiff_t d = g->wide, m = g->high, tied = value_slopes(g);
    const int symmetric = g->kind <= TRACE_INVERSE, ball = g->kind == NUCLEAR_BALL;
    const double *x = g->values, *z = g->changed, *V = g->vectors, share = tied ? 1.0 / (double)tied : 0.0;
    double *U = symmetric ? g->vectors : g->columns, largest = 0.0;
    for (ptrdiff_t k = 0; k < d; k++)
        largest = fmax(largest, fabs(x[k]));
    if (!symmetric) { /* left vectors, and others that complete them */
        for (ptrdiff_t k = 0; k < m; k++) {
            double *own = U + k * m;
            if (k < d && x[k] > 1e-13 * largest)
                for (ptrdiff_t a = 0; a < m; a++)
                    own[a] /= x[k];
            else
                own[0] = NAN;
        }
        for (ptrdiff_t k = 0, next = 0; k < m; k++) {
            double *own = U + k * m, rest = 0.0;
            if (!isnan(own[0]))
                continue;
            for (; rest < 0.1 / (double)m && next < m; next++) {
                for (ptrdiff_t a = 0; a < m; a++)
                    own[a] = a == next;
                for (int twice = 0; twice < 2; twice++)
                    for (ptrdiff_t j = 0; j < m; j++)
                        if (j != k && !isnan(U[j * m]))
                            add_scaled(m, -dot(m, U + j * m, own), U + j * m, own);
                rest = dot(m, own, own);
            }
            for (ptrdiff_t a = 0; a < m; a++)
                own[a] /= sqrt(rest);
        }
    }
    for (ptrdiff_t i = 0; i < d; i++) {
        clear_row(l, g);
        outer(l, g, 1.0, U + i * m, V + i * d);
        add_direction(l, g, sigma * (1.0 - fmax(g->slope[i], 0.0)));
        for (ptrdiff_t j = 0; j < i; j++) {
            const double gap = x[i] - x[j], own_i = g->slope[i] < 0.0 ? share : g->slope[i];
            const double own_j = g->slope[j] < 0.0 ? share : g->slope[j];
            const int both = g->slope[i] < 0.0 && g->slope[j] < 0.0, near = fabs(gap) <= 1e-12 * (1.0 + largest);
            double even = both ? 0.0 : near ? 0.5 * (own_i + own_j) : (z[i] - z[j]) / gap;
            even = fmin(fmax(even, 0.0), 1.0);
            clear_row(l, g);
            outer(l, g, sqrt(0.5), U + i * m, V + j * d);
            outer(l, g, sqrt(0.5), U + j * m, V + i * d);
            add_direction(l, g, sigma * (1.0 - even));
            if (!symmetric) {
                const double total = x[i] + x[j], odd = total > 0.0 ? (z[i] + z[j]) / total : own_j;
                clear_row(l, g);
                outer(l, g, sqrt(0.5), U + i * m, V + j * d);
                outer(l, g, -sqrt(0.5), U + j * m, V + i * d);
                add_direction(l, g, sigma * (1.0 - odd));
            }
        }
        for (ptrdiff_t k = d; k < m; k++) {
            clear_row(l, g);
            outer(l, g, 1.0, U + k * m, V + i * d);
            add_direction(l, g, sigma * (1.0 - (x[i] > 0.0 ? z[i] / x[i] : fmax(g->slope[i], 0.0))));
        }
    }
    if (tied) {
        clear_row(l, g);
        for (ptrdiff_t i = 0; i < d; i++)
            if (ball ? z[i] > 0.0 : g->slope[i] < 0.0)
                outer(l, g, 1.0, U + i * m, V + i * d);
        add_direction(l, g, ball ? sigma * share : -sigma * share);
    }
}

WIDE static void group_curvature(const lagrangian *l, group *g, double sigma)
{
    const double *u = l->moved + g->start, square = g->length * g->length;
    double all = 0.0, along = 0.0;
    if (g->kind < LENGTH)
        add_square(l, g->start, sigma * (1.0 - g->ratio));
    if (g->kind == P_NORM)
        norm_curvature(l, g, sigma);
    if (g->kind == L1_BALL)
        l1_curvature(l, g, sigma);
    if (g->kind == LARGEST || g->kind == LARGEST_SIZES)
        largest_curvature(l, g, sigma);
    if (g->kind >= SEMIDEFINITE)
        spectral_curvature(l, g, sigma);
    if (g->kind < LENGTH || g->kind > CONE)
        return;
    if (g->kind == CONE) {
        const ptrdiff_t size = g->size - 1;
        const double last = u[size], slant = last / g->length;
        if (g->length + last <= 0.0)
            return;
        if (g->length <= last)
            all = 1.0;
        else {
            for (ptrdiff_t i = 0; i < size; i++)
                l->row[i] = u[i] / g->length;
            l->row[size] = 0.0;
            add_direction(l, g, -0.5 * sigma * (1.0 + slant));
            l->row[size] = 1.0;
            add_direction(l, g, 0.5 * sigma);
            for (ptrdiff_t i = 0; i < size; i++)
                add_square(l, g->start + i, 0.5 * sigma * (1.0 + slant));
            return;
        }
    } else {
        all = 1.0 - g->ratio;
        along = g->kind == LENGTH ? (g->ratio > 0.0 ? -all : 0.0) : all > 0.0 ? g->ratio : 0.0;
    }
    if (all != 0.0)
        for (ptrdiff_t i = 0; i < g->size; i++)
            add_square(l, g->start + i, sigma * all);
    if (along != 0.0 && square > 0.0) {
        memcpy(l->row, u, (size_t)g->size * sizeof *u);
        add_direction(l, g, sigma * along / square);
    }
}

/* s: the proxes of all rows at `moved`, with steps 1/σ. */
WIDE static void proxes(lagrangian *l, double sigma)
{
    const double step = 1.0 / sigma;
    const ptrdiff_t J = l->J;
    for (ptrdiff_t i = 0; i < l->m; i++) {
        const double u = l->moved[i], *knots = l->knots + i * J, *slopes = l->slopes + i * (J + 1);
        double z = u - step * slopes[0];
        for (ptrdiff_t j = 0; j < J; j++)
            z = fmax(fmin(z, knots[j]), u - step * slopes[j + 1]);
        l->s[i] = z;
    }
    for (ptrdiff_t k = 0; k < l->g; k++)
        group_prox(l->groups + k, step, l->moved + l->groups[k].start, l->s + l->groups[k].start);
}

WIDE static void set_images(lagrangian *l)
{
    for (ptrdiff_t i = 0; i < l->M; i++)
        l->u[i] = row_times(l, i, l->z) + l->offset[i];
}

/* The alternating direction method, with L⁻¹ of G + σ AᵀA; whether its point is finite. */
WIDE static int approach(lagrangian *l, double sigma, const double *inverse, double size)
{
    const ptrdiff_t n = l->n, M = l->M;
    double moves = 0.0, apart = 0.0;
    for (ptrdiff_t i = 0; i < M; i++) {
        l->moved[i] = l->u[i];
        l->y[i] = 0.0;
    }
    proxes(l, sigma);
    for (int round = 0; round < 60; round++) {
        double *right = l->gradient;
        for (ptrdiff_t i = 0; i < n; i++) {
            right[i] = l->load[i];
            l->z[i] = 0.0;
        }
        for (ptrdiff_t i = 0; i < M; i++)
            add_row(l, i, sigma * (l->s[i] - l->offset[i]) - l->y[i], right);
        for (ptrdiff_t k = 0; k < n; k++)
            add_scaled(k + 1, dot(k + 1, inverse + k * n, right), inverse + k * n, l->z);
        set_images(l);
        for (ptrdiff_t i = 0; i < M; i++)
            l->moved[i] = 1.8 * l->u[i] - 0.8 * l->s[i] + l->y[i] / sigma;
        memcpy(l->along, l->s, (size_t)M * sizeof *l->s);
        proxes(l, sigma);
        moves = apart = 0.0;
        for (ptrdiff_t i = 0; i < M; i++) {
            l->y[i] = sigma * (l->moved[i] - l->s[i]);
            moves = fmax(moves, fabs(l->s[i] - l->along[i]));
            apart = fmax(apart, fabs(l->u[i] - l->s[i]));
        }
        if (fmax(moves, apart) <= 1e-5 * size)
            break;
    }
    return isfinite(moves + apart);
}

/* Proxes, gradient and its largest entry, and the largest distance between rows and their proxes, at z with rows u. */
WIDE static double look(lagrangian *l, double sigma, double *apart, double *largest)
{
    const ptrdiff_t n = l->n, M = l->M;
    double error = 0.0;
    *apart = *largest = 0.0;
    for (ptrdiff_t i = 0; i < M; i++)
        l->moved[i] = l->u[i] + l->y[i] / sigma;
    proxes(l, sigma);
    for (ptrdiff_t i = 0; i < n; i++)
        l->gradient[i] = dot(n, l->G + i * n, l->z) - l->load[i];
    for (ptrdiff_t i = 0; i < M; i++) {
        add_row(l, i, sigma * (l->moved[i] - l->s[i]), l->gradient);
        *apart = fmax(*apart, fabs(l->u[i] - l->s[i]));
        *largest = fmax(*largest, fabs(l->u[i]));
    }
    for (ptrdiff_t i = 0; i < n; i++)
        error = fmax(error, fabs(l->gradient[i]));
    return error;
}

/* d = −H⁻¹ gradient, by Cholesky's factor in place of H; 0 where H is not positive definite. */
WIDE static int direction(lagrangian *l, double sigma)
{
    const ptrdiff_t n = l->n, J = l->J;
    double *H = l->H, *d = l->d;
    for (ptrdiff_t i = 0; i < n; i++) {
        memcpy(H + i * n, l->G + i * n, (size_t)(i + 1) * sizeof *H);
        d[i] = -l->gradient[i];
    }
    for (ptrdiff_t i = 0; i < l->m; i++) {
        int held = 0;
        for (ptrdiff_t j = 0; j < J; j++)
            held |= l->s[i] == l->knots[i * J + j];
        if (held)
            add_square(l, i, sigma);
    }
    for (ptrdiff_t k = 0; k < l->g; k++)
        group_curvature(l, l->groups + k, sigma);
    for (ptrdiff_t i = 0; i < n; i++) {
        for (ptrdiff_t j = 0; j < i; j++)
            H[i * n + j] = (H[i * n + j] - dot(j, H + i * n, H + j * n)) / H[j * n + j];
        const double rest = H[i * n + i] - dot(i, H + i * n, H + i * n);
        if (!(rest > 0.0))
            return 0;
        H[i * n + i] = sqrt(rest);
        d[i] = (d[i] - dot(i, H + i * n, d)) / H[i * n + i];
    }
    for (ptrdiff_t i = n - 1; i >= 0; i--) {
        d[i] /= H[i * n + i];
        add_scaled(i, -d[i], H + i * n, d);
    }
    return 1;
}

/* Go along d as far as the slope there is at most 0.3 times as steep as here. */
WIDE static void line_search(lagrangian *l, double sigma)
{
    const ptrdiff_t n = l->n, M = l->M;
    double own = 0.0, bend = 0.0, here = dot(n, l->gradient, l->d), noise = 0.0;
    double length = 1.0, last = 0.0, low = 0.0, high = NAN, at_low = here, at_high = 0.0;
    for (ptrdiff_t i = 0; i < n; i++) {
        own += l->d[i] * (dot(n, l->G + i * n, l->z) - l->load[i]);
        bend += l->d[i] * dot(n, l->G + i * n, l->d);
    }
    for (ptrdiff_t i = 0; i < M; i++) {
        l->along[i] = row_times(l, i, l->d);
        noise += (sigma * fabs(l->u[i]) + fabs(l->y[i])) * fabs(l->along[i]);
    }
    noise *= 4e-16;
    for (int round = 0; round < 40; round++) {
        double slope = own + length * bend;
        for (ptrdiff_t i = 0; i < M; i++) {
            l->u[i] += (length - last) * l->along[i];
            l->moved[i] = l->u[i] + l->y[i] / sigma;
        }
        last = length;
        proxes(l, sigma);
        for (ptrdiff_t i = 0; i < M; i++)
            slope += sigma * (l->moved[i] - l->s[i]) * l->along[i];
        const int steep = !(slope <= fmax(-0.3 * here, noise));
        const int flat = isfinite(high) && slope < -fmax(-0.5 * here, noise);
        if (!steep && !flat)
            break;
        if (steep) {
            high = length;
            at_high = slope;
        } else {
            low = length;
            at_low = slope;
        }
        const double width = high - low, middle = 0.5 * (low + high), secant = low - at_low * width / (at_high - at_low);
        length = round % 3 == 2 || !(fabs(secant - middle) <= 0.45 * width) ? middle : secant;
    }
    add_scaled(n, last, l->d, l->z);
    set_images(l);
}

/* Multipliers and Newton steps in turn; whether the end is reached. */
WIDE static int augmented(lagrangian *l, double size, int steps)
{
    double sigma = 1e3, apart, largest, last = INFINITY, before = INFINITY, error;
    set_images(l);
    error = look(l, sigma, &apart, &largest);
    for (int step = 0; step < steps; step++) {
        for (int twice = 0; twice < 2; twice++) {
            for (ptrdiff_t i = 0; i < l->n; i++)
                size = fmax(size, 1.0 + fabs(l->z[i]));
            const int stuck = error >= 0.5 * last && error <= 1e-10 * size + 1e-14 * sigma * largest;
            if (!(error <= fmax(1e-13 * size, 0.1 * apart)) && !stuck)
                break;
            const int near = apart <= (step < 30 ? 2e-12 : 1e-10) * size;
            if (near && (apart <= 2e-14 * size || apart > 0.1 * before)) /* more multipliers do not bring it nearer */
                return 1;
            if (twice)
                goto next;
            for (ptrdiff_t i = 0; i < l->M; i++)
                l->y[i] = sigma * (l->moved[i] - l->s[i]);
            if (apart > 0.02 * before && !near)
                sigma = fmin(10.0 * sigma, 1e9);
            before = apart;
            last = INFINITY;
            error = look(l, sigma, &apart, &largest);
        }
        last = error;
        if (!direction(l, sigma))
            return 0;
        line_search(l, sigma);
        error = look(l, sigma, &apart, &largest);
    next:;
    }
    return 0;
}

INLINE double *carve(double **memory, ptrdiff_t count)
{
    double *out = *memory;
    *memory += count;
    return out;
}

/* `shapes` has (kind, first row, rows, columns) of each group, `powers` (exponent, scale, tilt, least). Strides lead from stratum to stratum, 0 where all have the
   same. x holds where to start. `work` has room for the arrays below. */
WIDE static void stratum_proxes(ptrdiff_t K, ptrdiff_t n, ptrdiff_t M, ptrdiff_t m, ptrdiff_t J, ptrdiff_t g,
                                       ptrdiff_t steps, const double *A, const double *offset, ptrdiff_t offset_stride,
                                       const double *G, ptrdiff_t G_stride, const double *load, const double *knots,
                                       ptrdiff_t knots_stride, const double *slopes, ptrdiff_t slopes_stride,
                                       const ptrdiff_t *shapes, const double *powers, const double *strength,
                                       ptrdiff_t strength_stride,
                                       double *work, double *x, double *found)
{
    lagrangian l = {.n = n, .M = M, .m = m, .J = J, .g = g, .A = A};
    double *inverse = carve(&work, n * n), *factor = carve(&work, n * n), penalty = 0.0;
    int bad = 0;
    l.H = carve(&work, n * n);
    l.gradient = carve(&work, n);
    l.d = carve(&work, n);
    l.q = carve(&work, n);
    l.y = carve(&work, M);
    l.u = carve(&work, M);
    l.s = carve(&work, M);
    l.moved = carve(&work, M);
    l.along = carve(&work, M);
    l.row = carve(&work, M);
    l.count = (ptrdiff_t *)carve(&work, M);
    l.column = (ptrdiff_t *)carve(&work, M * n);
    l.groups = (group *)carve(&work, g * (ptrdiff_t)((sizeof(group) + sizeof(double) - 1) / sizeof(double)));
    for (ptrdiff_t i = 0; i < M; i++) {
        ptrdiff_t count = 0;
        for (ptrdiff_t k = 0; k < n; k++)
            if (A[i * n + k] != 0.0)
                l.column[i * n + count++] = k;
        l.count[i] = 4 * count > n && n > 4 ? -1 : count;
    }
    for (ptrdiff_t k = 0; k < g; k++) {
        group *own = l.groups + k;
        const ptrdiff_t rows = shapes[4 * k + 2], columns = shapes[4 * k + 3];
        own->kind = shapes[4 * k];
        own->power = powers[4 * k];
        own->scale = powers[4 * k + 1];
        own->tilt = powers[4 * k + 2];
        own->low = powers[4 * k + 3];
        own->start = shapes[4 * k + 1];
        own->size = rows * columns;
        own->high = rows > columns ? rows : columns;
        own->wide = rows > columns ? columns : rows;
        own->along = rows > columns ? columns : 1;
        own->across = rows > columns ? 1 : columns;
        if (own->kind >= SEMIDEFINITE) {
            own->vectors = carve(&work, own->wide * own->wide);
            own->columns = carve(&work, own->high * own->high);
            own->values = carve(&work, own->wide);
            own->changed = carve(&work, own->wide);
            own->slope = carve(&work, own->wide);
        }
    }
    for (ptrdiff_t k = 0; k < K; k++) {
        double size = 1.0, trace = 0.0;
        l.offset = offset + k * offset_stride;
        l.G = G + k * G_stride;
        l.load = load + k * n;
        l.knots = knots + k * knots_stride;
        l.slopes = slopes + k * slopes_stride;
        l.z = x + k * n;
        for (ptrdiff_t c = 0; c < g; c++) {
            group *own = l.groups + c;
            own->strength = strength[k * strength_stride + c];
            own->length = own->kind == P_NORM ? 0.0 : NAN;
            if (own->kind >= SEMIDEFINITE)
                for (ptrdiff_t i = 0; i < own->wide * own->wide; i++)
                    own->vectors[i] = i % (own->wide + 1) == 0;
        }
        if (k == 0 || G_stride) {
            for (ptrdiff_t i = 0; i < n; i++)
                trace += l.G[i * n + i];
            penalty = 5.0 * sqrt(trace / (double)n);
            memcpy(l.H, l.G, (size_t)(n * n) * sizeof *l.H);
            for (ptrdiff_t i = 0; i < M; i++)
                add_square(&l, i, penalty);
            bad = inverse_factor(n, l.H, factor, inverse);
        }
        for (ptrdiff_t i = 0; i < n; i++)
            size = fmax(size, 1.0 + fabs(l.z[i]));
        set_images(&l);
        found[k] = !bad && approach(&l, penalty, inverse, size) && augmented(&l, size, (int)steps);
    }
}

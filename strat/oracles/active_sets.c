/* One stratum's min ½ xᵀGx − loadᵀx + Σ φ_i(a_iᵀx), φ_i piecewise linear, by a dual active-set method: see
   strat/oracles/prox_active_set.py. Rows are on a piece, with its slope as multiplier, or held on a knot. Included by
   _loops.c after kernels.c, whose rules hold here too. */

typedef struct {
    ptrdiff_t n, m, J, free, q; /* q rows are held */
    const double *A, *knots, *slopes, *G;
    double *load, *back, *R, *x, *y, *u, *d, *r, *move;  /* back: columns of L⁻ᵀ turned so that the held rows are R in them */
    ptrdiff_t *piece, *held, *first, *last;       /* of row: its piece, -1 while held; of held: row, pieces beside the knot */
} active_set;

INLINE double dot(ptrdiff_t n, const double *restrict a, const double *restrict b)
{
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (ptrdiff_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

INLINE void add_scaled(ptrdiff_t n, double factor, const double *restrict a, double *restrict out)
{
#pragma omp simd
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] += factor * a[i];
}

/* L⁻¹ for G = L Lᵀ, by rows; 1 where it is not positive definite. */
WIDE static int inverse_factor(ptrdiff_t n, const double *restrict G, double *restrict L, double *restrict out)
{
    for (ptrdiff_t i = 0; i < n; i++)
        for (ptrdiff_t j = 0; j <= i; j++) {
            const double rest = G[i * n + j] - dot(j, L + i * n, L + j * n);
            if (i == j && !(rest > 0.0))
                return 1;
            L[i * n + j] = i == j ? sqrt(rest) : rest / L[j * n + j];
        }
    for (ptrdiff_t i = 0; i < n; i++) {
        double *restrict own = out + i * n;
        for (ptrdiff_t j = 0; j < n; j++)
            own[j] = i == j;
        for (ptrdiff_t j = 0; j < i; j++)
            add_scaled(j + 1, -L[i * n + j], out + j * n, own);
        for (ptrdiff_t j = 0; j <= i; j++)
            own[j] /= L[i * n + i];
    }
    return 0;
}

INLINE void rotate(ptrdiff_t n, double c, double s, double *restrict a, double *restrict b)
{
#pragma omp simd
    for (ptrdiff_t i = 0; i < n; i++) {
        const double old = a[i];
        a[i] = c * old + s * b[i];
        b[i] = c * b[i] - s * old;
    }
}

/* Hold row p: one reflection of the columns that no held row touches turns what p has there into one number. */
WIDE static void hold(active_set *s, ptrdiff_t p, ptrdiff_t knot)
{
    const ptrdiff_t n = s->n, q = s->q, rest = n - q;
    const double *knots = s->knots + p * s->J;
    double *restrict tail = s->d + q, *restrict w = s->move;
    const double length = sqrt(dot(rest, tail, tail)), head = tail[0] > 0.0 ? -length : length;
    memcpy(s->R + q * n, s->d, (size_t)q * sizeof *s->d);
    s->R[q * n + q] = head;
    tail[0] -= head;
    const double beta = 2.0 / dot(rest, tail, tail);
    for (ptrdiff_t i = 0; i < n; i++)
        w[i] = 0.0;
    for (ptrdiff_t k = 0; k < rest; k++)
        add_scaled(n, tail[k], s->back + (q + k) * n, w);
    for (ptrdiff_t k = 0; k < rest; k++)
        add_scaled(n, -beta * tail[k], w, s->back + (q + k) * n);
    ptrdiff_t first = knot, last = knot + 1;
    while (first > 0 && knots[first - 1] == knots[knot])
        first--;
    while (last < s->J && knots[last] == knots[knot])
        last++;
    s->held[q] = p;
    s->first[q] = first;
    s->last[q] = last;
    s->piece[p] = -1;
    s->q++;
}

/* Let the l-th held row go to a piece. */
WIDE static void release_row(active_set *s, ptrdiff_t l, ptrdiff_t piece)
{
    const ptrdiff_t n = s->n, p = s->held[l];
    s->piece[p] = piece;
    s->y[p] = s->slopes[p * (s->J + 1) + piece];
    s->q--;
    for (ptrdiff_t k = l; k < s->q; k++) {
        memcpy(s->R + k * n, s->R + (k + 1) * n, (size_t)(k + 2) * sizeof *s->R);
        s->held[k] = s->held[k + 1];
        s->first[k] = s->first[k + 1];
        s->last[k] = s->last[k + 1];
    }
    for (ptrdiff_t k = l; k < s->q; k++) {
        double *restrict column = s->R + k * n;
        const double length = hypot(column[k], column[k + 1]), c = column[k] / length, t = column[k + 1] / length;
        for (ptrdiff_t j = k; j < s->q; j++)
            rotate(1, c, t, s->R + j * n + k, s->R + j * n + k + 1);
        rotate(n, c, t, s->back + k * n, s->back + (k + 1) * n);
    }
}

/* In place, R⁻¹ r or R⁻ᵀ r. */
INLINE void solve_upper(const active_set *s, double *restrict r)
{
    for (ptrdiff_t k = s->q - 1; k >= 0; k--) {
        r[k] /= s->R[k * s->n + k];
        add_scaled(k, -r[k], s->R + k * s->n, r);
    }
}

INLINE void solve_lower(const active_set *s, double *restrict r)
{
    for (ptrdiff_t k = 0; k < s->q; k++)
        r[k] = (r[k] - dot(k, s->R + k * s->n, r)) / s->R[k * s->n + k];
}

/* Newton's step for the equations of the held rows: rounding errors go. Return its largest entry, less what the terms'
   own rounding explains; coordinates with lent curvature count by the force that moves them. */
WIDE static double refine(active_set *s)
{
    const ptrdiff_t n = s->n, J = s->J;
    double *restrict rest = s->move, *restrict w = s->d, largest = 0.0, terms = 0.0;
    for (ptrdiff_t i = 0; i < n; i++) {
        const double load = s->load[i], pull = s->G[i * n + i] * s->x[i];
        rest[i] = load - dot(n, s->G + i * n, s->x);
        terms = fmax(terms, fabs(load) + fabs(pull));
    }
    for (ptrdiff_t i = 0; i < s->m; i++)
        if (s->y[i] != 0.0) {
            add_scaled(n, -s->y[i], s->A + i * n, rest);
            terms = fmax(terms, fabs(s->y[i]));
        }
    for (ptrdiff_t k = 0; k < n; k++)
        w[k] = dot(n, s->back + k * n, rest);
    for (ptrdiff_t k = 0; k < s->q; k++)
        s->r[k] = s->knots[s->held[k] * J + s->first[k]] - dot(n, s->A + s->held[k] * n, s->x);
    solve_lower(s, s->r);
    for (ptrdiff_t k = 0; k < s->q; k++) {
        const double moved = s->r[k];
        s->r[k] = w[k] - moved;
        w[k] = moved;
    }
    solve_upper(s, s->r);
    for (ptrdiff_t k = 0; k < s->q; k++)
        s->y[s->held[k]] += s->r[k];
    for (ptrdiff_t i = 0; i < n; i++)
        rest[i] = 0.0;
    for (ptrdiff_t k = 0; k < n; k++)
        add_scaled(n, w[k], s->back + k * n, rest);
    for (ptrdiff_t i = 0; i < n; i++) {
        s->x[i] += rest[i];
        largest = fmax(largest, fabs(rest[i]) * (i < n - s->free ? 1.0 : s->G[i * n + i]));
    }
    return largest - 1e-14 * terms;
}

WIDE static void images(active_set *s)
{
    for (ptrdiff_t i = 0; i < s->m; i++)
        s->u[i] = dot(s->n, s->A + i * s->n, s->x);
}

/* How far row i is outside its piece: below it negative. */
INLINE double outside(const active_set *s, ptrdiff_t i)
{
    const ptrdiff_t j = s->piece[i];
    const double *knots = s->knots + i * s->J;
    if (j < 0)
        return 0.0;
    if (j < s->J && s->u[i] > knots[j])
        return s->u[i] - knots[j];
    return j > 0 && s->u[i] < knots[j - 1] ? s->u[i] - knots[j - 1] : 0.0;
}

/* Bring row p, outside its piece, to the knot where that ends, or to the next piece; 0 where nothing can. */
WIDE static int bring(active_set *s, ptrdiff_t p, double tolerance, ptrdiff_t *steps)
{
    const ptrdiff_t n = s->n, J = s->J, up = s->u[p] > s->knots[p * J + s->piece[p]] && s->piece[p] < J;
    const ptrdiff_t knot = up ? s->piece[p] : s->piece[p] - 1;
    const double *a = s->A + p * n, target = s->knots[p * J + knot], sign = up ? 1.0 : -1.0;
    ptrdiff_t next = up ? knot + 1 : knot;
    while (up ? next < J && s->knots[p * J + next] == target : next > 0 && s->knots[p * J + next - 1] == target)
        next += up ? 1 : -1;
    const double bound = s->slopes[p * (J + 1) + next];
    while ((*steps)-- > 0) {
        const ptrdiff_t q = s->q;
        for (ptrdiff_t k = 0; k < n; k++)
            s->d[k] = dot(n, s->back + k * n, a);
        memcpy(s->r, s->d, (size_t)q * sizeof *s->r);
        solve_upper(s, s->r);
        const double free = dot(n - q, s->d + q, s->d + q), all = free + dot(q, s->d, s->d);
        const int moves = free > 1e-20 * all;
        const double full = moves ? sign * (s->u[p] - target) / free : INFINITY, most = sign * (bound - s->y[p]);
        double length = full < most ? full : most;
        ptrdiff_t leaves = -1;
        for (ptrdiff_t k = 0; k < q; k++) {
            const ptrdiff_t i = s->held[k];
            const double fall = sign * s->r[k];
            const double end = s->slopes[i * (J + 1) + (fall > 0.0 ? s->first[k] : s->last[k])];
            const double room = (s->y[i] - end) / fall;
            if (fabs(fall) > 1e-13 && isfinite(end) && room < length) {
                length = room > 0.0 ? room : 0.0;
                leaves = k;
            }
        }
        if (!isfinite(length))
            return sign * (s->u[p] - target) <= tolerance;
        s->y[p] += sign * length;
        for (ptrdiff_t k = 0; k < q; k++)
            s->y[s->held[k]] -= sign * length * s->r[k];
        if (moves && length > 0.0) {
            for (ptrdiff_t i = 0; i < n; i++)
                s->move[i] = 0.0;
            for (ptrdiff_t k = q; k < n; k++)
                add_scaled(n, -sign * length * s->d[k], s->back + k * n, s->move);
            add_scaled(n, 1.0, s->move, s->x);
            for (ptrdiff_t i = 0; i < s->m; i++)
                s->u[i] += dot(n, s->A + i * n, s->move);
        }
        if (leaves >= 0) {
            const int low = sign * s->r[leaves] > 0.0;
            release_row(s, leaves, low ? s->first[leaves] : s->last[leaves]);
        } else if (full <= most) {
            hold(s, p, knot);
            return 1;
        } else {
            s->y[p] = bound;
            s->piece[p] = next;
            return 1;
        }
    }
    return 0;
}

/* Whether the held rows' multipliers are what their knots allow, in their own units or by how far x would move. */
WIDE static int multipliers_fit(active_set *s, double tolerance)
{
    for (ptrdiff_t k = 0; k < s->q; k++) {
        const ptrdiff_t i = s->held[k];
        const double *slopes = s->slopes + i * (s->J + 1), y = s->y[i];
        const double low = slopes[s->first[k]] - y, high = y - slopes[s->last[k]], over = low > high ? low : high;
        if (over > tolerance) {
            for (ptrdiff_t c = 0; c < s->n; c++)
                s->d[c] = dot(s->n, s->back + c * s->n, s->A + i * s->n);
            if (over * dot(s->n, s->d, s->d) > tolerance)
                return 0;
        }
    }
    return 1;
}

/* Start on the pieces where x without rows is; 0 where a row has none. */
WIDE static int start(active_set *s)
{
    const ptrdiff_t n = s->n, J = s->J;
    s->q = 0;
    for (ptrdiff_t i = 0; i < n; i++)
        s->x[i] = 0.0;
    for (ptrdiff_t k = 0; k < n; k++)
        add_scaled(n, dot(n, s->back + k * n, s->load), s->back + k * n, s->x);
    images(s);
    for (ptrdiff_t i = 0; i < s->m; i++) {
        const double *knots = s->knots + i * J, *slopes = s->slopes + i * (J + 1);
        ptrdiff_t j = 0;
        while (j < J && s->u[i] > knots[j])
            j++;
        while (slopes[j] == INFINITY && j > 0)
            j--;
        while (slopes[j] == -INFINITY && j < J)
            j++;
        s->piece[i] = j;
        s->y[i] = slopes[j];
        if (!isfinite(s->y[i]))
            return 0;
    }
    refine(s);
    return 1;
}

/* The row farthest outside its piece, -1 where none is. */
WIDE static ptrdiff_t farthest(const active_set *s, double tolerance)
{
    ptrdiff_t worst = -1;
    for (ptrdiff_t i = 0; i < s->m; i++)
        if (fabs(outside(s, i)) > tolerance) {
            tolerance = fabs(outside(s, i));
            worst = i;
        }
    return worst;
}

WIDE static int descend(active_set *s, double tolerance, ptrdiff_t *steps)
{
    for (int tries = 0; tries < 4; tries++) {
        ptrdiff_t worst;
        images(s);
        while ((worst = farthest(s, tolerance)) >= 0)
            if (tries == 3 || !bring(s, worst, tolerance, steps))
                return 0;
        if (refine(s) <= tolerance && tries > 0)
            return multipliers_fit(s, tolerance);
    }
    return 0;
}

/* The curvature of the last `free` coordinates is there to make G definite and belongs to where they are at the end. */
WIDE static int by_active_set(active_set *s, double *restrict centre)
{
    const ptrdiff_t n = s->n, fixed = n - s->free;
    ptrdiff_t steps = 100 + 20 * (s->m + n);
    for (ptrdiff_t i = fixed; i < n; i++)
        centre[i] = 0.0;
    for (int round = 0; round < 20; round++) {
        if (!start(s))
            return 0;
        double size = 1.0;
        for (ptrdiff_t i = 0; i < fixed; i++)
            size = fmax(size, 1.0 + fabs(s->x[i]));
        const double tolerance = 1e-12 * size;
        if (!descend(s, tolerance, &steps))
            return 0;
        for (int again = 0; again < 50; again++) {
            for (ptrdiff_t i = fixed; i < n; i++) {
                s->load[i] += s->G[i * n + i] * (s->x[i] - centre[i]);
                centre[i] = s->x[i];
            }
            if (fixed == n)
                return 1;
            const double moved = refine(s);
            images(s);
            if (farthest(s, 2.0 * tolerance) >= 0 || !multipliers_fit(s, 2.0 * tolerance))
                break;
            if (moved <= tolerance)
                return 1;
        }
    }
    return 0;
}

/* `found` says where the method came to the end. Strides lead from stratum to stratum, 0 where all have the same; `work`
   has room for n (3 n + 8) + 6 m numbers. */
WIDE static void active_sets(ptrdiff_t K, ptrdiff_t n, ptrdiff_t free, ptrdiff_t m, ptrdiff_t J, const double *A,
                             const double *G, ptrdiff_t G_stride, double *load, const double *knots,
                             ptrdiff_t knots_stride, const double *slopes, ptrdiff_t slopes_stride, double *work,
                             double *x, double *found)
{
    double *first = work + 2 * n * n, *centre = first + n * n;
    active_set s = {.n = n, .m = m, .J = J, .free = free, .A = A, .back = work, .R = work + n * n, .d = centre + n};
    int bad = 0;
    s.r = s.d + n;
    s.move = s.r + n;
    s.y = s.move + n;
    s.u = s.y + m;
    s.piece = (ptrdiff_t *)(s.u + m);
    s.held = s.piece + m;
    s.first = s.held + n;
    s.last = s.first + n;
    for (ptrdiff_t k = 0; k < K; k++) {
        s.G = G + k * G_stride;
        s.load = load + k * n;
        s.knots = knots + k * knots_stride;
        s.slopes = slopes + k * slopes_stride;
        s.x = x + k * n;
        if (k == 0 || G_stride)
            bad = inverse_factor(n, s.G, s.R, first);
        memcpy(s.back, first, (size_t)(n * n) * sizeof *first);
        found[k] = !bad && by_active_set(&s, centre);
    }
}

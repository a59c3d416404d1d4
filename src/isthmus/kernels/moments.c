/* Mean, minimum, maximum and deviation of messages in one pass over edges sorted by target, and their gradients.
 *
 * Included once for each number format: `real` is the format, NAME(x) the name of a function in it.
 *
 * The message of edge e is rows[src[e]] + values[e] + the sum of table[at[e, l]] over l < lookups + common[dst[e]]; values,
 * table and common may be null. What is common to all edges of a target is added to their aggregates. Channels lie in
 * groups of `width`, and the result is [groups, targets, 4, width]. Working on a few channels at a time keeps the running
 * aggregates in the first-level cache.
 */

#define FLOOR ((real)1e-5) /* a variance below it counts as 0, as in PyG's StdAggregation */

typedef struct {
    const real *rows, *values, *table;
    const int64_t *src, *at;
    int64_t lookups, channels;
} NAME(Message);

static inline __attribute__((always_inline)) void NAME(message)(
    const NAME(Message) *of, int64_t e, int64_t from, int64_t n, real *m) {
    const real *row = of->rows + of->src[e] * of->channels + from;
    for (int64_t j = 0; j < n; j++) m[j] = row[j];
    if (of->values) {
        const real *value = of->values + e * of->channels + from;
        for (int64_t j = 0; j < n; j++) m[j] += value[j];
    }
    for (int64_t l = 0; l < of->lookups; l++) {
        const real *entry = of->table + of->at[e * of->lookups + l] * of->channels + from;
        for (int64_t j = 0; j < n; j++) m[j] += entry[j];
    }
}

static inline __attribute__((always_inline)) void NAME(aggregate)(
    const NAME(Message) *of, int64_t begin, int64_t end, int64_t from, int64_t n, const real *common, real *out,
    int64_t width) {
    real m[CHUNK], sum[CHUNK], square[CHUNK], low[CHUNK], high[CHUNK];
    for (int64_t j = 0; j < n; j++) {
        sum[j] = square[j] = 0;
        low[j] = begin < end ? (real)INFINITY : 0;
        high[j] = begin < end ? -(real)INFINITY : 0;
    }
    for (int64_t e = begin; e < end; e++) {
        NAME(message)(of, e, from, n, m);
        for (int64_t j = 0; j < n; j++) {
            sum[j] += m[j];
            square[j] += m[j] * m[j];
            low[j] = m[j] < low[j] ? m[j] : low[j];
            high[j] = m[j] > high[j] ? m[j] : high[j];
        }
    }
    const real one = (real)1 / (real)(end > begin ? end - begin : 1);
    for (int64_t j = 0; j < n; j++) {
        const real mean = sum[j] * one, variance = square[j] * one - mean * mean;
        const real shift = common && begin < end ? common[j] : 0;
        out[j] = mean + shift;
        out[width + j] = low[j] + shift;
        out[2 * width + j] = high[j] + shift;
        out[3 * width + j] = variance > FLOOR ? SQRT(variance) : 0;
    }
}

static inline __attribute__((always_inline)) void NAME(adjoint)(
    const NAME(Message) *of, int64_t begin, int64_t end, int64_t from, int64_t n, const real *common, const real *out,
    const real *grad, int64_t width, real *to_edges, real *to_table, real *to_common) {
    real m[CHUNK], c[CHUNK], sum[CHUNK], lows[CHUNK], highs[CHUNK], deviation[CHUNK], shift[CHUNK];
    for (int64_t j = 0; j < n; j++) {
        sum[j] = lows[j] = highs[j] = 0;
        c[j] = common ? common[j] : 0; /* messages are compared with aggregates in the same sum as they were stored */
    }
    if (to_common)
        for (int64_t j = 0; j < n; j++)
            to_common[j] = begin < end ? grad[j] + grad[width + j] + grad[2 * width + j] : 0;
    for (int64_t e = begin; e < end; e++) {
        NAME(message)(of, e, from, n, m);
        for (int64_t j = 0; j < n; j++) {
            sum[j] += m[j];
            lows[j] += m[j] + c[j] == out[width + j];
            highs[j] += m[j] + c[j] == out[2 * width + j];
        }
    }
    const real one = (real)1 / (real)(end > begin ? end - begin : 1);
    for (int64_t j = 0; j < n; j++) { /* tied edges share equally: the order of edges makes no difference */
        const real std = out[3 * width + j];
        lows[j] = grad[width + j] / lows[j];
        highs[j] = grad[2 * width + j] / highs[j];
        deviation[j] = std > 0 ? grad[3 * width + j] * one / std : 0;
        shift[j] = grad[j] * one - deviation[j] * (sum[j] * one);
    }
    for (int64_t e = begin; e < end; e++) {
        NAME(message)(of, e, from, n, m);
        real *to = to_edges + e * of->channels + from;
        for (int64_t j = 0; j < n; j++)
            to[j] = shift[j] + deviation[j] * m[j] + (m[j] + c[j] == out[width + j] ? lows[j] : 0) +
                    (m[j] + c[j] == out[2 * width + j] ? highs[j] : 0);
        for (int64_t l = 0; l < of->lookups; l++) {
            real *entry = to_table + of->at[e * of->lookups + l] * of->channels + from;
            for (int64_t j = 0; j < n; j++) entry[j] += to[j];
        }
    }
}

/* Aggregates of the targets [first, last). */
void NAME(moments)(int64_t first, int64_t last, int64_t targets, int64_t groups, int64_t width, const int64_t *ptr,
                   const int64_t *src, const real *rows, const real *values, const real *table, const int64_t *at, int64_t lookups,
                   const real *common, real *out) {
    const NAME(Message) of = {rows, values, table, src, at, lookups, groups * width};
    for (int64_t v = first; v < last; v++)
        for (int64_t g = 0; g < groups; g++)
            for (int64_t c = 0; c < width; c += CHUNK) {
                const int64_t from = g * width + c;
                const real *shift = common ? common + v * groups * width + from : 0;
                real *to = out + (g * targets + v) * 4 * width + c;
                if (width - c >= CHUNK)
                    NAME(aggregate)(&of, ptr[v], ptr[v + 1], from, CHUNK, shift, to, width);
                else
                    NAME(aggregate)(&of, ptr[v], ptr[v + 1], from, width - c, shift, to, width);
            }
}

/* Gradients of the messages of the targets [first, last), and of the table. */
void NAME(moments_back)(int64_t first, int64_t last, int64_t targets, int64_t groups, int64_t width,
                        const int64_t *ptr, const int64_t *src, const real *rows, const real *values, const real *table, const int64_t *at,
                        int64_t lookups, const real *common, const real *out, const real *grad, real *to_edges,
                        real *to_table, real *to_common) {
    const NAME(Message) of = {rows, values, table, src, at, lookups, groups * width};
    for (int64_t v = first; v < last; v++)
        for (int64_t g = 0; g < groups; g++)
            for (int64_t c = 0; c < width; c += CHUNK) {
                const int64_t from = g * width + c, row = v * groups * width + from;
                const int64_t four = (g * targets + v) * 4 * width + c;
                const real *shift = common ? common + row : 0;
                real *to = to_common ? to_common + row : 0;
                if (width - c >= CHUNK)
                    NAME(adjoint)(&of, ptr[v], ptr[v + 1], from, CHUNK, shift, out + four, grad + four, width, to_edges,
                                  to_table, to);
                else
                    NAME(adjoint)(&of, ptr[v], ptr[v + 1], from, width - c, shift, out + four, grad + four, width,
                                  to_edges, to_table, to);
            }
}

/* Sums of edge rows at the sources [first, last): entries order[ptr[s]] .. order[ptr[s + 1] - 1]. */
void NAME(gathered)(int64_t first, int64_t last, int64_t channels, const int64_t *ptr, const int64_t *order,
                    const real *edges, real *out) {
    for (int64_t s = first; s < last; s++) {
        real *to = out + s * channels;
        for (int64_t j = 0; j < channels; j++) to[j] = 0;
        for (int64_t k = ptr[s]; k < ptr[s + 1]; k++) {
            const real *row = edges + order[k] * channels;
            for (int64_t j = 0; j < channels; j++) to[j] += row[j];
        }
    }
}

#undef FLOOR

/* PNA's scalers: own + x_0 + x_1 log(d + 1) / delta + x_2 delta / log(d + 1), and its gradient.
 *
 * x is [groups, rows, 3, width]; own and the result are [rows, groups * width]; count and delta are one number a row.
 */

static inline void NAME(scalers)(real count, real delta, real *amplify, real *attenuate) {
    *amplify = LOG(count + 1) / delta;
    *attenuate = delta / LOG((count > 1 ? count : 1) + 1);
}

void NAME(scale)(int64_t first, int64_t last, int64_t rows, int64_t groups, int64_t width, const real *x,
                 const real *own, const real *count, const real *delta, real *out) {
    for (int64_t v = first; v < last; v++) {
        real amplify, attenuate;
        NAME(scalers)(count[v], delta[v], &amplify, &attenuate);
        for (int64_t g = 0; g < groups; g++) {
            const real *from = x + (g * rows + v) * 3 * width;
            const int64_t at = (v * groups + g) * width;
            for (int64_t j = 0; j < width; j++)
                out[at + j] = own[at + j] + from[j] + amplify * from[width + j] + attenuate * from[2 * width + j];
        }
    }
}

void NAME(scale_back)(int64_t first, int64_t last, int64_t rows, int64_t groups, int64_t width, const real *grad,
                      const real *count, const real *delta, real *to) {
    for (int64_t v = first; v < last; v++) {
        real amplify, attenuate;
        NAME(scalers)(count[v], delta[v], &amplify, &attenuate);
        for (int64_t g = 0; g < groups; g++) {
            real *x = to + (g * rows + v) * 3 * width;
            const real *from = grad + (v * groups + g) * width;
            for (int64_t j = 0; j < width; j++) {
                x[j] = from[j];
                x[width + j] = amplify * from[j];
                x[2 * width + j] = attenuate * from[j];
            }
        }
    }
}

/* Normalisation, ReLU and dropout in one pass: dropout(ReLU((h - mean) scale + shift)), and its gradients.
 *
 * Row i uses row silo[i] of mean, scale and shift, or the only one where its step is 0. An entry survives if its 16 bits
 * of the row's hash are at least `bound` (as signed numbers): one hash serves four neighbouring columns.
 */
void NAME(activate)(int64_t first, int64_t last, int64_t width, const real *h, const real *mean, int64_t mean_step,
                    const real *scale, int64_t scale_step, const real *shift, int64_t shift_step, const int64_t *silo,
                    const int64_t *ids, int64_t key, int64_t bound, int64_t kept, real *out) {
    const real grow = (real)(65536.0 / (double)kept);
    for (int64_t i = first; i < last; i++) {
        const real *m = mean + silo[i] * mean_step, *a = scale + silo[i] * scale_step, *b = shift + silo[i] * shift_step;
        const real *x = h + i * width;
        real *y = out + i * width;
        for (int64_t j = 0; j < width; j++) {
            const real z = (x[j] - m[j]) * a[j] + b[j];
            y[j] = z > 0 || z != z ? z * grow : 0; /* NaN stays NaN */
        }
        if (kept == 65536) continue;
        const uint64_t row = drawn((uint64_t)key, (uint64_t)ids[i]);
        for (int64_t j = 0; j < width; j++) {
            const uint64_t bits = mix(row + (uint64_t)(j / 4) * GOLDEN);
            y[j] = (int16_t)(bits >> (16 * (j % 4))) >= bound ? y[j] : 0;
        }
    }
}

/* Gradient of h, and of every row's part in the gradients of shift and scale: [rows, 2, width]. */
void NAME(activate_back)(int64_t first, int64_t last, int64_t width, const real *grad, const real *h, const real *y,
                         const real *mean, int64_t mean_step, const real *scale, int64_t scale_step,
                         const int64_t *silo, int64_t kept, real *to_h, real *parts) {
    const real grow = (real)(65536.0 / (double)kept);
    for (int64_t i = first; i < last; i++) {
        const real *m = mean + silo[i] * mean_step, *a = scale + silo[i] * scale_step;
        for (int64_t j = 0; j < width; j++) {
            const int64_t at = i * width + j;
            const real z = y[at] > 0 || y[at] != y[at] ? grad[at] * grow : 0;
            to_h[at] = z * a[j];
            parts[2 * i * width + j] = z;
            parts[(2 * i + 1) * width + j] = z * (h[at] - m[j]);
        }
    }
}

/* Shares of rows: those that are drawn, from a stream of ChaCha20, and the last, which follows from them and the row. */

/* The next ``n`` words of a stream as elements of the field: the lower 61 bits, with 0 for the prime itself. */
static void next_elements(stream *s, int64_t n, uint64_t *to) {
    const uint64_t *from;
    while (n > 0) {
        const int64_t some = next_words(s, n, &from);
        for (int64_t j = 0; j < some; j++) {
            const uint64_t lower = from[j] & PRIME;
            to[j] = lower == PRIME ? 0 : lower;
        }
        to += some;
        n -= some;
    }
}

/* c times v, or times -v where c is negative; at most 6 (p - 1) for c of that size. */
static inline __attribute__((always_inline)) uint64_t multiple(int64_t c, uint64_t v) {
    return c < 0 ? (uint64_t)-c * (PRIME - v) : (uint64_t)c * v;
}

/* Shares of the messages [first, last): message i carries row[copies[i]] and has ``degree`` drawn shares and the last,
 * which is coefficients[0] row + coefficients[k] share k, each coefficient of at most 6 in size. The stream has the
 * drawn shares of all messages one after another, from message 0 on. out: [messages, degree + 1, width].
 */
void shared_out(int64_t first, int64_t last, int64_t degree, int64_t width, const uint32_t *key, const int64_t *copies,
                const uint64_t *rows, const int64_t *coefficients, uint64_t *out) {
    if (first >= last) return;
    stream s;
    stream_from(&s, key, (uint64_t)(first * degree * width));
    for (int64_t i = first; i < last; i++) {
        uint64_t *drawn = out + i * (degree + 1) * width, *to = drawn + degree * width;
        const uint64_t *row = rows + copies[i] * width;
        next_elements(&s, degree * width, drawn);
        for (int64_t j = 0; j < width; j++) to[j] = folded(multiple(coefficients[0], row[j]));
        for (int64_t k = 0; k < degree; k++) {
            const int64_t c = coefficients[k + 1];
            for (int64_t j = 0; j < width; j++) to[j] = folded(to[j] + multiple(c, drawn[k * width + j]));
        }
        for (int64_t j = 0; j < width; j++) to[j] = to[j] >= PRIME ? to[j] - PRIME : to[j];
    }
}

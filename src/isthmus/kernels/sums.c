/* Sums of whole rows over lists of neighbours: plain, and modulo the prime 2^61 - 1.
 *
 * Modulo the prime, 2^61 is 1: what stands above the lower 61 bits is added to them. Seven elements fit on top of such a
 * number before 64 bits overflow, so that happens once in seven rows.
 */
#define PRIME ((1ULL << 61) - 1)
#define LAZY 7

static inline __attribute__((always_inline)) uint64_t folded(uint64_t a) { return (a & PRIME) + (a >> 61); }

static inline __attribute__((always_inline)) void add_near(
    int64_t begin, int64_t end, const int64_t *near, const uint64_t *x, int64_t width, int64_t n, int modular, uint64_t *to) {
    uint64_t sum[CHUNK];
    for (int64_t j = 0; j < n; j++) sum[j] = 0;
    for (int64_t e = begin; e < end; e += LAZY) {
        const int64_t stop = e + LAZY < end ? e + LAZY : end;
        for (int64_t k = e; k < stop; k++) {
            const uint64_t *row = x + near[k] * width;
            for (int64_t j = 0; j < n; j++) sum[j] += row[j];
        }
        if (modular)
            for (int64_t j = 0; j < n; j++) sum[j] = folded(sum[j]);
    }
    for (int64_t j = 0; j < n; j++) /* a folded sum is at most the prime plus 7 */
        to[j] = modular && sum[j] >= PRIME ? sum[j] - PRIME : sum[j];
}

static inline __attribute__((always_inline)) void add_all(
    int64_t first, int64_t last, int64_t width, const int64_t *ptr, const int64_t *near, const uint64_t *x, int modular,
    uint64_t *out) {
    for (int64_t v = first; v < last; v++)
        for (int64_t c = 0; c < width; c += CHUNK) {
            uint64_t *to = out + v * width + c;
            if (width - c >= CHUNK)
                add_near(ptr[v], ptr[v + 1], near, x + c, width, CHUNK, modular, to);
            else
                add_near(ptr[v], ptr[v + 1], near, x + c, width, width - c, modular, to);
        }
}

/* Sums at the targets [first, last) of rows whose sums fit into 64 bits; unsigned addition serves signed numbers too. */
void sums_whole(int64_t first, int64_t last, int64_t width, const int64_t *ptr, const int64_t *near, const uint64_t *x,
                uint64_t *out) {
    add_all(first, last, width, ptr, near, x, 0, out);
}

/* Canonical sums modulo 2^61 - 1 at the targets [first, last) of canonical rows. */
void sums_modular(int64_t first, int64_t last, int64_t width, const int64_t *ptr, const int64_t *near, const uint64_t *x,
                  uint64_t *out) {
    add_all(first, last, width, ptr, near, x, 1, out);
}

/* The hash of isthmus.core.random: splitmix64's finaliser, twice. Unsigned arithmetic wraps as torch's int64 does. */
#define GOLDEN 0x9E3779B97F4A7C15ULL

static inline uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31);
}

static inline uint64_t drawn(uint64_t key, uint64_t id) { return mix(mix(id * GOLDEN + key) + key); }

void draw(int64_t first, int64_t last, int64_t key, const int64_t *ids, int64_t *out) {
    for (int64_t i = first; i < last; i++) out[i] = (int64_t)drawn((uint64_t)key, (uint64_t)ids[i]);
}

/* The stream of ChaCha20 (Bernstein 2008; RFC 8439 with a nonce of 0 and a counter of 64 bits), 16 blocks at a time.
 *
 * A block is eight 64-bit words of the stream. Lane i of every vector belongs to block counter + i.
 */
#define LANES 16
#define BLOCK 8                 /* words of a block */
#define BATCH (LANES * BLOCK)   /* words that are made at once */

typedef uint32_t lanes __attribute__((vector_size(4 * LANES)));

#define ROTATED(x, n) (((x) << (n)) | ((x) >> (32 - (n))))
#define QUARTER(a, b, c, d)                                     \
    a += b; d ^= a; d = ROTATED(d, 16); c += d; b ^= c; b = ROTATED(b, 12); \
    a += b; d ^= a; d = ROTATED(d, 8);  c += d; b ^= c; b = ROTATED(b, 7);

/* 16 blocks from ``counter`` on, in the order of the stream. */
static void chacha_batch(const uint32_t *key, uint64_t counter, uint64_t *out) {
    static const uint32_t said[4] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}; /* "expand 32-byte k" */
    lanes first[16], x[16];
    for (int w = 0; w < 16; w++) first[w] = (lanes){0} + (w < 4 ? said[w] : w < 12 ? key[w - 4] : 0);
    for (int i = 0; i < LANES; i++) {
        first[12][i] = (uint32_t)(counter + i);
        first[13][i] = (uint32_t)((counter + i) >> 32);
    }
    for (int w = 0; w < 16; w++) x[w] = first[w];
    for (int round = 0; round < 10; round++) {
        QUARTER(x[0], x[4], x[8], x[12]) QUARTER(x[1], x[5], x[9], x[13])
        QUARTER(x[2], x[6], x[10], x[14]) QUARTER(x[3], x[7], x[11], x[15])
        QUARTER(x[0], x[5], x[10], x[15]) QUARTER(x[1], x[6], x[11], x[12])
        QUARTER(x[2], x[7], x[8], x[13]) QUARTER(x[3], x[4], x[9], x[14])
    }
    uint32_t made[16][LANES];
    for (int w = 0; w < 16; w++) {
        x[w] += first[w];
        memcpy(made[w], &x[w], sizeof x[w]);
    }
    for (int i = 0; i < LANES; i++)
        for (int w = 0; w < BLOCK; w++) out[i * BLOCK + w] = (uint64_t)made[2 * w][i] | (uint64_t)made[2 * w + 1][i] << 32;
}

typedef struct {
    const uint32_t *key;
    uint64_t counter; /* of the batch after ``held`` */
    int at;           /* the first word of ``held`` that nobody has had */
    uint64_t held[BATCH];
} stream;

/* The stream of a key from its word ``first`` on. */
static void stream_from(stream *s, const uint32_t *key, uint64_t first) {
    s->key = key;
    s->counter = first / BLOCK;
    s->at = (int)(first % BLOCK);
    chacha_batch(key, s->counter, s->held);
    s->counter += LANES;
}

/* The next words of a stream, at most ``n``: ``to`` points to them, and their number is returned. */
static int64_t next_words(stream *s, int64_t n, const uint64_t **to) {
    if (s->at == BATCH) {
        chacha_batch(s->key, s->counter, s->held);
        s->counter += LANES;
        s->at = 0;
    }
    const int64_t some = n < BATCH - s->at ? n : BATCH - s->at;
    *to = s->held + s->at;
    s->at += (int)some;
    return some;
}

/* The words [first, last) of the stream of a key. */
void chacha_words(int64_t first, int64_t last, const uint32_t *key, uint64_t *out) {
    if (first >= last) return;
    stream s;
    const uint64_t *from;
    stream_from(&s, key, (uint64_t)first);
    for (int64_t at = first; at < last;) {
        const int64_t some = next_words(&s, last - at, &from);
        memcpy(out + at, from, 8 * (size_t)some);
        at += some;
    }
}

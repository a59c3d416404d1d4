/* Everything that is compiled for the processor, those of real numbers in both formats. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define CHUNK 64

#include "draw.c"
#include "sums.c"
#include "chacha.c"
#include "shares.c"

#define real float
#define NAME(x) x##_float32
#define SQRT sqrtf
#define LOG logf
#include "moments.c"
#include "scale.c"
#include "activate.c"
#undef real
#undef NAME
#undef SQRT
#undef LOG

#define real double
#define NAME(x) x##_float64
#define SQRT sqrt
#define LOG log
#include "moments.c"
#include "scale.c"
#include "activate.c"

"""The Triton programs of the GPU kernels: each instance computes one row and a block of channels.

Arguments have the shapes and names that the comments of the C files (moments.c, scale.c, activate.c) describe.
"""
# mypy: ignore-errors
# ruff: noqa: D103

import triton
import triton.language as tl


@triton.jit
def message_of_edge(rows, src, at, values, table, e, c, seen, channels, LOOKUPS: tl.constexpr, VALUES: tl.constexpr):
    m = tl.load(rows + tl.load(src + e) * channels + c, mask=seen, other=0.0)
    if VALUES:
        m += tl.load(values + e * channels + c, mask=seen, other=0.0)
    for i in tl.static_range(LOOKUPS):
        m += tl.load(table + tl.load(at + e * LOOKUPS + i) * channels + c, mask=seen, other=0.0)
    return m


@triton.jit
def moments_program(
    rows, src, ptr, at, values, table, common, out, targets, channels, width,
    LOOKUPS: tl.constexpr, VALUES: tl.constexpr, COMMON: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    v = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    seen = c < channels
    begin, end = tl.load(ptr + v), tl.load(ptr + v + 1)
    real = out.dtype.element_ty
    total = tl.zeros([BLOCK], real)
    square = tl.zeros([BLOCK], real)
    low = tl.full([BLOCK], float("inf"), real)
    high = tl.full([BLOCK], float("-inf"), real)
    for e in range(begin, end):
        m = message_of_edge(rows, src, at, values, table, e, c, seen, channels, LOOKUPS, VALUES)
        total += m
        square += m * m
        low = tl.minimum(low, m)
        high = tl.maximum(high, m)
    count = tl.maximum(end - begin, 1).to(real)
    mean = total / count
    variance = square / count - mean * mean
    some = end > begin
    if COMMON:
        shift = tl.load(common + v * channels + c, mask=seen, other=0.0)
        mean += shift
        low += shift
        high += shift
    to = out + ((c // width) * targets + v) * 4 * width + c % width
    tl.store(to, tl.where(some, mean, 0.0), mask=seen)
    tl.store(to + width, tl.where(some, low, 0.0), mask=seen)
    tl.store(to + 2 * width, tl.where(some, high, 0.0), mask=seen)
    tl.store(to + 3 * width, tl.where(variance > 1e-5, tl.sqrt(tl.maximum(variance, 1e-5)), 0.0), mask=seen)


@triton.jit
def moments_back_program(
    rows, src, ptr, at, values, table, common, out, grad, to_edges, to_common, targets, channels, width,
    LOOKUPS: tl.constexpr, VALUES: tl.constexpr, COMMON: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    v = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    seen = c < channels
    begin, end = tl.load(ptr + v), tl.load(ptr + v + 1)
    real = out.dtype.element_ty
    place = ((c // width) * targets + v) * 4 * width + c % width
    low = tl.load(out + place + width, mask=seen, other=0.0)
    high = tl.load(out + place + 2 * width, mask=seen, other=0.0)
    std = tl.load(out + place + 3 * width, mask=seen, other=0.0)
    to_mean = tl.load(grad + place, mask=seen, other=0.0)
    to_low = tl.load(grad + place + width, mask=seen, other=0.0)
    to_high = tl.load(grad + place + 2 * width, mask=seen, other=0.0)
    to_std = tl.load(grad + place + 3 * width, mask=seen, other=0.0)
    shift = tl.zeros([BLOCK], real)
    if COMMON:
        shift = tl.load(common + v * channels + c, mask=seen, other=0.0)
        both = tl.where(end > begin, to_mean + to_low + to_high, 0.0)
        tl.store(to_common + v * channels + c, both, mask=seen)
    total = tl.zeros([BLOCK], real)
    lows = tl.zeros([BLOCK], real)
    highs = tl.zeros([BLOCK], real)
    for e in range(begin, end):
        m = message_of_edge(rows, src, at, values, table, e, c, seen, channels, LOOKUPS, VALUES)
        total += m
        m += shift
        lows += tl.where(m == low, 1.0, 0.0).to(real)
        highs += tl.where(m == high, 1.0, 0.0).to(real)
    count = tl.maximum(end - begin, 1).to(real)
    # Tied edges share equally: the order of edges makes no difference.
    to_low = to_low / tl.maximum(lows, 1.0)
    to_high = to_high / tl.maximum(highs, 1.0)
    deviation = tl.where(std > 0, to_std / (count * tl.where(std > 0, std, 1.0)), 0.0)
    to_mean = to_mean / count - deviation * (total / count)
    for e in range(begin, end):
        m = message_of_edge(rows, src, at, values, table, e, c, seen, channels, LOOKUPS, VALUES)
        g = to_mean + deviation * m
        m += shift
        g += tl.where(m == low, to_low, 0.0) + tl.where(m == high, to_high, 0.0)
        tl.store(to_edges + e * channels + c, g, mask=seen)


@triton.jit
def gathered_program(edges, ptr, order, out, channels, BLOCK: tl.constexpr):
    s = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    seen = c < channels
    total = tl.zeros([BLOCK], out.dtype.element_ty)
    for k in range(tl.load(ptr + s), tl.load(ptr + s + 1)):
        total += tl.load(edges + tl.load(order + k) * channels + c, mask=seen, other=0.0)
    tl.store(out + s * channels + c, total, mask=seen)


@triton.jit
def degree_scalers(count, delta, v):
    d, constant = tl.load(count + v), tl.load(delta + v)
    return tl.log(d + 1) / constant, constant / tl.log(tl.maximum(d, 1.0) + 1)


@triton.jit
def scale_program(x, own, count, delta, out, rows, channels, width, BLOCK: tl.constexpr):
    v = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    seen = c < channels
    amplify, attenuate = degree_scalers(count, delta, v)
    place = ((c // width) * rows + v) * 3 * width + c % width
    y = tl.load(own + v * channels + c, mask=seen, other=0.0) + tl.load(x + place, mask=seen, other=0.0)
    y += amplify * tl.load(x + place + width, mask=seen, other=0.0)
    y += attenuate * tl.load(x + place + 2 * width, mask=seen, other=0.0)
    tl.store(out + v * channels + c, y, mask=seen)


@triton.jit
def scale_back_program(grad, count, delta, to, rows, channels, width, BLOCK: tl.constexpr):
    v = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    seen = c < channels
    amplify, attenuate = degree_scalers(count, delta, v)
    g = tl.load(grad + v * channels + c, mask=seen, other=0.0)
    place = ((c // width) * rows + v) * 3 * width + c % width
    tl.store(to + place, g, mask=seen)
    tl.store(to + place + width, amplify * g, mask=seen)
    tl.store(to + place + 2 * width, attenuate * g, mask=seen)


@triton.jit
def mix_bits(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def hash_of_id(key, ids):
    key = key.to(tl.uint64, bitcast=True)
    return mix_bits(mix_bits(ids.to(tl.uint64, bitcast=True) * 0x9E3779B97F4A7C15 + key) + key)


@triton.jit(do_not_specialize=["key"])
def draw_program(ids, out, key, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(ids + i, mask=i < n, other=0)
    tl.store(out + i, hash_of_id(key.to(tl.int64), x).to(tl.int64, bitcast=True), mask=i < n)


@triton.jit
def dropout_gain(kept, real: tl.constexpr):
    return tl.full([1], 65536, real) / kept.to(real)


@triton.jit(do_not_specialize=["key"])
def activate_program(
    h, mean, scale, shift, silo, ids, out, width, mean_step, scale_step, shift_step, key, bound, kept,
    DROPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    seen = j < width
    s = tl.load(silo + i)
    z = tl.load(h + i * width + j, mask=seen, other=0.0) - tl.load(mean + s * mean_step + j, mask=seen, other=0.0)
    z = z * tl.load(scale + s * scale_step + j, mask=seen, other=0.0)
    z += tl.load(shift + s * shift_step + j, mask=seen, other=0.0)
    z = tl.where((z > 0) | (z != z), z * dropout_gain(kept, z.dtype), 0.0)
    if DROPS:
        row = hash_of_id(key.to(tl.int64), tl.load(ids + i))
        bits = mix_bits(row + (j // 4).to(tl.uint64) * 0x9E3779B97F4A7C15)
        sixteen = (bits >> (16 * (j % 4)).to(tl.uint64)).to(tl.uint16).to(tl.int16, bitcast=True)
        z = tl.where(sixteen >= bound, z, 0.0)
    tl.store(out + i * width + j, z, mask=seen)


@triton.jit
def activate_back_program(
    grad, h, y, mean, scale, silo, to_h, parts, width, mean_step, scale_step, kept, BLOCK: tl.constexpr
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    seen = j < width
    s = tl.load(silo + i)
    at = i * width + j
    done = tl.load(y + at, mask=seen, other=0.0)
    z = tl.load(grad + at, mask=seen, other=0.0) * dropout_gain(kept, done.dtype)
    z = tl.where((done > 0) | (done != done), z, 0.0)
    tl.store(to_h + at, z * tl.load(scale + s * scale_step + j, mask=seen, other=0.0), mask=seen)
    centred = tl.load(h + at, mask=seen, other=0.0) - tl.load(mean + s * mean_step + j, mask=seen, other=0.0)
    tl.store(parts + 2 * i * width + j, z, mask=seen)
    tl.store(parts + (2 * i + 1) * width + j, z * centred, mask=seen)

// Products with bit planes. Behind `philox.cu`, whose words the signs are where they are not stored.
//
// Weights never leave their bits: a kept weight becomes the one exponent bit of 2.0 in bfloat16, its sign the sign bit, and
// tensor cores multiply. Half of x, cut into three pieces of eight bits each, is exact in bfloat16, so that all products
// are exact and only the sums round, in float32. What is not finite would spoil the products with dropped weights; it
// is left out there and added for kept ones alone.
// DIGITS (planes of magnitudes) and DRAWN (whether signs are drawn) are given by the launcher.

constexpr u32 LANES = 16, PLANES = DIGITS + !DRAWN;
constexpr u32 AHEAD = 4;  // steps of 128 columns whose words a warp loads together

struct Matrix {
    const u32* words;  // (groups, width, PLANES, LANES)
    u32 rows, columns, width;
    Stream signs;

    // The word of 32 columns of a row, of one plane.
    __device__ u32 word(u32 row, u32 place, u32 plane) const {
        return words[(((u64)(row / LANES) * width + place) * PLANES + plane) * LANES + row % LANES];
    }

    // Drawn signs of the 32 columns of a row.
    __device__ u32 drawn(u32 row, u32 place) const {
        u64 bit = (u64)row * columns + 32 * place;
        u32 words[8];
        draw(bit / 128, bit % 128 + 32 > 128, words);
        return cut(words, bit % 128);
    }

    // The words of one or two counters.
    __device__ void draw(u64 counter, bool two, u32* words) const {
        for (u32 i = 0; i <= two; ++i) {
            uint4 four = philox(counter + i, signs);
            words[4 * i] = four.x, words[4 * i + 1] = four.y, words[4 * i + 2] = four.z, words[4 * i + 3] = four.w;
        }
    }

    __device__ static u32 cut(const u32* words, u32 bit) {
        u32 first = words[bit / 32] >> bit % 32;
        return bit % 32 ? first | words[bit / 32 + 1] << (32 - bit % 32) : first;
    }

    __device__ u32 negative(u32 row, u32 place) const { return DRAWN ? drawn(row, place) : word(row, place, DIGITS); }

    __device__ u32 magnitude(u32 row, u32 column) const {
        u32 value = 0;
        for (u32 digit = 0; digit < DIGITS; ++digit) value |= (word(row, column / 32, digit) >> column % 32 & 1) << digit;
        return value;
    }
};

#define MATRIX \
    const u32 *words, u32 rows, u32 columns, u32 width, u32 key0, u32 key1, u32 high0, u32 high1
#define MATRIX_OF_ARGUMENTS \
    { words, rows, columns, width, {key0, key1, high0, high1} }

__device__ bool is_finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }

// What the entries of x that are not finite add to a row.
__device__ float unfinite_part(const Matrix& matrix, const float* x, u32 row) {
    float sum = 0;
    for (u32 column = 0; column < matrix.columns; ++column) {
        if (is_finite(x[column])) continue;
        u32 weight = matrix.magnitude(row, column);
        bool negative = matrix.negative(row, column / 32) >> column % 32 & 1;
        if (weight) sum += negative ? -x[column] : x[column];
    }
    return sum;
}

// Half of x in three pieces that bfloat16 holds, the largest first; of what is not finite, zeros.
struct Pieces {
    u32 top[3];  // in the upper half of each word

    __device__ explicit Pieces(float x) {
        float left = is_finite(x) ? 0.5f * x : 0.0f;
        for (u32 piece = 0; piece < 3; ++piece) {
            top[piece] = __float_as_uint(left) & 0xffff0000u;
            left -= __uint_as_float(top[piece]);
        }
    }
};

#ifdef __CUDACC__
// sums += A B for A (16, 16) and B (16, 8) in bfloat16, as lanes of a warp hold them.
__device__ void multiply_tiles(float* sums, const u32* a, uint2 b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
}
#endif

// y = scale * W x for one or two vectors, over `steps` times 128 columns from `first_step` on; added to y but for the
// first. A block has `teams` groups of rows at a time, each with `slices` warps that share its columns.
extern "C" __global__ void __launch_bounds__(1024) multiply(MATRIX, const float* x, float* y, u32 vectors, float scale,
                                                            u32 first_step, u32 steps, u32 teams, u32 slices) {
    Matrix matrix = MATRIX_OF_ARGUMENTS;
    const u32 pieces = 3 * vectors, warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // Tensor cores want rows `of` and `of + 8` from a lane, and columns by the place `at` in four: here one word each.
    const u32 of = lane / 4, at = lane % 4, team = warp / slices, slice = warp % slices;
    const u32 groups = (rows + LANES - 1) / LANES;
    uint2* entries = (uint2*)shared;                      // x: (steps, 8, pieces, 4) times four columns
    float* parts = (float*)(entries + steps * 32 * pieces);  // (warps, 16, 8)
    u32* all_finite = (u32*)(parts + warps * 128);
    u32* drawn = all_finite + 4 + warp * 256;  // eight words a lane

    if (threadIdx.x == 0) *all_finite = 1;
    __syncthreads();
    for (u32 i = threadIdx.x; i < steps * 32 * vectors; i += blockDim.x) {
        u32 vector = i / (steps * 32), four = i % 8, place = i / 8 % (4 * steps);
        u32 column = 32 * (4 * first_step + place) + 2 * four;
        u32 words[3][4];
        for (u32 k = 0; k < 4; ++k) {
            // Columns c, c + 16, c + 1, c + 17: in the order that the shifts below bring weights.
            u32 c = column + k % 2 * 16 + k / 2;
            float value = c < columns ? x[(u64)vector * columns + c] : 0.0f;
            if (!is_finite(value)) *all_finite = 0;
            Pieces cut(value);
            for (u32 piece = 0; piece < 3; ++piece) words[piece][k] = cut.top[piece];
        }
        for (u32 piece = 0; piece < 3; ++piece) {
            const u32* w = words[piece];
            entries[((place / 4 * 8 + four) * pieces + 3 * vector + piece) * 4 + place % 4] = {w[0] >> 16 | w[1],
                                                                                                w[2] >> 16 | w[3]};
        }
    }
    __syncthreads();

    for (u32 base = blockIdx.x * teams; base < groups; base += gridDim.x * teams) {
        const u32 group = base + team;
        float sums[DIGITS][4] = {};
        for (u32 step = slice; group < groups && step < steps; step += AHEAD * slices) {
            u32 held[AHEAD][2][DIGITS + 1];  // words of both rows: digits and signs
#pragma unroll
            for (u32 ahead = 0; ahead < AHEAD; ++ahead)
#pragma unroll
                for (u32 half = 0; half < 2; ++half)
#pragma unroll
                    for (u32 plane = 0; plane < PLANES; ++plane) {
                        u32 here = step + ahead * slices, row = group * LANES + of + 8 * half;
                        held[ahead][half][plane] = here < steps ? matrix.word(row, 4 * (first_step + here) + at, plane) : 0;
                    }
            if (DRAWN) {
#pragma unroll
                for (u32 ahead = 0; ahead < AHEAD; ahead += 2) {
                    // A lane draws for one row and one of two steps, and all take what they need.
                    u32 here = step + (ahead + lane / 16) * slices, row = group * LANES + lane % 16;
                    u64 bit = (u64)row * columns + 128ull * (first_step + here);
                    __syncwarp();
                    if (here < steps) matrix.draw(bit / 128, bit % 128 != 0, drawn + 8 * lane);
                    __syncwarp();
#pragma unroll
                    for (u32 half = 0; half < 2; ++half)
#pragma unroll
                        for (u32 next = 0; next < 2; ++next) {
                            u32 mine = group * LANES + of + 8 * half;
                            const u32* from = drawn + 8 * (16 * next + of + 8 * half);
                            held[ahead + next][half][DIGITS] = Matrix::cut(from, (u32)((u64)mine * columns % 128) + 32 * at);
                        }
                }
            }
#pragma unroll
            for (u32 ahead = 0; ahead < AHEAD; ++ahead) {
                u32 here = step + ahead * slices;
                if (here >= steps) break;
                u32 pairs[DIGITS][4];  // (kept, negative) in two bits each: even columns of both rows, then odd ones
#pragma unroll
                for (u32 digit = 0; digit < DIGITS; ++digit)
#pragma unroll
                    for (u32 half = 0; half < 2; ++half) {
                        u32 kept = held[ahead][half][digit], negative = held[ahead][half][DIGITS];
                        pairs[digit][half] = (kept & 0x55555555u) | (negative & 0x55555555u) << 1;
                        pairs[digit][2 + half] = (kept >> 1 & 0x55555555u) | (negative & 0xaaaaaaaau);
                    }
#pragma unroll
                for (u32 four = 0; four < 8; ++four) {
                    uint2 b = {0, 0};
                    if (of < pieces) b = entries[((here * 8 + four) * pieces + of) * 4 + at];
#pragma unroll
                    for (u32 digit = 0; digit < DIGITS; ++digit) {
                        u32 a[4];
#pragma unroll
                        for (u32 k = 0; k < 4; ++k) a[k] = pairs[digit][k] << (14 - 2 * four) & 0xc000c000u;
                        multiply_tiles(sums[digit], a, b);
                    }
                }
            }
        }
        for (u32 k = 0; k < 4; ++k) {
            float sum = 0;
            for (u32 digit = 0; digit < DIGITS; ++digit) sum += (float)(1 << digit) * sums[digit][k];
            parts[(warp * LANES + of + 8 * (k / 2)) * 8 + 2 * at + k % 2] = sum;
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < teams * LANES * vectors; i += blockDim.x) {
            u32 vector = i / LANES % vectors, of_team = i / LANES / vectors, row = (base + of_team) * LANES + i % LANES;
            if (row >= rows) continue;
            float sum = 0;
            // The smallest pieces first.
            for (u32 piece = 3; piece-- > 0;)
                for (u32 s = 0; s < slices; ++s)
                    sum += parts[((of_team * slices + s) * LANES + i % LANES) * 8 + 3 * vector + piece];
            if (!*all_finite && first_step == 0) sum += unfinite_part(matrix, x + (u64)vector * columns, row);
            float* to = y + (u64)vector * rows + row;
            *to = (first_step ? *to : 0) + scale * sum;
        }
        __syncthreads();
    }
}

// Rows of W times a scale: a word of 32 columns a thread. Indices out of range are taken as the nearest.
extern "C" __global__ void look_up(MATRIX, const long long* indices, u32 count, float* out, float scale) {
    Matrix matrix = MATRIX_OF_ARGUMENTS;
    const u32 used = (columns + 31) / 32;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < (u64)count * used; i += (u64)gridDim.x * blockDim.x) {
        long long index = indices[i / used];
        u32 row = (u32)(index < 0 ? 0 : index < rows ? index : rows - 1), place = i % used;
        u32 negative = matrix.negative(row, place), digits[DIGITS];
        for (u32 digit = 0; digit < DIGITS; ++digit) digits[digit] = matrix.word(row, place, digit);
        for (u32 bit = 0; bit < 32 && 32 * place + bit < columns; ++bit) {
            float value = 0;
            for (u32 digit = 0; digit < DIGITS; ++digit) value += (float)((digits[digit] >> bit & 1) << digit);
            out[i / used * columns + 32 * place + bit] = (negative >> bit & 1 ? -scale : scale) * value;
        }
    }
}

// y += what entries of x that are not finite add: one block a vector. Most have none, and are left at once.
extern "C" __global__ void add_unfinite(MATRIX, const float* x, float* y, float scale) {
    Matrix matrix = MATRIX_OF_ARGUMENTS;
    u32* found = (u32*)shared;
    x += (u64)blockIdx.x * columns;
    y += (u64)blockIdx.x * rows;
    if (threadIdx.x == 0) *found = 0;
    __syncthreads();
    for (u32 column = threadIdx.x; column < columns; column += blockDim.x)
        if (!is_finite(x[column])) *found = 1;
    __syncthreads();
    if (!*found) return;
    for (u32 row = threadIdx.x; row < rows; row += blockDim.x) y[row] += scale * unfinite_part(matrix, x, row);
}

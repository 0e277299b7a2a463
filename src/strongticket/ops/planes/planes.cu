// Products with bit planes. Compiled after `philox.cu`, which draws the signs that are not stored.
//
// Weights never leave their bits: a kept weight becomes the one exponent bit of 2.0 in bfloat16, its sign the sign bit, and
// tensor cores multiply. Half of x, split into three pieces of eight bits each, is exact in bfloat16, so that all
// products are exact and only the sums round, in float32. Entries that are not finite would spoil the products with
// dropped weights; they are left out there and added for kept ones alone.
// DIGITS (planes of magnitudes), DRAWN (whether signs are drawn) and VECTORS (up to 8) are set by the launcher.

constexpr u32 LANES = 32, PLANES = DIGITS + !DRAWN;
constexpr u32 AHEAD = DIGITS == 1 ? 3 : 2;  // steps of 128 columns whose words a warp has in flight
constexpr u32 PIECES = 3 * VECTORS;  // of x: columns of tensor cores, which have eight at a time
constexpr u32 EIGHTS = (PIECES + 7) / 8;
constexpr u32 PITCH = LANES + 1;  // so that lanes write to different banks
constexpr u32 PART = 8 * EIGHTS * PITCH;

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
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
            if (i && !two) break;
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
    const u32 *__restrict__ words, u32 rows, u32 columns, u32 width, u32 key0, u32 key1, u32 high0, u32 high1
#define MATRIX_OF_ARGUMENTS \
    { words, rows, columns, width, {key0, key1, high0, high1} }

__device__ bool is_finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }

// The contribution to a row of entries of x that are not finite.
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

// Half of x in three bfloat16 pieces, the largest first; zeros for entries that are not finite.
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

// The words of four rows, 4 * (lane / 4) and on, for the 32 columns that lane % 4 chooses among a step's 128.
struct Four {
    u32 row[4];
    __device__ Four() : row{} {}
    __device__ explicit Four(uint4 w) : row{w.x, w.y, w.z, w.w} {}
};

// Signs of a step: a lane draws those of one row and leaves them in shared memory for all lanes.
__device__ Four draw_step(const Matrix& matrix, u32 group, u32 step, u32* drawn) {
    const u32 lane = threadIdx.x % 32, at = lane % 4, first = group * LANES + lane / 4 * 4;
    const bool whole = matrix.columns % 128 == 0;
    u64 bit = (u64)(group * LANES + lane) * matrix.columns + 128ull * step;
    u32 words[8];
    matrix.draw(bit / 128, !whole, words);
    __syncwarp();
#pragma unroll
    for (u32 word = 0; word < 8; ++word)
        if (word < 4 || !whole) drawn[word * LANES + lane] = words[word];
    __syncwarp();
    if (whole) return Four(((const uint4*)(drawn + at * LANES))[lane / 4]);
    Four signs;
#pragma unroll
    for (u32 j = 0; j < 4; ++j) {
        u32 from = (u32)((u64)(first + j) * matrix.columns % 128) + 32 * at, shift = from % 32;
        const u32* word = drawn + from / 32 * LANES + lane / 4 * 4 + j;
        signs.row[j] = shift ? word[0] >> shift | word[LANES] << (32 - shift) : word[0];
    }
    return signs;
}

enum Activation : u32 { NONE, GELU, RELU };

// What becomes of a product: y = activation(factors * product + bias) + residual. Null pointers leave out their part.
struct Finish {
    const float *factors, *bias, *residual;
    u32 activation;

    __device__ float operator()(float y, u32 row, u64 place) const {
        if (factors) y *= factors[row];
        if (bias) y += bias[row];
        if (activation == RELU && y < 0) y = 0;
        // y (1 + tanh(u)) / 2 = y / (1 + exp(-2 u))
        if (activation == GELU) y /= 1 + expf(-2 * 0.7978845608f * (y + 0.044715f * y * y * y));
        return residual ? y + residual[place] : y;
    }
};

// y = scale * W x for VECTORS vectors, over `steps` times 128 columns from `first_step` on; added to y but for the
// first, and finished. A block has `teams` groups of 32 rows at a time, each with `slices` warps that share its columns.
extern "C" __global__ void __launch_bounds__(512) multiply(MATRIX, const float* __restrict__ x, float* y, float scale,
                                                           u32 first_step, u32 steps, u32 teams, u32 slices,
                                                           const float* factors, const float* bias,
                                                           const float* residual, u32 activation) {
    const Finish finish = {factors, bias, residual, activation};
    const Matrix matrix = MATRIX_OF_ARGUMENTS;
    const u32 warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // A lane of tensor cores has row `of` of eight, and pairs of columns by the place `at` in four.
    const u32 of = lane / 4, at = lane % 4, team = warp / slices, slice = warp % slices;
    const u32 groups = (rows + LANES - 1) / LANES;
    uint2* entries = (uint2*)shared;                         // x: (steps, 8, PIECES, 4) times four columns
    float* parts = (float*)(entries + steps * 32 * PIECES);  // (warps, 8 * EIGHTS, PITCH)
    u32* all_finite = (u32*)(parts + warps * PART);
    u32* drawn = all_finite + 4 + warp * 8 * LANES;

    Four held[AHEAD][PLANES];
    auto load = [&](Four* to, u32 group, u32 step) {
        if (group >= groups || step >= steps) return;
        const u32* from = words + (((u64)group * width + 4 * (first_step + step) + at) * PLANES) * LANES + 4 * of;
#pragma unroll
        for (u32 plane = 0; plane < PLANES; ++plane) to[plane] = Four(*(const uint4*)(from + plane * LANES));
    };
#pragma unroll
    for (u32 ahead = 0; ahead < AHEAD; ++ahead) load(held[ahead], blockIdx.x * teams + team, slice + ahead * slices);

    if (threadIdx.x == 0) *all_finite = 1;
    __syncthreads();
    for (u32 vector = 0; vector < VECTORS; ++vector)
#pragma unroll 4
        for (u32 i = threadIdx.x; i < steps * 32; i += blockDim.x) {
            u32 four = i % 8, place = i / 8, column = 32 * (4 * first_step + place) + 14 - 2 * four;
            u32 halves[3][4];
#pragma unroll
            for (u32 k = 0; k < 4; ++k) {
                // Columns c, c + 16, c + 1, c + 17, from the last c on: in the order that the shifts below bring weights.
                u32 c = column + k % 2 * 16 + k / 2;
                float value = c < columns ? x[(u64)vector * columns + c] : 0.0f;
                if (!is_finite(value)) *all_finite = 0;
                Pieces cut(value);
#pragma unroll
                for (u32 piece = 0; piece < 3; ++piece) halves[piece][k] = cut.top[piece];
            }
            uint2* to = entries + ((place / 4 * 8 + four) * PIECES + 3 * vector) * 4 + place % 4;
#pragma unroll
            for (u32 piece = 0; piece < 3; ++piece) {
                const u32* h = halves[piece];
                to[4 * piece] = {h[0] >> 16 | h[1], h[2] >> 16 | h[3]};
            }
        }
    __syncthreads();

    for (u32 base = blockIdx.x * teams; base < groups; base += gridDim.x * teams) {
        const u32 group = base + team;
        float sums[DIGITS][2][EIGHTS][4] = {};
        // A load stays in its slot: to move registers on would wait for the loads that still fill them. The rounds are not
        // unrolled: the instructions of more steps could not be fetched as fast as they run.
#pragma unroll 1
        for (u32 round = slice; group < groups && round < steps; round += AHEAD * slices) {
#pragma unroll
            for (u32 slot = 0; slot < AHEAD; ++slot) {
                const u32 step = round + slot * slices;
                if (step >= steps) break;
                const Four signs = DRAWN ? draw_step(matrix, group, first_step + step, drawn) : held[slot][PLANES - 1];
                u32 pairs[DIGITS][2][4];  // (kept, negative) in two bits: even columns of two rows, odd ones, for both tiles
#pragma unroll
                for (u32 digit = 0; digit < DIGITS; ++digit)
#pragma unroll
                    for (u32 j = 0; j < 4; ++j) {
                        const u32 kept = held[slot][digit].row[j], negative = signs.row[j];
                        pairs[digit][j / 2][j % 2] = (kept & 0x55555555u) | (negative << 1 & 0xaaaaaaaau);
                        pairs[digit][j / 2][2 + j % 2] = (kept >> 1 & 0x55555555u) | (negative & 0xaaaaaaaau);
                    }
                load(held[slot], group, step + AHEAD * slices);
                const uint2* from = entries + (step * 8 * PIECES + of) * 4 + at;
#pragma unroll 4
                for (u32 four = 0; four < 8; ++four) {
                    uint2 b[EIGHTS];
#pragma unroll
                    for (u32 eight = 0; eight < EIGHTS; ++eight) {
                        b[eight] = {0, 0};
                        if (8 * eight + of < PIECES) b[eight] = from[(four * PIECES + 8 * eight) * 4];
                    }
#pragma unroll
                    for (u32 digit = 0; digit < DIGITS; ++digit)
#pragma unroll
                        for (u32 tile = 0; tile < 2; ++tile) {
                            u32 a[4];
#pragma unroll
                            for (u32 k = 0; k < 4; ++k) {
                                a[k] = pairs[digit][tile][k] & 0xc000c000u;
                                pairs[digit][tile][k] <<= 2;
                            }
#pragma unroll
                            for (u32 eight = 0; eight < EIGHTS; ++eight)
                                multiply_tiles(sums[digit][tile][eight], a, b[eight]);
                        }
                }
            }
        }
#pragma unroll
        for (u32 ahead = 0; ahead < AHEAD; ++ahead)
            load(held[ahead], group + gridDim.x * teams, slice + ahead * slices);
#pragma unroll
        for (u32 i = 0; i < 2 * EIGHTS * 4; ++i) {
            const u32 tile = i / (EIGHTS * 4), eight = i / 4 % EIGHTS, k = i % 4;
            float sum = 0;
#pragma unroll
            for (u32 digit = 0; digit < DIGITS; ++digit) sum += (float)(1 << digit) * sums[digit][tile][eight][k];
            parts[warp * PART + (8 * eight + 2 * at + k % 2) * PITCH + 4 * of + 2 * tile + k / 2] = sum;
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < teams * LANES * VECTORS; i += blockDim.x) {
            u32 vector = i / LANES % VECTORS, of_team = i / LANES / VECTORS, row = (base + of_team) * LANES + i % LANES;
            if (row >= rows) continue;
            float sum[3] = {};  // of each piece
            for (u32 s = 0; s < slices; ++s)
#pragma unroll
                for (u32 piece = 0; piece < 3; ++piece)
                    sum[piece] += parts[(of_team * slices + s) * PART + (3 * vector + piece) * PITCH + i % LANES];
            float all = sum[2] + sum[1] + sum[0];
            if (!*all_finite && first_step == 0) all += unfinite_part(matrix, x + (u64)vector * columns, row);
            const u64 place = (u64)vector * rows + row;
            y[place] = finish((first_step ? y[place] : 0) + scale * all, row, place);
        }
        __syncthreads();
    }
}

// Rows of W times a scale: four columns per thread. Indices out of range are clamped.
extern "C" __global__ void look_up(MATRIX, const long long* indices, u32 count, float* out, float scale) {
    const Matrix matrix = MATRIX_OF_ARGUMENTS;
    const u32 fours = (columns + 3) / 4;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < (u64)count * fours; i += (u64)gridDim.x * blockDim.x) {
        const long long index = indices[i / fours];
        const u32 row = (u32)(index < 0 ? 0 : index < rows ? index : rows - 1), column = 4 * (i % fours);
        const u32 negative = matrix.negative(row, column / 32) >> column % 32;
        float each[4];
        for (u32 k = 0; k < 4; ++k)
            each[k] = (negative >> k & 1 ? -scale : scale) * (float)(column + k < columns ? matrix.magnitude(row, column + k) : 0);
        store(out, (long long)(i / fours * columns + column), i / fours * columns + columns, each);
    }
}

// y += the contribution of entries of x that are not finite: one block per vector. Most have none, and return at once.
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

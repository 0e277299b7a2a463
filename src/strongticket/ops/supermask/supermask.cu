// Exact top-density masks for many tensors at once: a radix select on the bits of the scores, then the ties by index.
//
// Tensors are split into chunks of CHUNK scores. A group is ranked together: one or more tensors, its chunks one after
// another in the table. In order: three times `count_digits` and `pick_digit`, which find a group's threshold from its
// top bits down; `count_ties` and `cut_ties`, which find the chunk where its ties change from dropped to kept; and
// `write_masks`.
// THREADS and LOADS (16-byte loads per thread and chunk) are set by the launcher.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 CHUNK = 4 * LOADS * THREADS;

struct Tensor {
    const u32* scores;  // the bits of float32 scores
    u8* mask;
    u64 size;
};
struct Chunk {
    u32 tensor, place, group, unused;  // it starts at score `place` * CHUNK of the tensor
};
struct Group {
    u32 first_chunk, chunks, dropped, unused;
};
struct State {
    u32 key;   // the threshold's digits found so far
    u32 rank;  // the wanted position among the scores that share them; finally, how many ties to drop in chunk `cut`
    u32 cut;
    u32 unused;
};

extern __shared__ uint4 shared[];

// An integer of the same order as the score: equal zeros, and equal NaNs above the rest.
__device__ u32 key_of(u32 bits, int is_signed) {
    u32 magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0xffffffffu;
    if (!is_signed) return magnitude;
    if (magnitude == 0) return 0x80000000u;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// The scores of one chunk and their masks.
struct Stretch {
    const u32* scores;
    u8* mask;
    u32 size;
    bool whole;  // full length, and aligned for wide loads and stores

    __device__ Stretch(const Tensor* tensors, Chunk chunk) {
        Tensor tensor = tensors[chunk.tensor];
        u64 first = (u64)chunk.place * CHUNK;
        scores = tensor.scores + first;
        mask = tensor.mask + first;
        size = (u32)min(tensor.size - first, (u64)CHUNK);
        whole = size == CHUNK && (u64)scores % 16 == 0 && (u64)mask % 4 == 0;
    }

    // This thread's share, all loads in flight together: words[j] is at 4 * (j * THREADS + threadIdx.x).
    __device__ void load(uint4* words) const {
#pragma unroll
        for (u32 j = 0; j < LOADS; ++j) words[j] = ((const uint4*)scores)[j * THREADS + threadIdx.x];
    }

    template <class Use>
    __device__ void for_each_key(int is_signed, Use use) const {
        if (whole) {
            uint4 words[LOADS];
            load(words);
#pragma unroll
            for (u32 j = 0; j < LOADS; ++j) {
                use(key_of(words[j].x, is_signed));
                use(key_of(words[j].y, is_signed));
                use(key_of(words[j].z, is_signed));
                use(key_of(words[j].w, is_signed));
            }
        } else {
            for (u32 i = threadIdx.x; i < size; i += THREADS) use(key_of(scores[i], is_signed));
        }
    }
};

// A block's own run of chunks: consecutive ones, so that its group rarely changes.
__device__ u32 run_begin(u32 chunks, u32 block) { return (u32)((u64)chunks * block / gridDim.x); }

__device__ void add_and_clear(u32* bins, u32* histogram, u32 size) {
    __syncthreads();
    for (u32 i = threadIdx.x; i < size; i += THREADS) {
        if (bins[i]) atomicAdd(&histogram[i], bins[i]);
        bins[i] = 0;
    }
    __syncthreads();
}

// histograms[group] receives how often each next digit of `wanted` bits follows the `found` bits already known.
extern "C" __global__ void count_digits(const Tensor* tensors, const Chunk* chunks, u32 chunk_count,
                                        const State* states, u32* histograms, u32 found, u32 wanted,
                                        int is_signed) {
    u32 *bins = (u32*)shared, size = 1u << wanted, below = 32 - found - wanted;
    for (u32 i = threadIdx.x; i < size; i += THREADS) bins[i] = 0;
    __syncthreads();
    u32 begin = run_begin(chunk_count, blockIdx.x), end = run_begin(chunk_count, blockIdx.x + 1);
    if (begin == end) return;
    u32 group = chunks[begin].group;
    for (u32 c = begin; c < end; ++c) {
        Chunk chunk = chunks[c];
        if (chunk.group != group) {
            add_and_clear(bins, histograms + (u64)group * size, size);
            group = chunk.group;
        }
        u32 prefix = states[group].key;
        Stretch(tensors, chunk).for_each_key(is_signed, [&](u32 key) {
            // Shifting a 32-bit word by 32 is undefined, so the first pass compares nothing.
            if (found == 0 || key >> (32 - found) == prefix) atomicAdd(&bins[key >> below & (size - 1)], 1u);
        });
    }
    add_and_clear(bins, histograms + (u64)group * size, size);
}

// Finds the place where the running sum of `counts` passes `rank`; the thread that finds it calls found(place, rank
// left). If nothing is kept there is no such place: the last one then drops all it has.
template <class Found>
__device__ void find(const u32* counts, u32 size, u32 rank, Found found) {
    u32* sums = (u32*)shared;
    u32 each = (size + THREADS - 1) / THREADS;
    u32 begin = min(threadIdx.x * each, size), end = min(begin + each, size), sum = 0;
    for (u32 i = begin; i < end; ++i) sum += counts[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    u32 before = 0;
    for (u32 i = 0; i < threadIdx.x; ++i) before += sums[i];
    if (begin == end || rank < before || (rank - before >= sum && end < size)) return;
    u32 at = begin, left = rank - before;
    for (; at + 1 < end && left >= counts[at]; ++at) left -= counts[at];
    found(at, left);
}

// One block per group: the next digit of its threshold.
extern "C" __global__ void pick_digit(const Group* groups, State* states, const u32* histograms, u32 found, u32 wanted) {
    u32 group = blockIdx.x, size = 1u << wanted;
    u32 rank = found ? states[group].rank : groups[group].dropped, key = found ? states[group].key : 0;
    __syncthreads();  // all have read the state before one writes it
    find(histograms + (u64)group * size, size, rank, [&](u32 digit, u32 left) {
        states[group].key = key << wanted | digit;
        states[group].rank = left;
    });
}

// ties[chunk] receives how many of its scores equal their group's threshold.
extern "C" __global__ void count_ties(const Tensor* tensors, const Chunk* chunks, u32 chunk_count, const State* states,
                                      u32* ties, int is_signed) {
    u32 end = run_begin(chunk_count, blockIdx.x + 1);
    for (u32 c = run_begin(chunk_count, blockIdx.x); c < end; ++c) {
        Chunk chunk = chunks[c];
        u32 threshold = states[chunk.group].key, count = 0;
        Stretch(tensors, chunk).for_each_key(is_signed, [&](u32 key) { count += key == threshold; });
        if (count) atomicAdd(&ties[c], count);
    }
}

// One block per group: the chunk up to which its ties are dropped, and how many in that one.
extern "C" __global__ void cut_ties(const Group* groups, State* states, const u32* ties) {
    Group group = groups[blockIdx.x];
    u32 rank = states[blockIdx.x].rank;
    __syncthreads();
    find(ties + group.first_chunk, group.chunks, rank, [&](u32 place, u32 left) {
        states[blockIdx.x].cut = group.first_chunk + place;
        states[blockIdx.x].rank = left;
    });
}

// The one chunk of a group that holds both dropped and kept ties: every thread takes a run of neighbours.
__device__ void write_cut(Stretch stretch, State state, int is_signed) {
    u32* ties = (u32*)shared;
    u32 each = CHUNK / THREADS, begin = min(threadIdx.x * each, stretch.size), end = min(begin + each, stretch.size);
    u32 mine = 0, before = 0;
    for (u32 i = begin; i < end; ++i) mine += key_of(stretch.scores[i], is_signed) == state.key;
    __syncthreads();
    ties[threadIdx.x] = mine;
    __syncthreads();
    for (u32 i = 0; i < threadIdx.x; ++i) before += ties[i];
    for (u32 i = begin; i < end; ++i) {
        u32 key = key_of(stretch.scores[i], is_signed);
        stretch.mask[i] = key == state.key ? before++ >= state.rank : key > state.key;
    }
}

extern "C" __global__ void write_masks(const Tensor* tensors, const Chunk* chunks, u32 chunk_count, const State* states,
                                       int is_signed) {
    u32 end = run_begin(chunk_count, blockIdx.x + 1);
    for (u32 c = run_begin(chunk_count, blockIdx.x); c < end; ++c) {
        Chunk chunk = chunks[c];
        State state = states[chunk.group];
        Stretch stretch(tensors, chunk);
        if (c == state.cut) {
            write_cut(stretch, state, is_signed);
            continue;
        }
        bool keep_ties = c > state.cut;
        auto kept = [&](u32 bits) -> u32 {
            u32 key = key_of(bits, is_signed);
            return key > state.key || (key == state.key && keep_ties);
        };
        if (stretch.whole) {
            uint4 words[LOADS];
            stretch.load(words);
#pragma unroll
            for (u32 j = 0; j < LOADS; ++j) {
                uint4 w = words[j];
                ((u32*)stretch.mask)[j * THREADS + threadIdx.x] =
                    kept(w.x) | kept(w.y) << 8 | kept(w.z) << 16 | kept(w.w) << 24;
            }
        } else {
            for (u32 i = threadIdx.x; i < stretch.size; i += THREADS) stretch.mask[i] = kept(stretch.scores[i]);
        }
    }
}

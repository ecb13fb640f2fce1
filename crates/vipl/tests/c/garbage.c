/* Random descriptors: regardless of its contents, each completes once and in order, without other effects. */
#include "test.h"

static VIP_UINT64 state;

static VIP_UINT32 chance(void) {
    state = state * (((VIP_UINT64)0x5851f42du << 32) | 0x4c957f2du) + 0x14057b7eu;
    return (VIP_UINT32)(state >> 33);
}

/* Whether the current descriptor may be invalid. */
static int spoiled;

/* Returns the correct word, one close to it, or a random one. */
static VIP_UINT32 word(VIP_UINT32 right) {
    if (!spoiled)
        return right;
    switch (chance() % 6) {
    case 0:
        return chance();
    case 1:
        return right + chance() % 5 - 2;
    case 2:
        return chance() % 3 - 1;
    default:
        return right;
    }
}

static VIP_DESCRIPTOR *of_chance(Side *side, Side *other, int n, int is_send) {
    VIP_DESCRIPTOR *d = blank(side, n);
    VIP_DESCRIPTOR_SEGMENT *segments = d->DS;
    VIP_UINT16 count = (VIP_UINT16)(1 + chance() % 13);
    VIP_UINT32 sum = 0, operation = is_send && chance() % 2 ? chance() % 3 : 0;
    int i;
    spoiled = chance() % 3 == 0;
    d->CS.Control = (VIP_UINT16)word(operation | (chance() % 2) << 3);
    for (i = 0; i < count; i++) {
        Side *whose = i == 0 && (d->CS.Control & VIP_CONTROL_OP_MASK) ? other : side;
        VIP_UINT32 length = word(i == 0 && whose == other ? 0 : chance() % 300);
        segments[i].Local.Data.AddressBits = (VIP_UINT64)(uintptr_t)(whose->data + 4096 + chance() % 4096);
        if (spoiled && chance() % 8 == 0)
            segments[i].Local.Data.AddressBits ^= (VIP_UINT64)1 << (chance() % 64);
        segments[i].Local.Handle = word(whose->memory);
        segments[i].Local.Length = length;
        sum += whose == other ? 0 : length;
    }
    d->CS.SegCount = (VIP_UINT16)word(count);
    d->CS.Length = word(sum);
    d->CS.ImmediateData = chance();
    d->CS.Reserved = word(0);
    d->CS.Next.AddressBits = chance();
    return d;
}

static void random_descriptors_complete_once_and_in_order(void) {
    int i, round;
    EACH_LEVEL(i) {
        Pair pair;
        unsigned long errors = 0, good = 0;
        pair_open(&pair, LEVELS[i]);
        for (round = 0; round < 1500; round++) {
            VIP_DESCRIPTOR *posted[2][8], *done;
            int counts[2] = {0, 0}, side, k;
            state = (VIP_UINT64)round * 7919 + (VIP_UINT64)i;
            for (side = 0; side < 2; side++) {
                Side *mine = side ? &pair.there : &pair.here, *other = side ? &pair.here : &pair.there;
                VIP_VI_HANDLE vi = side ? pair.far_vi : pair.near_vi;
                for (k = 0; k < 8; k++) {
                    VIP_DESCRIPTOR *d = of_chance(mine, other, k, k % 2);
                    /* Half are receives and half are sends; segments beyond the descriptor's memory are refused. */
                    VIP_RETURN answer = k % 2 ? VipPostSend(vi, d, mine->memory) : VipPostRecv(vi, d, mine->memory);
                    if (answer == VIP_SUCCESS)
                        posted[side][counts[side]++] = d;
                    else
                        CHECK(answer == VIP_INVALID_PARAMETER);
                }
            }
            OK(VipDisconnect(pair.near_vi));
            becomes(pair.far_vi, VIP_STATE_ERROR);
            OK(VipDisconnect(pair.far_vi));
            for (side = 0; side < 2; side++) {
                VIP_VI_HANDLE vi = side ? pair.far_vi : pair.near_vi;
                for (k = 0; k < counts[side]; k++) {
                    VIP_DESCRIPTOR *d = posted[side][k];
                    char *block = side ? pair.there.block : pair.here.block;
                    int is_send = (int)(((char *)d - block) / DESCRIPTOR_BYTES) % 2;
                    VIP_RETURN answer = is_send ? VipSendDone(vi, &done) : VipRecvDone(vi, &done);
                    CHECK(answer == VIP_SUCCESS || answer == VIP_DESCRIPTOR_ERROR);
                    CHECK(done == d && (d->CS.Status & VIP_STATUS_DONE));
                    EQUAL((d->CS.Status & VIP_STATUS_ERROR_MASK) != 0, answer == VIP_DESCRIPTOR_ERROR);
                    EQUAL(d->CS.Status & VIP_STATUS_RESERVED, 0);
                    errors += answer == VIP_DESCRIPTOR_ERROR;
                    good += answer == VIP_SUCCESS;
                }
                EQUAL(VipSendDone(vi, &done), VIP_NOT_DONE);
                EQUAL(VipRecvDone(vi, &done), VIP_NOT_DONE);
            }
            join(&pair.here, pair.near_vi, &pair.there, pair.far_vi);
        }
        /* A reliable connection ends with the first error, which flushes the descriptors in progress. */
        CHECK(errors > 1000 && good > (LEVELS[i] == VIP_SERVICE_UNRELIABLE ? 1000u : 0u));
        pair_close(&pair);
    }
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(random_descriptors_complete_once_and_in_order);
    return test_end();
}

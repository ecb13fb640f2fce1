/*
 * vipl_kiban.h: kiban's extensions of vipl.h: waiting policies.
 *
 * A program can wait for a message by polling (low latency, but the CPU is busy) or by an interrupt (the CPU is free,
 * but each wake-up costs time). Murayama, Ochiai and Yamaguchi ("Optimising the communication library on VIA", 2000)
 * combine the two: poll for a fixed time, then wait for an interrupt. Every queue here has such a policy, or one that
 * adapts the polling time itself. docs/waiting.md compares them.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef KIBAN_VIPL_KIBAN_H
#define KIBAN_VIPL_KIBAN_H 1

#include "vipl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    VIP_WAIT_ADAPTIVE = 0,  /* adapts the polling time to the arrivals; the default */
    VIP_WAIT_POLL = 1,      /* polls until a message arrives */
    VIP_WAIT_INTERRUPT = 2, /* sleeps without polling */
    VIP_WAIT_HYBRID = 3     /* polls for SpinMicroseconds, then sleeps */
} VIP_WAIT_POLICY;

/* Sets the policy that VipSendWait and VipRecvWait use for a VI. SpinMicroseconds is used only for VIP_WAIT_HYBRID.
 * Returns VIP_SUCCESS or VIP_INVALID_PARAMETER (invalid VI or policy). */
VIP_RETURN VipSetViWait(IN VIP_VI_HANDLE ViHandle, IN VIP_WAIT_POLICY Policy, IN VIP_ULONG SpinMicroseconds);

/* Sets the policy that VipCQWait uses for a completion queue; otherwise like VipSetViWait. */
VIP_RETURN VipSetCQWait(IN VIP_CQ_HANDLE CQHandle, IN VIP_WAIT_POLICY Policy, IN VIP_ULONG SpinMicroseconds);

/* Like VipRecvWait, with a policy for this one call: hybrid (poll for SpinMicroseconds, then sleep), or adaptive.
 * Timeout is in milliseconds and counts from the call. Returns the codes of VipRecvWait. */
VIP_RETURN VipRecvWaitHybrid(IN VIP_VI_HANDLE ViHandle, IN VIP_ULONG SpinMicroseconds, IN VIP_ULONG Timeout,
                             OUT VIP_DESCRIPTOR **DescriptorPtr);
VIP_RETURN VipRecvWaitAdaptive(IN VIP_VI_HANDLE ViHandle, IN VIP_ULONG Timeout, OUT VIP_DESCRIPTOR **DescriptorPtr);

/* Statistics of waiting; times in nanoseconds. 88 bytes. */
typedef struct _VIP_WAIT_REPORT {
    VIP_UINT64 Waits;          /*  0: successful waits; completions available at once are not counted */
    VIP_UINT64 SpinHits;       /*  8: of these, ended while polling */
    VIP_UINT64 Blocks;         /* 16: sleeps until a wake-up */
    VIP_UINT64 TimedSleeps;    /* 24: sleeps until a predicted arrival */
    VIP_UINT64 Disturbances;   /* 32: preemptions while polling */
    VIP_UINT64 SpunNs;         /* 40: time spent polling */
    VIP_UINT64 CostNs;         /* 48: cost, by the formula of docs/waiting.md */
    VIP_UINT64 OptimumNs;      /* 56: cost of the optimal policy with known arrivals */
    VIP_UINT64 BlockCostNs;    /* 64: measured cost of one sleep */
    VIP_UINT64 SpinNs;         /* 72: polling time; all bits set: no limit; 0: none, or adaptive */
    VIP_WAIT_POLICY Policy;    /* 80: in force */
    VIP_UINT32 Reserved;       /* 84: 0 */
} VIP_WAIT_REPORT;

VIP_LAYOUT_(wait_report, sizeof(VIP_WAIT_REPORT) == 88);

/* Returns statistics of a VI's receive queue (RecvQueue not 0) or send queue.
 * Returns VIP_SUCCESS or VIP_INVALID_PARAMETER. */
VIP_RETURN VipQueryViWait(IN VIP_VI_HANDLE ViHandle, IN VIP_BOOLEAN RecvQueue, OUT VIP_WAIT_REPORT *Report);

/* Returns the statistics of a completion queue. */
VIP_RETURN VipQueryCQWait(IN VIP_CQ_HANDLE CQHandle, OUT VIP_WAIT_REPORT *Report);

#ifdef __cplusplus
}
#endif

#endif /* KIBAN_VIPL_KIBAN_H */

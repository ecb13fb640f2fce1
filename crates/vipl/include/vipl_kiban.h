/*
 * vipl_kiban.h: what kiban adds to vipl.h: how to wait.
 *
 * A program learns of a message by polling (quick, but the processor is busy all the while) or by an interrupt (the
 * processor is free, but each wake-up costs). Murayama, Ochiai and Yamaguchi ("Optimising the communication library on
 * VIA", 2000) join the two: poll for a set time, and when it passes without a message wait for an interrupt. Here
 * this is a policy of every queue, and so is one that sets its time itself. docs/waiting.md compares them.
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
    VIP_WAIT_ADAPTIVE = 0,  /* learns from the arrivals when polling pays; how every queue begins */
    VIP_WAIT_POLL = 1,      /* polls until something comes */
    VIP_WAIT_INTERRUPT = 2, /* sleeps at once */
    VIP_WAIT_HYBRID = 3     /* polls for SpinMicroseconds, then sleeps */
} VIP_WAIT_POLICY;

/* Sets how VipSendWait and VipRecvWait of a VI wait from now on. SpinMicroseconds is looked at for VIP_WAIT_HYBRID.
 * VIP_SUCCESS; VIP_INVALID_PARAMETER: no such VI or policy. */
VIP_RETURN VipSetViWait(IN VIP_VI_HANDLE ViHandle, IN VIP_WAIT_POLICY Policy, IN VIP_ULONG SpinMicroseconds);

/* The same for VipCQWait of a completion queue. */
VIP_RETURN VipSetCQWait(IN VIP_CQ_HANDLE CQHandle, IN VIP_WAIT_POLICY Policy, IN VIP_ULONG SpinMicroseconds);

/* VipRecvWait with a policy for this one call: the paper's (poll for SpinMicroseconds, then sleep), and the one that
 * sets its time itself. Timeout is in milliseconds and counts from the call. Codes as VipRecvWait. */
VIP_RETURN VipRecvWaitHybrid(IN VIP_VI_HANDLE ViHandle, IN VIP_ULONG SpinMicroseconds, IN VIP_ULONG Timeout,
                             OUT VIP_DESCRIPTOR **DescriptorPtr);
VIP_RETURN VipRecvWaitAdaptive(IN VIP_VI_HANDLE ViHandle, IN VIP_ULONG Timeout, OUT VIP_DESCRIPTOR **DescriptorPtr);

/* What waiting has cost so far; times in nanoseconds. 88 bytes. */
typedef struct _VIP_WAIT_REPORT {
    VIP_UINT64 Waits;          /*  0: waits that ended with something; what is there at once is not waited for */
    VIP_UINT64 SpinHits;       /*  8: of these, answered while polling */
    VIP_UINT64 Blocks;         /* 16: times it slept until it was woken */
    VIP_UINT64 TimedSleeps;    /* 24: times it slept up to a predicted moment */
    VIP_UINT64 Disturbances;   /* 32: times the processor was taken away while polling */
    VIP_UINT64 SpunNs;         /* 40: time spent polling */
    VIP_UINT64 CostNs;         /* 48: cost paid, by the formula of docs/waiting.md */
    VIP_UINT64 OptimumNs;      /* 56: cost of one who knew the arrivals */
    VIP_UINT64 BlockCostNs;    /* 64: what one sleep costs here, as measured */
    VIP_UINT64 SpinNs;         /* 72: how long it polls as set; all ones: for ever; 0: not, or as it sees fit */
    VIP_WAIT_POLICY Policy;    /* 80: in force */
    VIP_UINT32 Reserved;       /* 84: 0 */
} VIP_WAIT_REPORT;

VIP_LAYOUT_(wait_report, sizeof(VIP_WAIT_REPORT) == 88);

/* Tells it of a VI's receive queue (RecvQueue not 0) or send queue. VIP_SUCCESS; VIP_INVALID_PARAMETER. */
VIP_RETURN VipQueryViWait(IN VIP_VI_HANDLE ViHandle, IN VIP_BOOLEAN RecvQueue, OUT VIP_WAIT_REPORT *Report);

/* Tells it of a completion queue. */
VIP_RETURN VipQueryCQWait(IN VIP_CQ_HANDLE CQHandle, OUT VIP_WAIT_REPORT *Report);

#ifdef __cplusplus
}
#endif

#endif /* KIBAN_VIPL_KIBAN_H */

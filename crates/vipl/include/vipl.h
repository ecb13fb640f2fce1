/*
 * vipl.h: the VI Provider Library, the C interface of the Virtual Interface Architecture, as kiban provides it.
 *
 * A program opens a NIC, registers memory, creates VIs (endpoints with a send queue and a receive queue), connects them
 * in pairs, posts descriptors and collects them when the NIC is done:
 *
 *     VipOpenNic -> VipCreatePtag -> VipRegisterMem -> VipCreateVi -> VipPostRecv
 *       -> VipConnectRequest (client) or VipConnectWait + VipConnectAccept (server)
 *       -> VipPostSend -> VipSendWait, VipRecvWait -> VipDisconnect -> VipDestroyVi -> VipCloseNic
 *
 * Link with -lvipl. Names, values and layouts are those of the VI Architecture Specification 1.0 (1997) and of the
 * VI Architecture Developer's Guide 1.0 (1998); the comments, and what is marked "kiban", are kiban's. Extensions
 * (waiting policies, wait reports) are in vipl_kiban.h. Examples: examples/c. How kiban differs: docs/vipl.md.
 *
 * All calls are thread-safe. A call returns VIP_INVALID_PARAMETER for a handle that is invalid or whose object was
 * destroyed, and for a null pointer where it must store a result.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef KIBAN_VIPL_H
#define KIBAN_VIPL_H 1

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------------------------
 * Plain types
 * ------------------------------------------------------------------------------------------------------------------ */

/* Old programs mark parameters with these words. */
#ifndef IN
#define IN
#endif
#ifndef OUT
#define OUT
#endif

typedef void *VIP_PVOID;
typedef int VIP_BOOLEAN;
typedef char VIP_CHAR;
typedef unsigned char VIP_UCHAR;
typedef short VIP_SHORT;
typedef unsigned short VIP_USHORT;
typedef long VIP_LONG;
typedef unsigned long VIP_ULONG; /* as wide as the machine's long: 8 bytes on 64-bit Linux */
typedef uint64_t VIP_UINT64;
typedef uint32_t VIP_UINT32;
typedef uint16_t VIP_UINT16;
typedef uint8_t VIP_UINT8;

#define VIP_TRUE (1)
#define VIP_FALSE (0)

/* A timeout that never expires. A VIP_ULONG with all bits set means the same. */
#define VIP_INFINITE ((VIP_ULONG)0xffffffffUL)

/* Handles are opaque numbers, not pointers: never dereference one. */
typedef VIP_PVOID VIP_NIC_HANDLE;
typedef VIP_PVOID VIP_VI_HANDLE;
typedef VIP_PVOID VIP_CQ_HANDLE;
typedef VIP_PVOID VIP_PROTECTION_HANDLE;
typedef VIP_PVOID VIP_CONN_HANDLE;
typedef VIP_PVOID VIP_EVENT_HANDLE; /* for Giganet's tag calls */
typedef VIP_UINT32 VIP_MEM_HANDLE;  /* of registered memory; never 0 */

/* Quality of service. The architecture does not define its meaning; two VIs connect only if their values are equal. */
typedef VIP_PVOID VIP_QOS;

/* ------------------------------------------------------------------------------------------------------------------
 * Return codes
 * ------------------------------------------------------------------------------------------------------------------ */

typedef enum {
    VIP_SUCCESS = 0,                   /* done */
    VIP_NOT_DONE = 1,                  /* nothing has completed yet */
    VIP_INVALID_PARAMETER = 2,         /* invalid handle, pointer, length or address */
    VIP_ERROR_RESOURCE = 3,            /* a limit of the NIC is reached, or the object is in use */
    VIP_TIMEOUT = 4,                   /* the timeout expired */
    VIP_REJECT = 5,                    /* the peer rejected the connection */
    VIP_INVALID_RELIABILITY_LEVEL = 6, /* not supported by this NIC, or different from the peer's */
    VIP_INVALID_MTU = 7,               /* MaxTransferSize exceeds the NIC's, or differs from the peer's */
    VIP_INVALID_QOS = 8,               /* not supported, or different from the peer's */
    VIP_INVALID_PTAG = 9,              /* not a protection tag of this NIC */
    VIP_INVALID_RDMAREAD = 10,         /* the reliability level does not support RDMA Read */
    VIP_DESCRIPTOR_ERROR = 11,         /* a descriptor completed with an error in its Status */
    VIP_INVALID_STATE = 12,            /* the call is not allowed in the VI's state */
    VIP_ERROR_NAMESERVICE = 13,        /* name service not started, or unknown name or address */
    VIP_NO_MATCH = 14,                 /* no server waits at this discriminator */
    VIP_NOT_REACHABLE = 15,            /* Giganet: host unreachable, or lost before it answered */
    VIP_ERROR_NOT_SUPPORTED = 16       /* Giganet: not supported by this provider */
} VIP_RETURN;

/* ------------------------------------------------------------------------------------------------------------------
 * Descriptors: work requests. Their memory must be registered and aligned to 64 bytes; it belongs to the NIC from
 * VipPost... until Done, Wait or Notify returns the descriptor. A descriptor has one control segment, for RDMA one
 * address segment, then data segments. The layout is little-endian and part of the architecture; it is checked below.
 * ------------------------------------------------------------------------------------------------------------------ */

#define VIP_DESCRIPTOR_ALIGNMENT 64

struct _VIP_DESCRIPTOR;

/* A 64-bit address, independent of the size of pointers. If pointers are shorter, set the other bits to zero. */
typedef union {
    VIP_UINT64 AddressBits;
    VIP_PVOID Address;
    struct _VIP_DESCRIPTOR *Descriptor;
} VIP_PVOID64;

/* Control segment, 32 bytes. The program sets SegCount, Control, Reserved = 0, ImmediateData and Length; the NIC
 * sets Status and Length, and ImmediateData of a receive. Next and NextHandle belong to the NIC while it is posted. */
typedef struct {
    VIP_PVOID64 Next;          /*  0: link of the queue (kiban does not use it) */
    VIP_MEM_HANDLE NextHandle; /*  8: memory handle of the next descriptor */
    VIP_UINT16 SegCount;       /* 12: number of segments that follow, with the address segment */
    VIP_UINT16 Control;        /* 14: VIP_CONTROL_... */
    VIP_UINT32 Reserved;       /* 16: zero */
    VIP_UINT32 ImmediateData;  /* 20: 4 bytes sent with the data, if VIP_CONTROL_IMMEDIATE */
    VIP_UINT32 Length;         /* 24: in: sum of the data segments' lengths; out: bytes transferred */
    VIP_UINT32 Status;         /* 28: out: VIP_STATUS_...; set it to 0 before posting */
} VIP_CONTROL_SEGMENT;

/* Address segment, 16 bytes: a range in the peer's memory. Used only as the first segment of an RDMA descriptor. */
typedef struct {
    VIP_PVOID64 Data;      /*  0: address at the peer */
    VIP_MEM_HANDLE Handle; /*  8: its memory handle at the peer */
    VIP_UINT32 Reserved;   /* 12: zero */
} VIP_ADDRESS_SEGMENT;

/* Data segment, 16 bytes: local memory within one registered region. */
typedef struct {
    VIP_PVOID64 Data;      /*  0: address */
    VIP_MEM_HANDLE Handle; /*  8: its memory handle */
    VIP_UINT32 Length;     /* 12: bytes */
} VIP_DATA_SEGMENT;

typedef union {
    VIP_ADDRESS_SEGMENT Remote;
    VIP_DATA_SEGMENT Local;
} VIP_DESCRIPTOR_SEGMENT;

#if defined(__GNUC__)
#define VIP_ANONYMOUS_ __extension__
#else
#define VIP_ANONYMOUS_
#endif

/* A descriptor with room for two segments. Further segments follow directly behind it: the NIC reads SegCount of
 * them. The parts have two names each, because the original headers differ: CS and DS (Intel), Control and Data
 * (Giganet 1.0). */
VIP_ANONYMOUS_ typedef struct _VIP_DESCRIPTOR {
    union {
        VIP_CONTROL_SEGMENT CS;
        VIP_CONTROL_SEGMENT Control;
    };
    union {
        VIP_DESCRIPTOR_SEGMENT DS[2];
        VIP_DATA_SEGMENT Data[2];
    };
} VIP_DESCRIPTOR;

/* VIP_CONTROL_SEGMENT.Control */
#define VIP_CONTROL_OP_SENDRECV 0x0000  /* a send, or any receive */
#define VIP_CONTROL_OP_RDMAWRITE 0x0001 /* to the peer's memory; uses a receive of the peer only with immediate data */
#define VIP_CONTROL_OP_RDMAREAD 0x0002  /* from the peer's memory */
#define VIP_CONTROL_OP_RESERVED 0x0003
#define VIP_CONTROL_OP_MASK 0x0003
#define VIP_CONTROL_IMMEDIATE 0x0004 /* sends ImmediateData, which uses one receive of the peer */
#define VIP_CONTROL_QFENCE 0x0008    /* start only when all earlier RDMA Reads of this VI have completed */
#define VIP_CONTROL_RESERVED 0xfff0  /* zero */

/* VIP_CONTROL_SEGMENT.Status */
#define VIP_STATUS_DONE 0x00000001               /* the NIC has finished with the descriptor */
#define VIP_STATUS_FORMAT_ERROR 0x00000002       /* reserved bits, invalid operation or segment count */
#define VIP_STATUS_PROTECTION_ERROR 0x00000004   /* a data segment outside registered memory, or with another tag */
#define VIP_STATUS_LENGTH_ERROR 0x00000008       /* longer than allowed or than posted, or Length is not the sum */
#define VIP_STATUS_PARTIAL_ERROR 0x00000010      /* only part of the message arrived */
#define VIP_STATUS_DESC_FLUSHED_ERROR 0x00000020 /* not completed: the VI failed or was disconnected */
#define VIP_STATUS_TRANSPORT_ERROR 0x00000040    /* the network could not deliver it */
#define VIP_STATUS_RDMA_PROT_ERROR 0x00000080    /* not allowed by the peer's VI or memory */
#define VIP_STATUS_REMOTE_DESC_ERROR 0x00000100  /* the peer's receive was missing, too short or invalid */
#define VIP_STATUS_ERROR_MASK 0x000001fe

#define VIP_STATUS_OP_SEND 0x00000000
#define VIP_STATUS_OP_RECEIVE 0x00010000
#define VIP_STATUS_OP_RDMA_WRITE 0x00020000
#define VIP_STATUS_OP_REMOTE_RDMA_WRITE 0x00030000 /* a receive used by an RDMA Write with immediate data */
#define VIP_STATUS_OP_RDMA_READ 0x00040000
#define VIP_STATUS_OP_MASK 0x00070000

#define VIP_STATUS_IMMEDIATE 0x00080000 /* ImmediateData holds the sender's value */
#define VIP_STATUS_RESERVED 0xfff0fe00

/* ------------------------------------------------------------------------------------------------------------------
 * Addresses and attributes
 * ------------------------------------------------------------------------------------------------------------------ */

/* The address of a VI: HostAddressLen bytes of host address, then DiscriminatorLen bytes that distinguish the
 * endpoints on a host, like a port. Allocate offsetof(VIP_NET_ADDRESS, HostAddress) + both lengths; if a call
 * *returns* an address, allocate room for NicAddressLen + MaxDiscriminatorLen bytes. */
typedef struct _VIP_NET_ADDRESS {
    VIP_UINT16 HostAddressLen;
    VIP_UINT16 DiscriminatorLen;
    VIP_UINT8 HostAddress[1];
} VIP_NET_ADDRESS;

/* Reliability levels, one bit each, so that a NIC can report the levels that it supports. */
typedef VIP_USHORT VIP_RELIABILITY_LEVEL;
#define VIP_SERVICE_UNRELIABLE 0x01         /* at most once; a send completes when it was sent; errors keep the VI */
#define VIP_SERVICE_RELIABLE_DELIVERY 0x02  /* once and in order, or the connection fails; completes when sent */
#define VIP_SERVICE_RELIABLE_RECEPTION 0x04 /* the same; completes only when the data is in the peer's memory */

/* The result of VipQueryNic. It does not change after VipOpenNic. */
typedef struct _VIP_NIC_ATTRIBUTES {
    VIP_CHAR Name[64];                             /* the device, terminated by NUL */
    VIP_ULONG HardwareVersion;                     /* 0: there is no hardware */
    VIP_ULONG ProviderVersion;                     /* major * 65536 + minor */
    VIP_UINT16 NicAddressLen;                      /* bytes of a host address */
    const VIP_UINT8 *LocalNicAddress;              /* this NIC's address; valid while it is open */
    VIP_BOOLEAN ThreadSafe;                        /* VIP_TRUE */
    VIP_UINT16 MaxDiscriminatorLen;                /* bytes */
    VIP_ULONG MaxRegisterBytes;                    /* all regions together */
    VIP_ULONG MaxRegisterRegions;                  /* regions */
    VIP_ULONG MaxRegisterBlockBytes;               /* one region */
    VIP_ULONG MaxVI;                               /* VIs */
    VIP_ULONG MaxDescriptorsPerQueue;              /* posted and not yet collected */
    VIP_ULONG MaxSegmentsPerDesc;                  /* data segments */
    VIP_ULONG MaxCQ;                               /* completion queues */
    VIP_ULONG MaxCQEntries;                        /* entries of one */
    VIP_ULONG MaxTransferSize;                     /* bytes of one message */
    VIP_ULONG NativeMTU;                           /* bytes of one packet on the link */
    VIP_ULONG MaxPtags;                            /* protection tags */
    VIP_RELIABILITY_LEVEL ReliabilityLevelSupport; /* levels a VI may have */
    VIP_RELIABILITY_LEVEL RDMAReadSupport;         /* levels with RDMA Read */
} VIP_NIC_ATTRIBUTES;

/* Attributes of a VI. Two VIs connect only if level, MaxTransferSize and QoS are equal. */
typedef struct _VIP_VI_ATTRIBUTES {
    VIP_RELIABILITY_LEVEL ReliabilityLevel; /* one bit */
    VIP_ULONG MaxTransferSize;              /* bytes of one message */
    VIP_QOS QoS;                            /* NULL: unspecified */
    VIP_PROTECTION_HANDLE Ptag;             /* which memory it may access; NULL: the NIC's first tag (as on cLAN) */
    VIP_BOOLEAN EnableRdmaWrite;            /* the peer may write through it */
    VIP_BOOLEAN EnableRdmaRead;             /* the peer may read through it */
} VIP_VI_ATTRIBUTES;

/* Attributes of registered memory. */
typedef struct _VIP_MEM_ATTRIBUTES {
    VIP_PROTECTION_HANDLE Ptag;  /* which VIs may access it; NULL: as above */
    VIP_BOOLEAN EnableRdmaWrite; /* peers may write to it */
    VIP_BOOLEAN EnableRdmaRead;  /* peers may read from it */
} VIP_MEM_ATTRIBUTES;

typedef enum {
    VIP_STATE_IDLE = 0,            /* not connected; receives may be posted */
    VIP_STATE_CONNECTED = 1,       /* descriptors are processed */
    VIP_STATE_CONNECT_PENDING = 2, /* a connection is being set up */
    VIP_STATE_ERROR = 3            /* failed: everything posted is flushed; call VipDisconnect to leave */
} VIP_VI_STATE;

/* ------------------------------------------------------------------------------------------------------------------
 * NIC
 * ------------------------------------------------------------------------------------------------------------------ */

/* Opens a NIC. kiban's devices:
 *     loopback                 VIs of this NIC connect only with each other
 *     shm, shm:NAME            processes of one user on this host, through shared memory; NAME (up to 16 bytes) is the
 *                              address for others to connect to; a random one by default
 *     udp, udp:PORT, udp:ADDRESS, udp:ADDRESS:PORT
 *                              other hosts, over UDP; without a port, udp uses 4808, or a free port if that is taken;
 *                              write IPv6 with a port as [ADDRESS]:PORT
 *     board:NAME@ADDRESS, board:NAME@ADDRESS:PORT, board@ADDRESS
 *                              other hosts, over the TCP of the board NAME that runs on this host, or of the only
 *                              board; the default port is 4808; if that is taken, the NIC can only connect
 * An empty or unknown name ("nic0", "/dev/clanvi0") means the device that KIBAN_VI_DEVICE names, or shm. A forked child
 * must not use its parent's NIC; it opens its own.
 * Returns VIP_SUCCESS, VIP_INVALID_PARAMETER (a null pointer, or an invalid name) or VIP_ERROR_RESOURCE (no memory,
 * or the address is in use). */
VIP_RETURN VipOpenNic(IN const VIP_CHAR *DeviceName, OUT VIP_NIC_HANDLE *NicHandle);

/* Closes a NIC and destroys its objects; peers lose their connections; waiting calls return VIP_INVALID_PARAMETER.
 * Returns VIP_SUCCESS or VIP_INVALID_PARAMETER. */
VIP_RETURN VipCloseNic(IN VIP_NIC_HANDLE NicHandle);

/* Returns the limits and the address of a NIC.
 * Returns VIP_SUCCESS or VIP_INVALID_PARAMETER. */
VIP_RETURN VipQueryNic(IN VIP_NIC_HANDLE NicHandle, OUT VIP_NIC_ATTRIBUTES *NicAttribs);

/* ------------------------------------------------------------------------------------------------------------------
 * Protection tags and memory
 * ------------------------------------------------------------------------------------------------------------------ */

/* Creates a protection tag: a VI may access memory that has the same tag.
 * Returns VIP_SUCCESS, VIP_INVALID_PARAMETER or VIP_ERROR_RESOURCE (MaxPtags are in use). */
VIP_RETURN VipCreatePtag(IN VIP_NIC_HANDLE NicHandle, OUT VIP_PROTECTION_HANDLE *Ptag);

/* Destroys a protection tag.
 * Returns VIP_SUCCESS, VIP_INVALID_PARAMETER (the tag does not belong to this NIC) or VIP_ERROR_RESOURCE (a VI or
 * memory still uses it). */
VIP_RETURN VipDestroyPtag(IN VIP_NIC_HANDLE NicHandle, IN VIP_PROTECTION_HANDLE Ptag);

/* Registers Length bytes at VirtualAddress and returns their handle. Regions may overlap. The memory must stay valid
 * until VipDeregisterMem. If MemAttribs is NULL, the memory gets the NIC's first tag and allows no RDMA (as on cLAN).
 * Returns VIP_SUCCESS, VIP_INVALID_PARAMETER (null pointer, zero length, or a range beyond the address space),
 * VIP_INVALID_PTAG or VIP_ERROR_RESOURCE (MaxRegisterRegions, MaxRegisterBytes or MaxRegisterBlockBytes exceeded). */
VIP_RETURN VipRegisterMem(IN VIP_NIC_HANDLE NicHandle, IN VIP_PVOID VirtualAddress, IN VIP_ULONG Length,
                          IN VIP_MEM_ATTRIBUTES *MemAttribs, OUT VIP_MEM_HANDLE *MemoryHandle);

/* Deregisters memory. Descriptors that still refer to it fail with a protection error. VirtualAddress must be the one
 * given to VipRegisterMem.
 * Returns VIP_SUCCESS or VIP_INVALID_PARAMETER. */
VIP_RETURN VipDeregisterMem(IN VIP_NIC_HANDLE NicHandle, IN VIP_PVOID VirtualAddress, IN VIP_MEM_HANDLE MemoryHandle);

/* Returns the attributes of the region that contains Address.
 * Returns VIP_SUCCESS or VIP_INVALID_PARAMETER. */
VIP_RETURN VipQueryMem(IN VIP_NIC_HANDLE NicHandle, IN VIP_PVOID Address, IN VIP_MEM_HANDLE MemHandle,
                       OUT VIP_MEM_ATTRIBUTES *MemAttribs);

/* Changes the attributes of a region from the next access on.
 * Returns VIP_SUCCESS, VIP_INVALID_PARAMETER or VIP_INVALID_PTAG. */
VIP_RETURN VipSetMemAttributes(IN VIP_NIC_HANDLE NicHandle, IN VIP_PVOID Address, IN VIP_MEM_HANDLE MemHandle,
                               IN VIP_MEM_ATTRIBUTES *MemAttribs);

/* ------------------------------------------------------------------------------------------------------------------
 * VIs
 * ------------------------------------------------------------------------------------------------------------------ */

/* Creates a VI in VIP_STATE_IDLE. A queue with a completion queue reports its completions there, and VipSendWait or
 * VipRecvWait cannot be used for it. A MaxTransferSize of 0 selects the NIC's maximum.
 * Returns VIP_SUCCESS, VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE (MaxVI exceeded), VIP_INVALID_RELIABILITY_LEVEL,
 * VIP_INVALID_MTU, VIP_INVALID_QOS, VIP_INVALID_PTAG or VIP_INVALID_RDMAREAD. */
VIP_RETURN VipCreateVi(IN VIP_NIC_HANDLE NicHandle, IN VIP_VI_ATTRIBUTES *ViAttribs, IN VIP_CQ_HANDLE SendCQHandle,
                       IN VIP_CQ_HANDLE RecvCQHandle, OUT VIP_VI_HANDLE *ViHandle);

/* Destroys a VI.
 * Returns VIP_SUCCESS, VIP_INVALID_PARAMETER, VIP_INVALID_STATE (not idle: call VipDisconnect first) or
 * VIP_ERROR_RESOURCE (some descriptors have not been collected). */
VIP_RETURN VipDestroyVi(IN VIP_VI_HANDLE ViHandle);

/* Returns the state and the attributes, and whether each queue is free of posted and uncollected descriptors.
 * Returns VIP_SUCCESS or VIP_INVALID_PARAMETER. */
VIP_RETURN VipQueryVi(IN VIP_VI_HANDLE ViHandle, OUT VIP_VI_STATE *State, OUT VIP_VI_ATTRIBUTES *ViAttribs,
                      OUT VIP_BOOLEAN *ViSendQEmpty, OUT VIP_BOOLEAN *ViRecvQEmpty);

/* Changes the attributes of an idle VI with empty queues. Returns the codes of VipCreateVi or VIP_INVALID_STATE. */
VIP_RETURN VipSetViAttributes(IN VIP_VI_HANDLE ViHandle, IN VIP_VI_ATTRIBUTES *ViAttribs);

/* ------------------------------------------------------------------------------------------------------------------
 * Work
 * ------------------------------------------------------------------------------------------------------------------ */

/* Posts a send, RDMA Write or RDMA Read; MemoryHandle is the handle of the memory that contains the descriptor. An
 * invalid descriptor completes in order, with an error in Status. In VIP_STATE_ERROR, the descriptor is flushed.
 * Returns VIP_SUCCESS, VIP_INVALID_PARAMETER (invalid VI, or the descriptor is unaligned, not in memory registered
 * with the VI's tag, or already posted), VIP_INVALID_STATE (not connected) or VIP_ERROR_RESOURCE
 * (MaxDescriptorsPerQueue exceeded). */
VIP_RETURN VipPostSend(IN VIP_VI_HANDLE ViHandle, IN VIP_DESCRIPTOR *DescriptorPtr, IN VIP_MEM_HANDLE MemoryHandle);

/* Posts a receive, before or after connecting. In VIP_STATE_ERROR, it is flushed. Returns the codes of VipPostSend
 * except VIP_INVALID_STATE. Length in the control segment is ignored. */
VIP_RETURN VipPostRecv(IN VIP_VI_HANDLE ViHandle, IN VIP_DESCRIPTOR *DescriptorPtr, IN VIP_MEM_HANDLE MemoryHandle);

/* Collects the oldest descriptor if it has completed, without waiting; otherwise sets *DescriptorPtr to NULL.
 * Returns VIP_SUCCESS, VIP_DESCRIPTOR_ERROR (collected, see Status), VIP_NOT_DONE or VIP_INVALID_PARAMETER. */
VIP_RETURN VipSendDone(IN VIP_VI_HANDLE ViHandle, OUT VIP_DESCRIPTOR **DescriptorPtr);
VIP_RETURN VipRecvDone(IN VIP_VI_HANDLE ViHandle, OUT VIP_DESCRIPTOR **DescriptorPtr);

/* Like VipSendDone and VipRecvDone, but wait up to Timeout milliseconds, using the VI's waiting policy (see
 * vipl_kiban.h; adaptive by default).
 * Returns VIP_SUCCESS, VIP_DESCRIPTOR_ERROR, VIP_TIMEOUT or VIP_INVALID_PARAMETER (for example, if the queue has a
 * completion queue). */
VIP_RETURN VipSendWait(IN VIP_VI_HANDLE ViHandle, IN VIP_ULONG Timeout, OUT VIP_DESCRIPTOR **DescriptorPtr);
VIP_RETURN VipRecvWait(IN VIP_VI_HANDLE ViHandle, IN VIP_ULONG Timeout, OUT VIP_DESCRIPTOR **DescriptorPtr);

/* Called with a collected descriptor, on a thread of the library. It may make any call, including Notify. */
typedef void (*VIP_VI_CALLBACK)(VIP_PVOID Context, VIP_NIC_HANDLE NicHandle, VIP_VI_HANDLE ViHandle,
                                VIP_DESCRIPTOR *DescriptorPtr);

/* Requests one call of Handler, for the next descriptor that completes. Several callbacks may be pending.
 * Returns VIP_SUCCESS, VIP_INVALID_PARAMETER (for example, if the queue has a completion queue) or VIP_ERROR_RESOURCE
 * (too many callbacks). */
VIP_RETURN VipSendNotify(IN VIP_VI_HANDLE ViHandle, IN VIP_PVOID Context, IN VIP_VI_CALLBACK Handler);
VIP_RETURN VipRecvNotify(IN VIP_VI_HANDLE ViHandle, IN VIP_PVOID Context, IN VIP_VI_CALLBACK Handler);

/* ------------------------------------------------------------------------------------------------------------------
 * Completion queues collect the completions of many VIs. An entry identifies the VI and the queue; VipSendDone or
 * VipRecvDone then collects the descriptor.
 * ------------------------------------------------------------------------------------------------------------------ */

/* Creates a completion queue.
 * Returns VIP_SUCCESS, VIP_INVALID_PARAMETER (EntryCount is 0) or VIP_ERROR_RESOURCE (MaxCQ or MaxCQEntries
 * exceeded). */
VIP_RETURN VipCreateCQ(IN VIP_NIC_HANDLE NicHandle, IN VIP_ULONG EntryCount, OUT VIP_CQ_HANDLE *CQHandle);

/* Destroys a completion queue.
 * Returns VIP_SUCCESS, VIP_INVALID_PARAMETER or VIP_ERROR_RESOURCE (a VI still uses it). */
VIP_RETURN VipDestroyCQ(IN VIP_CQ_HANDLE CQHandle);

/* Resizes a completion queue.
 * Returns VIP_SUCCESS, VIP_INVALID_PARAMETER (EntryCount is 0) or VIP_ERROR_RESOURCE (MaxCQEntries exceeded, or fewer
 * entries than it holds). */
VIP_RETURN VipResizeCQ(IN VIP_CQ_HANDLE CQHandle, IN VIP_ULONG EntryCount);

/* Removes and returns the oldest entry.
 * Returns VIP_SUCCESS, VIP_NOT_DONE or VIP_INVALID_PARAMETER. */
VIP_RETURN VipCQDone(IN VIP_CQ_HANDLE CQHandle, OUT VIP_VI_HANDLE *ViHandle, OUT VIP_BOOLEAN *RecvQueue);

/* Like VipCQDone, but waits up to Timeout milliseconds.
 * Returns VIP_SUCCESS, VIP_TIMEOUT or VIP_INVALID_PARAMETER. */
VIP_RETURN VipCQWait(IN VIP_CQ_HANDLE CQHandle, IN VIP_ULONG Timeout, OUT VIP_VI_HANDLE *ViHandle,
                     OUT VIP_BOOLEAN *RecvQueue);

/* Called with an entry, on a thread of the library. */
typedef void (*VIP_CQ_CALLBACK)(VIP_PVOID Context, VIP_NIC_HANDLE NicHandle, VIP_VI_HANDLE ViHandle,
                                VIP_BOOLEAN RecvQueue);

/* Requests one call of Handler, for the next entry.
 * Returns VIP_SUCCESS, VIP_INVALID_PARAMETER or VIP_ERROR_RESOURCE. */
VIP_RETURN VipCQNotify(IN VIP_CQ_HANDLE CQHandle, IN VIP_PVOID Context, IN VIP_CQ_CALLBACK Handler);

/* ------------------------------------------------------------------------------------------------------------------
 * Connections, client and server
 * ------------------------------------------------------------------------------------------------------------------ */

/* Server: waits for a request to the discriminator in LocalAddr (whose host part is ignored). Returns the address and
 * attributes of the client, and a handle to accept or reject the request. After the first call, requests are also
 * queued between calls, until a call times out while no other thread waits. A request stays queued for at most a
 * minute.
 * Returns VIP_SUCCESS, VIP_TIMEOUT, VIP_INVALID_PARAMETER or VIP_ERROR_RESOURCE (too many requests). */
VIP_RETURN VipConnectWait(IN VIP_NIC_HANDLE NicHandle, IN VIP_NET_ADDRESS *LocalAddr, IN VIP_ULONG Timeout,
                          OUT VIP_NET_ADDRESS *RemoteAddr, OUT VIP_VI_ATTRIBUTES *RemoteViAttribs,
                          OUT VIP_CONN_HANDLE *ConnHandle);

/* Server: connects the request to an idle VI. If the attributes differ, the request stays queued.
 * Returns VIP_SUCCESS, VIP_INVALID_PARAMETER, VIP_INVALID_STATE (the VI is not idle), VIP_INVALID_RELIABILITY_LEVEL,
 * VIP_INVALID_MTU, VIP_INVALID_QOS or VIP_TIMEOUT (the client no longer waits). */
VIP_RETURN VipConnectAccept(IN VIP_CONN_HANDLE ConnHandle, IN VIP_VI_HANDLE ViHandle);

/* Server: rejects the request; the client gets VIP_REJECT.
 * Returns VIP_SUCCESS or VIP_INVALID_PARAMETER. */
VIP_RETURN VipConnectReject(IN VIP_CONN_HANDLE ConnHandle);

/* Client: requests a connection and waits up to Timeout milliseconds. The server receives the discriminator in
 * LocalAddr.
 * Returns VIP_SUCCESS, VIP_TIMEOUT (no answer), VIP_REJECT, VIP_NO_MATCH (no server waits at the discriminator),
 * VIP_NOT_REACHABLE (no such host), VIP_INVALID_PARAMETER or VIP_INVALID_STATE (the VI is not idle). */
VIP_RETURN VipConnectRequest(IN VIP_VI_HANDLE ViHandle, IN VIP_NET_ADDRESS *LocalAddr, IN VIP_NET_ADDRESS *RemoteAddr,
                             IN VIP_ULONG Timeout, OUT VIP_VI_ATTRIBUTES *RemoteViAttribs);

/* Ends a connection in any state. Posted descriptors are flushed and can be collected; the VI becomes idle. The
 * peer's VI goes to VIP_STATE_ERROR and reports VIP_ERROR_CONN_LOST.
 * Returns VIP_SUCCESS or VIP_INVALID_PARAMETER. */
VIP_RETURN VipDisconnect(IN VIP_VI_HANDLE ViHandle);

/* ------------------------------------------------------------------------------------------------------------------
 * Peer-to-peer connections: both sides request the connection, with each other's address
 * ------------------------------------------------------------------------------------------------------------------ */

/* Starts a request and returns at once.
 * Returns VIP_SUCCESS, VIP_INVALID_PARAMETER or VIP_INVALID_STATE (the VI is not idle). */
VIP_RETURN VipConnectPeerRequest(IN VIP_VI_HANDLE ViHandle, IN VIP_NET_ADDRESS *LocalAddr,
                                 IN VIP_NET_ADDRESS *RemoteAddr, IN VIP_ULONG Timeout);

/* Returns the result.
 * Returns VIP_SUCCESS (connected), VIP_NOT_DONE, VIP_TIMEOUT (the timeout of VipConnectPeerRequest expired),
 * VIP_REJECT, VIP_INVALID_RELIABILITY_LEVEL, VIP_INVALID_MTU, VIP_INVALID_QOS (the attributes differ),
 * VIP_INVALID_PARAMETER or VIP_INVALID_STATE (there is no request). After codes other than VIP_SUCCESS and
 * VIP_NOT_DONE, the VI is idle. */
VIP_RETURN VipConnectPeerDone(IN VIP_VI_HANDLE ViHandle, OUT VIP_VI_ATTRIBUTES *RemoteViAttribs);

/* Like VipConnectPeerDone, but waits until the request completes or times out. */
VIP_RETURN VipConnectPeerWait(IN VIP_VI_HANDLE ViHandle, OUT VIP_VI_ATTRIBUTES *RemoteViAttribs);

/* ------------------------------------------------------------------------------------------------------------------
 * Name service
 * ------------------------------------------------------------------------------------------------------------------ */

/* Starts the name service of a NIC. NSInitInfo: the path of a hosts file with lines "ADDRESS NAME ...", which takes
 * precedence over the system's resolver; NULL selects the file named by KIBAN_VI_HOSTS, or none if that is unset.
 * Returns VIP_SUCCESS, VIP_INVALID_PARAMETER or VIP_ERROR_NAMESERVICE (the file cannot be read). */
VIP_RETURN VipNSInit(IN VIP_NIC_HANDLE NicHandle, IN VIP_PVOID NSInitInfo);

/* Returns address number NameIndex (counted from 0) of a name. The name is looked up in the hosts file, then parsed
 * as an address in text form (in shared memory, the NAME of a NIC is its address), and then, over UDP and on a board,
 * passed to the system's resolver, with port 4808. Sets HostAddressLen and the host address, but not
 * DiscriminatorLen.
 * Returns VIP_SUCCESS, VIP_ERROR_NAMESERVICE (not started, or no such name or index) or VIP_INVALID_PARAMETER. */
VIP_RETURN VipNSGetHostByName(IN VIP_NIC_HANDLE NicHandle, IN VIP_CHAR *Name, OUT VIP_NET_ADDRESS *Address,
                              IN VIP_ULONG NameIndex);

/* Returns the name of a host address from the hosts file, or else the address as text. On input, *NameLen is the room
 * in bytes; on output, the number of bytes used or needed, including the final NUL.
 * Returns VIP_SUCCESS, VIP_ERROR_RESOURCE (not enough room), VIP_ERROR_NAMESERVICE (not started) or
 * VIP_INVALID_PARAMETER. */
VIP_RETURN VipNSGetHostByAddr(IN VIP_NIC_HANDLE NicHandle, IN VIP_NET_ADDRESS *Address, OUT VIP_CHAR *Name,
                              IN OUT VIP_ULONG *NameLen);

/* Stops the name service.
 * Returns VIP_SUCCESS, VIP_INVALID_PARAMETER or VIP_ERROR_NAMESERVICE (not started). */
VIP_RETURN VipNSShutdown(IN VIP_NIC_HANDLE NicHandle);

/* ------------------------------------------------------------------------------------------------------------------
 * Asynchronous errors
 * ------------------------------------------------------------------------------------------------------------------ */

typedef enum _VIP_RESOURCE_CODE {
    VIP_RESOURCE_NIC = 0,
    VIP_RESOURCE_VI = 1,
    VIP_RESOURCE_CQ = 2,
    VIP_RESOURCE_DESCRIPTOR = 3
} VIP_RESOURCE_CODE;

typedef enum _VIP_ERROR_CODE {
    VIP_ERROR_POST_DESC = 0,      /* a descriptor could not be posted (never with kiban: the call fails) */
    VIP_ERROR_CONN_LOST = 1,      /* the connection was lost */
    VIP_ERROR_RECVQ_EMPTY = 2,    /* a message arrived at an empty receive queue */
    VIP_ERROR_VI_OVERRUN = 3,     /* a completion queue was full */
    VIP_ERROR_RDMAW_PROT = 4,     /* an RDMA Write of the peer was refused */
    VIP_ERROR_RDMAW_DATA = 5,     /* an RDMA Write arrived corrupted */
    VIP_ERROR_RDMAW_ABORT = 6,    /* an RDMA Write was aborted */
    VIP_ERROR_RDMAR_PROT = 7,     /* an RDMA Read of the peer was refused */
    VIP_ERROR_COMP_PROT = 8,      /* memory was deregistered before the completion could be written */
    VIP_ERROR_RDMA_TRANSPORT = 9, /* the network failed */
    VIP_ERROR_CATASTROPHIC = 10   /* the NIC failed */
} VIP_ERROR_CODE;

typedef struct _VIP_ERROR_DESCRIPTOR {
    VIP_NIC_HANDLE NicHandle;
    VIP_VI_HANDLE ViHandle;          /* or NULL */
    VIP_CQ_HANDLE CQHandle;          /* or NULL */
    VIP_DESCRIPTOR *DescriptorPtr;   /* or NULL */
    VIP_ULONG OpCode;                /* VIP_STATUS_OP_... */
    VIP_RESOURCE_CODE ResourceCode;  /* the resource with the error */
    VIP_ERROR_CODE ErrorCode;
} VIP_ERROR_DESCRIPTOR;

/* Called on a thread of the library. ErrorDesc is valid until it returns. */
typedef void (*VIP_ERROR_HANDLER)(VIP_PVOID Context, VIP_ERROR_DESCRIPTOR *ErrorDesc);

/* Sets the handler for asynchronous errors on this NIC; NULL removes it.
 * Returns VIP_SUCCESS, VIP_INVALID_PARAMETER or VIP_ERROR_RESOURCE (no thread could be started). */
VIP_RETURN VipErrorCallback(IN VIP_NIC_HANDLE NicHandle, IN VIP_PVOID Context, IN VIP_ERROR_HANDLER Handler);

/* ------------------------------------------------------------------------------------------------------------------
 * Management
 * ------------------------------------------------------------------------------------------------------------------ */

#define VIP_SMI_AUTODISCOVERY ((VIP_ULONG)1)

/* The known NICs: first this NIC itself, then the hosts in the hosts file. On input, ADAddrArray has NumAdAddrs
 * pointers, each to room for one address. On output, NumAdAddrs is the number of addresses. NumberOfHops is ignored. */
typedef struct _VIP_AUTODISCOVERY_LIST {
    VIP_ULONG NumberOfHops;
    VIP_NET_ADDRESS **ADAddrArray;
    VIP_ULONG NumAdAddrs;
} VIP_AUTODISCOVERY_LIST;

/* Returns information of a type; VIP_SMI_AUTODISCOVERY takes a VIP_AUTODISCOVERY_LIST.
 * Returns VIP_SUCCESS or VIP_INVALID_PARAMETER (for example, an unknown type). */
VIP_RETURN VipQuerySystemManagementInfo(IN VIP_NIC_HANDLE NicHandle, IN VIP_ULONG InfoType, OUT VIP_PVOID SysManInfo);

/* ------------------------------------------------------------------------------------------------------------------
 * Giganet's additions
 * ------------------------------------------------------------------------------------------------------------------ */

/* Set and get a program's pointer that is stored with a VI. For an invalid VI, the result is NULL. */
VIP_PVOID VipGetUserData(IN VIP_VI_HANDLE ViHandle);
void VipSetUserData(IN VIP_VI_HANDLE ViHandle, IN VIP_PVOID Data);

/* Tags and deferred sends are features of cLAN hardware. Returns VIP_ERROR_NOT_SUPPORTED or VIP_INVALID_PARAMETER. */
VIP_RETURN VipAddTagCQ(IN VIP_CQ_HANDLE CQHandle, IN OUT VIP_EVENT_HANDLE *Event, IN VIP_ULONG Tag,
                       IN VIP_ULONG Priority);
VIP_RETURN VipRemoveTagCQ(IN VIP_CQ_HANDLE CQHandle, IN VIP_EVENT_HANDLE Event, IN VIP_ULONG Tag);
VIP_RETURN VipPostDeferredSends(IN VIP_VI_HANDLE ViHandle, IN VIP_BOOLEAN EnableInterrupt,
                                IN OUT VIP_BOOLEAN *SendsDeferred);

/* ------------------------------------------------------------------------------------------------------------------
 * Layout checks at compile time: an array of -1 elements does not compile.
 * ------------------------------------------------------------------------------------------------------------------ */

#define VIP_LAYOUT_(name, condition) typedef char vip_layout_##name##_[(condition) ? 1 : -1]

VIP_LAYOUT_(address64, sizeof(VIP_PVOID64) == 8);
VIP_LAYOUT_(control, sizeof(VIP_CONTROL_SEGMENT) == 32);
VIP_LAYOUT_(control_next, offsetof(VIP_CONTROL_SEGMENT, Next) == 0);
VIP_LAYOUT_(control_next_handle, offsetof(VIP_CONTROL_SEGMENT, NextHandle) == 8);
VIP_LAYOUT_(control_seg_count, offsetof(VIP_CONTROL_SEGMENT, SegCount) == 12);
VIP_LAYOUT_(control_control, offsetof(VIP_CONTROL_SEGMENT, Control) == 14);
VIP_LAYOUT_(control_reserved, offsetof(VIP_CONTROL_SEGMENT, Reserved) == 16);
VIP_LAYOUT_(control_immediate, offsetof(VIP_CONTROL_SEGMENT, ImmediateData) == 20);
VIP_LAYOUT_(control_length, offsetof(VIP_CONTROL_SEGMENT, Length) == 24);
VIP_LAYOUT_(control_status, offsetof(VIP_CONTROL_SEGMENT, Status) == 28);
VIP_LAYOUT_(segment, sizeof(VIP_DESCRIPTOR_SEGMENT) == 16);
VIP_LAYOUT_(address, sizeof(VIP_ADDRESS_SEGMENT) == 16);
VIP_LAYOUT_(address_handle, offsetof(VIP_ADDRESS_SEGMENT, Handle) == 8);
VIP_LAYOUT_(address_reserved, offsetof(VIP_ADDRESS_SEGMENT, Reserved) == 12);
VIP_LAYOUT_(data, sizeof(VIP_DATA_SEGMENT) == 16);
VIP_LAYOUT_(data_handle, offsetof(VIP_DATA_SEGMENT, Handle) == 8);
VIP_LAYOUT_(data_length, offsetof(VIP_DATA_SEGMENT, Length) == 12);
VIP_LAYOUT_(descriptor, sizeof(VIP_DESCRIPTOR) == 64);
VIP_LAYOUT_(descriptor_segments, offsetof(VIP_DESCRIPTOR, DS) == 32);
VIP_LAYOUT_(net_address, offsetof(VIP_NET_ADDRESS, HostAddress) == 4);
#if defined(__LP64__)
VIP_LAYOUT_(net_address_size, sizeof(VIP_NET_ADDRESS) == 6);
VIP_LAYOUT_(nic_attributes, sizeof(VIP_NIC_ATTRIBUTES) == 200);
VIP_LAYOUT_(nic_attributes_address, offsetof(VIP_NIC_ATTRIBUTES, LocalNicAddress) == 88);
VIP_LAYOUT_(nic_attributes_bytes, offsetof(VIP_NIC_ATTRIBUTES, MaxRegisterBytes) == 104);
VIP_LAYOUT_(nic_attributes_transfer, offsetof(VIP_NIC_ATTRIBUTES, MaxTransferSize) == 168);
VIP_LAYOUT_(nic_attributes_levels, offsetof(VIP_NIC_ATTRIBUTES, ReliabilityLevelSupport) == 192);
VIP_LAYOUT_(vi_attributes, sizeof(VIP_VI_ATTRIBUTES) == 40);
VIP_LAYOUT_(vi_attributes_ptag, offsetof(VIP_VI_ATTRIBUTES, Ptag) == 24);
VIP_LAYOUT_(mem_attributes, sizeof(VIP_MEM_ATTRIBUTES) == 16);
VIP_LAYOUT_(error_descriptor, sizeof(VIP_ERROR_DESCRIPTOR) == 48);
VIP_LAYOUT_(error_descriptor_code, offsetof(VIP_ERROR_DESCRIPTOR, ErrorCode) == 44);
VIP_LAYOUT_(autodiscovery, sizeof(VIP_AUTODISCOVERY_LIST) == 24);
#endif

#ifdef __cplusplus
}
#endif

#endif /* KIBAN_VIPL_H */

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
 * VI Architecture Developer's Guide 1.0 (1998); the words, and what is marked "kiban", are kiban's. What goes beyond
 * the guide (waiting policies, reports) is in vipl_kiban.h. Examples: examples/c. How kiban differs: docs/vipl.md.
 *
 * Every call is safe to make from several threads at once. A handle that was never given out, or whose object is
 * gone, is answered with VIP_INVALID_PARAMETER. So is a null pointer where a result belongs.
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

/* A timeout in milliseconds that never comes. All ones in a VIP_ULONG means the same. */
#define VIP_INFINITE ((VIP_ULONG)0xffffffffUL)

/* Handles are opaque. They are numbers in a pointer's clothes: never follow one. */
typedef VIP_PVOID VIP_NIC_HANDLE;
typedef VIP_PVOID VIP_VI_HANDLE;
typedef VIP_PVOID VIP_CQ_HANDLE;
typedef VIP_PVOID VIP_PROTECTION_HANDLE;
typedef VIP_PVOID VIP_CONN_HANDLE;
typedef VIP_PVOID VIP_EVENT_HANDLE; /* of Giganet's tag calls */
typedef VIP_UINT32 VIP_MEM_HANDLE;  /* of registered memory; never 0 */

/* Quality of service. The architecture leaves its meaning open; two VIs connect only if theirs is the same. */
typedef VIP_PVOID VIP_QOS;

/* ------------------------------------------------------------------------------------------------------------------
 * Return codes
 * ------------------------------------------------------------------------------------------------------------------ */

typedef enum {
    VIP_SUCCESS = 0,                   /* done */
    VIP_NOT_DONE = 1,                  /* nothing to report yet; ask again or wait */
    VIP_INVALID_PARAMETER = 2,         /* a handle, pointer, length or address that cannot be right */
    VIP_ERROR_RESOURCE = 3,            /* a bound of the NIC is reached, or the object is still in use */
    VIP_TIMEOUT = 4,                   /* the time given ran out first */
    VIP_REJECT = 5,                    /* the other side said no */
    VIP_INVALID_RELIABILITY_LEVEL = 6, /* not one of this NIC's levels, or not the level of the other side */
    VIP_INVALID_MTU = 7,               /* MaxTransferSize beyond the NIC's, or not that of the other side */
    VIP_INVALID_QOS = 8,               /* not supported, or not that of the other side */
    VIP_INVALID_PTAG = 9,              /* not a protection tag of this NIC */
    VIP_INVALID_RDMAREAD = 10,         /* RDMA Read asked for where the reliability level has none */
    VIP_DESCRIPTOR_ERROR = 11,         /* a descriptor came back, with an error in its Status */
    VIP_INVALID_STATE = 12,            /* the VI is in a state that does not allow this call */
    VIP_ERROR_NAMESERVICE = 13,        /* the name service is not there, or does not know the name or address */
    VIP_NO_MATCH = 14,                 /* nobody over there waits for this discriminator */
    VIP_NOT_REACHABLE = 15,            /* Giganet: no way to that host, or it went away before it answered */
    VIP_ERROR_NOT_SUPPORTED = 16       /* Giganet: this provider does not have it */
} VIP_RETURN;

/* ------------------------------------------------------------------------------------------------------------------
 * Descriptors: what a program posts. Memory for them is registered, aligned to 64 bytes, and belongs to the NIC from
 * VipPost... until Done, Wait or Notify hands it back. One control segment; for RDMA one address segment; then data
 * segments. Little-endian; the layout is part of the architecture, and checked below.
 * ------------------------------------------------------------------------------------------------------------------ */

#define VIP_DESCRIPTOR_ALIGNMENT 64

struct _VIP_DESCRIPTOR;

/* An address in 64 bits, whatever the width of the machine's pointers. Where pointers are shorter, zero the rest. */
typedef union {
    VIP_UINT64 AddressBits;
    VIP_PVOID Address;
    struct _VIP_DESCRIPTOR *Descriptor;
} VIP_PVOID64;

/* Control segment, 32 bytes. The program sets SegCount, Control, Reserved = 0, ImmediateData and Length; the NIC
 * answers in Status and Length, and in ImmediateData of a receive. Next and NextHandle belong to it while posted. */
typedef struct {
    VIP_PVOID64 Next;          /*  0: link of the queue (kiban keeps its own and leaves this alone) */
    VIP_MEM_HANDLE NextHandle; /*  8: memory handle of the next descriptor */
    VIP_UINT16 SegCount;       /* 12: segments that follow, the address segment included */
    VIP_UINT16 Control;        /* 14: VIP_CONTROL_... */
    VIP_UINT32 Reserved;       /* 16: zero */
    VIP_UINT32 ImmediateData;  /* 20: 4 bytes that travel beside the data, if VIP_CONTROL_IMMEDIATE */
    VIP_UINT32 Length;         /* 24: in: sum of the data segments' lengths; out: bytes moved */
    VIP_UINT32 Status;         /* 28: out: VIP_STATUS_...; set it to 0 before posting */
} VIP_CONTROL_SEGMENT;

/* Address segment, 16 bytes: memory of the other side. First segment of an RDMA descriptor, and only there. */
typedef struct {
    VIP_PVOID64 Data;      /*  0: address, as the other side knows it */
    VIP_MEM_HANDLE Handle; /*  8: its memory handle over there */
    VIP_UINT32 Reserved;   /* 12: zero */
} VIP_ADDRESS_SEGMENT;

/* Data segment, 16 bytes: memory of this side, inside one registered region. */
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

/* A descriptor with room for two segments. For more, lay segments behind it: the NIC reads SegCount of them. Sources
 * disagree on the names of the two parts, so both are here: CS and DS (Intel), Control and Data (Giganet 1.0). */
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
#define VIP_CONTROL_OP_RDMAWRITE 0x0001 /* into the other side's memory; takes no receive of it, unless immediate */
#define VIP_CONTROL_OP_RDMAREAD 0x0002  /* from the other side's memory */
#define VIP_CONTROL_OP_RESERVED 0x0003
#define VIP_CONTROL_OP_MASK 0x0003
#define VIP_CONTROL_IMMEDIATE 0x0004 /* ImmediateData goes along; the other side gives up one receive for it */
#define VIP_CONTROL_QFENCE 0x0008    /* start only when all earlier RDMA Reads of this VI are done */
#define VIP_CONTROL_RESERVED 0xfff0  /* zero */

/* VIP_CONTROL_SEGMENT.Status */
#define VIP_STATUS_DONE 0x00000001               /* the NIC has finished with the descriptor */
#define VIP_STATUS_FORMAT_ERROR 0x00000002       /* reserved bits, an operation or a segment count that cannot be */
#define VIP_STATUS_PROTECTION_ERROR 0x00000004   /* a data segment outside registered memory, or under another tag */
#define VIP_STATUS_LENGTH_ERROR 0x00000008       /* longer than allowed, than posted, or Length is not the sum */
#define VIP_STATUS_PARTIAL_ERROR 0x00000010      /* only part of the message arrived */
#define VIP_STATUS_DESC_FLUSHED_ERROR 0x00000020 /* never started, or broken off: the VI failed or was disconnected */
#define VIP_STATUS_TRANSPORT_ERROR 0x00000040    /* the network could not deliver it */
#define VIP_STATUS_RDMA_PROT_ERROR 0x00000080    /* the other side's memory does not allow it */
#define VIP_STATUS_REMOTE_DESC_ERROR 0x00000100  /* the receive it met over there was missing, too short or faulty */
#define VIP_STATUS_ERROR_MASK 0x000001fe

#define VIP_STATUS_OP_SEND 0x00000000
#define VIP_STATUS_OP_RECEIVE 0x00010000
#define VIP_STATUS_OP_RDMA_WRITE 0x00020000
#define VIP_STATUS_OP_REMOTE_RDMA_WRITE 0x00030000 /* a receive taken by an RDMA Write with immediate data */
#define VIP_STATUS_OP_RDMA_READ 0x00040000
#define VIP_STATUS_OP_MASK 0x00070000

#define VIP_STATUS_IMMEDIATE 0x00080000 /* ImmediateData holds what the sender gave */
#define VIP_STATUS_RESERVED 0xfff0fe00

/* ------------------------------------------------------------------------------------------------------------------
 * Addresses and attributes
 * ------------------------------------------------------------------------------------------------------------------ */

/* Where a VI is found: HostAddressLen bytes of host address, then DiscriminatorLen bytes that tell endpoints of a host
 * apart (what a port is elsewhere). Allocate offsetof(VIP_NET_ADDRESS, HostAddress) + both lengths; where a call
 * *returns* an address, leave room for NicAddressLen + MaxDiscriminatorLen bytes. */
typedef struct _VIP_NET_ADDRESS {
    VIP_UINT16 HostAddressLen;
    VIP_UINT16 DiscriminatorLen;
    VIP_UINT8 HostAddress[1];
} VIP_NET_ADDRESS;

/* How sure a message is; one bit each, so that a NIC can say which it has. */
typedef VIP_USHORT VIP_RELIABILITY_LEVEL;
#define VIP_SERVICE_UNRELIABLE 0x01         /* at most once; a send is done when it has left; errors leave the VI up */
#define VIP_SERVICE_RELIABLE_DELIVERY 0x02  /* once and in order, or the connection breaks; done when on its way */
#define VIP_SERVICE_RELIABLE_RECEPTION 0x04 /* likewise; done only when the data lies in the other side's memory */

/* What VipQueryNic tells. Fixed from VipOpenNic on. */
typedef struct _VIP_NIC_ATTRIBUTES {
    VIP_CHAR Name[64];                             /* what was opened, ended by a 0 */
    VIP_ULONG HardwareVersion;                     /* 0: there is no hardware */
    VIP_ULONG ProviderVersion;                     /* major * 65536 + minor */
    VIP_UINT16 NicAddressLen;                      /* bytes of a host address */
    const VIP_UINT8 *LocalNicAddress;              /* this NIC's own; lives as long as the NIC is open */
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

/* What a VI is like. Two VIs connect only if level, MaxTransferSize and QoS are the same. */
typedef struct _VIP_VI_ATTRIBUTES {
    VIP_RELIABILITY_LEVEL ReliabilityLevel; /* one bit */
    VIP_ULONG MaxTransferSize;              /* bytes of one message */
    VIP_QOS QoS;                            /* NULL: none in particular */
    VIP_PROTECTION_HANDLE Ptag;             /* what memory it may touch; NULL: the NIC's first tag (as cLAN had it) */
    VIP_BOOLEAN EnableRdmaWrite;            /* the other side may write through it */
    VIP_BOOLEAN EnableRdmaRead;             /* the other side may read through it */
} VIP_VI_ATTRIBUTES;

/* What registered memory allows. */
typedef struct _VIP_MEM_ATTRIBUTES {
    VIP_PROTECTION_HANDLE Ptag;  /* which VIs may touch it; NULL: as above */
    VIP_BOOLEAN EnableRdmaWrite; /* the other side may write into it */
    VIP_BOOLEAN EnableRdmaRead;  /* the other side may read from it */
} VIP_MEM_ATTRIBUTES;

typedef enum {
    VIP_STATE_IDLE = 0,            /* not connected; receives may be posted */
    VIP_STATE_CONNECTED = 1,       /* work moves */
    VIP_STATE_CONNECT_PENDING = 2, /* a connection is being set up */
    VIP_STATE_ERROR = 3            /* broken: everything posted is flushed; only VipDisconnect leads out */
} VIP_VI_STATE;

/* ------------------------------------------------------------------------------------------------------------------
 * NIC
 * ------------------------------------------------------------------------------------------------------------------ */

/* Opens a NIC. kiban's devices:
 *     loopback                 VIs of this NIC connect with each other, and with nobody else
 *     shm, shm:NAME            processes of one user on this host, through shared memory; NAME (up to 16 bytes) is the
 *                              address by which others call, and without one it is called something unlikely
 *     udp, udp:PORT, udp:ADDRESS, udp:ADDRESS:PORT
 *                              other hosts, over UDP; a bare udp is port 4808, or any that is free; IPv6 with a
 *                              port is [ADDRESS]:PORT
 *     board:NAME@ADDRESS, board:NAME@ADDRESS:PORT, board@ADDRESS
 *                              other hosts, over the TCP of the board NAME that runs on this host, or of the only one; without
 *                              a port it is 4808, or, where that is taken, none: such a NIC calls and is not called
 * An empty or unknown name ("nic0", "/dev/clanvi0") means what KIBAN_VI_DEVICE says, or shm. A child made by fork must
 * not use its parent's NIC: it opens its own.
 * VIP_SUCCESS; VIP_INVALID_PARAMETER: a null pointer, or a name that cannot be read; VIP_ERROR_RESOURCE: no memory,
 * or the address is taken. */
VIP_RETURN VipOpenNic(IN const VIP_CHAR *DeviceName, OUT VIP_NIC_HANDLE *NicHandle);

/* Closes a NIC and everything made on it; peers see lost connections; calls that wait return VIP_INVALID_PARAMETER.
 * VIP_SUCCESS; VIP_INVALID_PARAMETER. */
VIP_RETURN VipCloseNic(IN VIP_NIC_HANDLE NicHandle);

/* Tells bounds and address of a NIC. VIP_SUCCESS; VIP_INVALID_PARAMETER. */
VIP_RETURN VipQueryNic(IN VIP_NIC_HANDLE NicHandle, OUT VIP_NIC_ATTRIBUTES *NicAttribs);

/* ------------------------------------------------------------------------------------------------------------------
 * Protection tags and memory
 * ------------------------------------------------------------------------------------------------------------------ */

/* Makes a protection tag: a VI may touch memory that bears its tag. VIP_SUCCESS; VIP_INVALID_PARAMETER;
 * VIP_ERROR_RESOURCE: MaxPtags are in use. */
VIP_RETURN VipCreatePtag(IN VIP_NIC_HANDLE NicHandle, OUT VIP_PROTECTION_HANDLE *Ptag);

/* VIP_SUCCESS; VIP_INVALID_PARAMETER: no such tag of this NIC; VIP_ERROR_RESOURCE: a VI or memory still bears it. */
VIP_RETURN VipDestroyPtag(IN VIP_NIC_HANDLE NicHandle, IN VIP_PROTECTION_HANDLE Ptag);

/* Makes Length bytes at VirtualAddress known to the NIC, and gives them a handle. Regions may overlap. The memory has
 * to stay until VipDeregisterMem. MemAttribs NULL: the first tag, no RDMA (as cLAN had it).
 * VIP_SUCCESS; VIP_INVALID_PARAMETER: null, no length, or beyond the address space; VIP_INVALID_PTAG;
 * VIP_ERROR_RESOURCE: MaxRegisterRegions, MaxRegisterBytes or MaxRegisterBlockBytes. */
VIP_RETURN VipRegisterMem(IN VIP_NIC_HANDLE NicHandle, IN VIP_PVOID VirtualAddress, IN VIP_ULONG Length,
                          IN VIP_MEM_ATTRIBUTES *MemAttribs, OUT VIP_MEM_HANDLE *MemoryHandle);

/* Takes registration back. Work that still refers to it fails with a protection error. VirtualAddress has to be that
 * of VipRegisterMem. VIP_SUCCESS; VIP_INVALID_PARAMETER. */
VIP_RETURN VipDeregisterMem(IN VIP_NIC_HANDLE NicHandle, IN VIP_PVOID VirtualAddress, IN VIP_MEM_HANDLE MemoryHandle);

/* Tells what a region allows; Address is any inside it. VIP_SUCCESS; VIP_INVALID_PARAMETER. */
VIP_RETURN VipQueryMem(IN VIP_NIC_HANDLE NicHandle, IN VIP_PVOID Address, IN VIP_MEM_HANDLE MemHandle,
                       OUT VIP_MEM_ATTRIBUTES *MemAttribs);

/* Changes what a region allows, from the next access on. VIP_SUCCESS; VIP_INVALID_PARAMETER; VIP_INVALID_PTAG. */
VIP_RETURN VipSetMemAttributes(IN VIP_NIC_HANDLE NicHandle, IN VIP_PVOID Address, IN VIP_MEM_HANDLE MemHandle,
                               IN VIP_MEM_ATTRIBUTES *MemAttribs);

/* ------------------------------------------------------------------------------------------------------------------
 * VIs
 * ------------------------------------------------------------------------------------------------------------------ */

/* Makes a VI, VIP_STATE_IDLE. A queue that is given a completion queue reports there, and cannot be waited for alone.
 * MaxTransferSize 0 means the NIC's.
 * VIP_SUCCESS; VIP_INVALID_PARAMETER; VIP_ERROR_RESOURCE: MaxVI; VIP_INVALID_RELIABILITY_LEVEL; VIP_INVALID_MTU;
 * VIP_INVALID_QOS; VIP_INVALID_PTAG; VIP_INVALID_RDMAREAD. */
VIP_RETURN VipCreateVi(IN VIP_NIC_HANDLE NicHandle, IN VIP_VI_ATTRIBUTES *ViAttribs, IN VIP_CQ_HANDLE SendCQHandle,
                       IN VIP_CQ_HANDLE RecvCQHandle, OUT VIP_VI_HANDLE *ViHandle);

/* Ends a VI. VIP_SUCCESS; VIP_INVALID_PARAMETER; VIP_INVALID_STATE: not idle, disconnect it first;
 * VIP_ERROR_RESOURCE: descriptors have not been collected. */
VIP_RETURN VipDestroyVi(IN VIP_VI_HANDLE ViHandle);

/* Tells state and attributes, and whether each queue has nothing posted or uncollected. VIP_SUCCESS;
 * VIP_INVALID_PARAMETER. */
VIP_RETURN VipQueryVi(IN VIP_VI_HANDLE ViHandle, OUT VIP_VI_STATE *State, OUT VIP_VI_ATTRIBUTES *ViAttribs,
                      OUT VIP_BOOLEAN *ViSendQEmpty, OUT VIP_BOOLEAN *ViRecvQEmpty);

/* Changes the attributes of an idle VI with empty queues. Codes as VipCreateVi, and VIP_INVALID_STATE. */
VIP_RETURN VipSetViAttributes(IN VIP_VI_HANDLE ViHandle, IN VIP_VI_ATTRIBUTES *ViAttribs);

/* ------------------------------------------------------------------------------------------------------------------
 * Work
 * ------------------------------------------------------------------------------------------------------------------ */

/* Posts a send, RDMA Write or RDMA Read; MemoryHandle is that of the descriptor's own memory. Faults of its contents
 * come back as its Status, in the order of posting. In VIP_STATE_ERROR the descriptor is flushed.
 * VIP_SUCCESS; VIP_INVALID_PARAMETER: no such VI, the descriptor is not aligned, not in registered memory of the VI's
 * tag, or posted already; VIP_INVALID_STATE: not connected; VIP_ERROR_RESOURCE: MaxDescriptorsPerQueue. */
VIP_RETURN VipPostSend(IN VIP_VI_HANDLE ViHandle, IN VIP_DESCRIPTOR *DescriptorPtr, IN VIP_MEM_HANDLE MemoryHandle);

/* Posts a receive, before or after connecting; in VIP_STATE_ERROR it is flushed. Codes as VipPostSend, but for
 * VIP_INVALID_STATE. Length of the control segment is not looked at: what a last use left there may stay. */
VIP_RETURN VipPostRecv(IN VIP_VI_HANDLE ViHandle, IN VIP_DESCRIPTOR *DescriptorPtr, IN VIP_MEM_HANDLE MemoryHandle);

/* Collects the oldest descriptor if it is done, without waiting; *DescriptorPtr is NULL if none is.
 * VIP_SUCCESS; VIP_DESCRIPTOR_ERROR: collected, look at Status; VIP_NOT_DONE; VIP_INVALID_PARAMETER. */
VIP_RETURN VipSendDone(IN VIP_VI_HANDLE ViHandle, OUT VIP_DESCRIPTOR **DescriptorPtr);
VIP_RETURN VipRecvDone(IN VIP_VI_HANDLE ViHandle, OUT VIP_DESCRIPTOR **DescriptorPtr);

/* The same, but waits up to Timeout milliseconds, as the VI's waiting policy says (vipl_kiban.h; at first adaptive).
 * VIP_SUCCESS; VIP_DESCRIPTOR_ERROR; VIP_TIMEOUT; VIP_INVALID_PARAMETER: also if the queue has a completion queue. */
VIP_RETURN VipSendWait(IN VIP_VI_HANDLE ViHandle, IN VIP_ULONG Timeout, OUT VIP_DESCRIPTOR **DescriptorPtr);
VIP_RETURN VipRecvWait(IN VIP_VI_HANDLE ViHandle, IN VIP_ULONG Timeout, OUT VIP_DESCRIPTOR **DescriptorPtr);

/* Called with a collected descriptor, on a thread of the library. It may make any call, another Notify included. */
typedef void (*VIP_VI_CALLBACK)(VIP_PVOID Context, VIP_NIC_HANDLE NicHandle, VIP_VI_HANDLE ViHandle,
                                VIP_DESCRIPTOR *DescriptorPtr);

/* Has Handler called once, for the next descriptor that is done. Several may wait in line.
 * VIP_SUCCESS; VIP_INVALID_PARAMETER: also if the queue has a completion queue; VIP_ERROR_RESOURCE: too many wait. */
VIP_RETURN VipSendNotify(IN VIP_VI_HANDLE ViHandle, IN VIP_PVOID Context, IN VIP_VI_CALLBACK Handler);
VIP_RETURN VipRecvNotify(IN VIP_VI_HANDLE ViHandle, IN VIP_PVOID Context, IN VIP_VI_CALLBACK Handler);

/* ------------------------------------------------------------------------------------------------------------------
 * Completion queues: one place to look for the work of many VIs. An entry names the VI and the queue; the descriptor
 * itself is then collected with VipSendDone or VipRecvDone.
 * ------------------------------------------------------------------------------------------------------------------ */

/* VIP_SUCCESS; VIP_INVALID_PARAMETER: no entries; VIP_ERROR_RESOURCE: MaxCQ or MaxCQEntries. */
VIP_RETURN VipCreateCQ(IN VIP_NIC_HANDLE NicHandle, IN VIP_ULONG EntryCount, OUT VIP_CQ_HANDLE *CQHandle);

/* VIP_SUCCESS; VIP_INVALID_PARAMETER; VIP_ERROR_RESOURCE: a VI still reports to it. */
VIP_RETURN VipDestroyCQ(IN VIP_CQ_HANDLE CQHandle);

/* VIP_SUCCESS; VIP_INVALID_PARAMETER: no entries; VIP_ERROR_RESOURCE: too many, or fewer than it holds. */
VIP_RETURN VipResizeCQ(IN VIP_CQ_HANDLE CQHandle, IN VIP_ULONG EntryCount);

/* Takes the oldest entry. VIP_SUCCESS; VIP_NOT_DONE; VIP_INVALID_PARAMETER. */
VIP_RETURN VipCQDone(IN VIP_CQ_HANDLE CQHandle, OUT VIP_VI_HANDLE *ViHandle, OUT VIP_BOOLEAN *RecvQueue);

/* The same, but waits up to Timeout milliseconds. VIP_SUCCESS; VIP_TIMEOUT; VIP_INVALID_PARAMETER. */
VIP_RETURN VipCQWait(IN VIP_CQ_HANDLE CQHandle, IN VIP_ULONG Timeout, OUT VIP_VI_HANDLE *ViHandle,
                     OUT VIP_BOOLEAN *RecvQueue);

/* Called with an entry, on a thread of the library. */
typedef void (*VIP_CQ_CALLBACK)(VIP_PVOID Context, VIP_NIC_HANDLE NicHandle, VIP_VI_HANDLE ViHandle,
                                VIP_BOOLEAN RecvQueue);

/* Has Handler called once, for the next entry. VIP_SUCCESS; VIP_INVALID_PARAMETER; VIP_ERROR_RESOURCE. */
VIP_RETURN VipCQNotify(IN VIP_CQ_HANDLE CQHandle, IN VIP_PVOID Context, IN VIP_CQ_CALLBACK Handler);

/* ------------------------------------------------------------------------------------------------------------------
 * Connections, client and server
 * ------------------------------------------------------------------------------------------------------------------ */

/* Server: waits for a request to the discriminator of LocalAddr (its host part is not looked at). Tells who asks and
 * what for, and a handle to accept or reject it with. From the first such call on clients stand in line, also between
 * two calls, until one runs out of time while nobody else waits there; a request waits for a minute.
 * VIP_SUCCESS; VIP_TIMEOUT; VIP_INVALID_PARAMETER; VIP_ERROR_RESOURCE: too many wait. */
VIP_RETURN VipConnectWait(IN VIP_NIC_HANDLE NicHandle, IN VIP_NET_ADDRESS *LocalAddr, IN VIP_ULONG Timeout,
                          OUT VIP_NET_ADDRESS *RemoteAddr, OUT VIP_VI_ATTRIBUTES *RemoteViAttribs,
                          OUT VIP_CONN_HANDLE *ConnHandle);

/* Server: joins the request to an idle VI. If the attributes differ the request stays, for another VI or a rejection.
 * VIP_SUCCESS; VIP_INVALID_PARAMETER; VIP_INVALID_STATE: the VI is not idle; VIP_INVALID_RELIABILITY_LEVEL;
 * VIP_INVALID_MTU; VIP_INVALID_QOS; VIP_TIMEOUT: whoever asked no longer waits. */
VIP_RETURN VipConnectAccept(IN VIP_CONN_HANDLE ConnHandle, IN VIP_VI_HANDLE ViHandle);

/* Server: says no; the client gets VIP_REJECT. VIP_SUCCESS; VIP_INVALID_PARAMETER. */
VIP_RETURN VipConnectReject(IN VIP_CONN_HANDLE ConnHandle);

/* Client: asks for a connection and waits up to Timeout milliseconds. LocalAddr gives this side a discriminator that
 * the server sees. VIP_SUCCESS; VIP_TIMEOUT: no answer; VIP_REJECT; VIP_NO_MATCH: nobody waits there;
 * VIP_NOT_REACHABLE: no such host; VIP_INVALID_PARAMETER; VIP_INVALID_STATE: the VI is not idle. */
VIP_RETURN VipConnectRequest(IN VIP_VI_HANDLE ViHandle, IN VIP_NET_ADDRESS *LocalAddr, IN VIP_NET_ADDRESS *RemoteAddr,
                             IN VIP_ULONG Timeout, OUT VIP_VI_ATTRIBUTES *RemoteViAttribs);

/* Ends a connection, in whatever state it is; what is posted is flushed and can be collected; the VI becomes idle. The
 * other side's VI goes to VIP_STATE_ERROR and hears VIP_ERROR_CONN_LOST. VIP_SUCCESS; VIP_INVALID_PARAMETER. */
VIP_RETURN VipDisconnect(IN VIP_VI_HANDLE ViHandle);

/* ------------------------------------------------------------------------------------------------------------------
 * Connections between equals: both ask, with each other's address
 * ------------------------------------------------------------------------------------------------------------------ */

/* Starts asking and returns at once. VIP_SUCCESS; VIP_INVALID_PARAMETER; VIP_INVALID_STATE: the VI is not idle. */
VIP_RETURN VipConnectPeerRequest(IN VIP_VI_HANDLE ViHandle, IN VIP_NET_ADDRESS *LocalAddr,
                                 IN VIP_NET_ADDRESS *RemoteAddr, IN VIP_ULONG Timeout);

/* Tells how it went. VIP_SUCCESS: connected; VIP_NOT_DONE; VIP_TIMEOUT: of VipConnectPeerRequest; VIP_REJECT;
 * VIP_INVALID_RELIABILITY_LEVEL, VIP_INVALID_MTU, VIP_INVALID_QOS: the two differ; VIP_INVALID_PARAMETER;
 * VIP_INVALID_STATE: nothing was asked. After anything but VIP_SUCCESS and VIP_NOT_DONE the VI is idle. */
VIP_RETURN VipConnectPeerDone(IN VIP_VI_HANDLE ViHandle, OUT VIP_VI_ATTRIBUTES *RemoteViAttribs);

/* The same, but waits until there is an answer or the request's time is over. */
VIP_RETURN VipConnectPeerWait(IN VIP_VI_HANDLE ViHandle, OUT VIP_VI_ATTRIBUTES *RemoteViAttribs);

/* ------------------------------------------------------------------------------------------------------------------
 * Name service
 * ------------------------------------------------------------------------------------------------------------------ */

/* Starts the name service of a NIC. NSInitInfo: the path of a hosts file with lines "ADDRESS NAME ..." that is asked
 * before the system is; NULL for the one that KIBAN_VI_HOSTS names, or none.
 * VIP_SUCCESS; VIP_INVALID_PARAMETER; VIP_ERROR_NAMESERVICE: the file cannot be read. */
VIP_RETURN VipNSInit(IN VIP_NIC_HANDLE NicHandle, IN VIP_PVOID NSInitInfo);

/* Address number NameIndex (from 0) of a name: one of the hosts file; an address as text; in shared memory the NAME
 * that a NIC was opened with; over UDP what the system knows, at port 4808. Sets HostAddressLen and the host address,
 * and leaves DiscriminatorLen alone.
 * VIP_SUCCESS; VIP_ERROR_NAMESERVICE: not started, or no such name or index; VIP_INVALID_PARAMETER. */
VIP_RETURN VipNSGetHostByName(IN VIP_NIC_HANDLE NicHandle, IN VIP_CHAR *Name, OUT VIP_NET_ADDRESS *Address,
                              IN VIP_ULONG NameIndex);

/* A name for a host address: that of the hosts file, or the address as text. *NameLen: in, room in bytes; out, bytes
 * used or needed, the final 0 included.
 * VIP_SUCCESS; VIP_ERROR_RESOURCE: too little room; VIP_ERROR_NAMESERVICE: not started; VIP_INVALID_PARAMETER. */
VIP_RETURN VipNSGetHostByAddr(IN VIP_NIC_HANDLE NicHandle, IN VIP_NET_ADDRESS *Address, OUT VIP_CHAR *Name,
                              IN OUT VIP_ULONG *NameLen);

/* VIP_SUCCESS; VIP_INVALID_PARAMETER; VIP_ERROR_NAMESERVICE: not started. */
VIP_RETURN VipNSShutdown(IN VIP_NIC_HANDLE NicHandle);

/* ------------------------------------------------------------------------------------------------------------------
 * Errors that belong to no call
 * ------------------------------------------------------------------------------------------------------------------ */

typedef enum _VIP_RESOURCE_CODE {
    VIP_RESOURCE_NIC = 0,
    VIP_RESOURCE_VI = 1,
    VIP_RESOURCE_CQ = 2,
    VIP_RESOURCE_DESCRIPTOR = 3
} VIP_RESOURCE_CODE;

typedef enum _VIP_ERROR_CODE {
    VIP_ERROR_POST_DESC = 0,      /* a descriptor could not be posted (kiban says so in the call instead) */
    VIP_ERROR_CONN_LOST = 1,      /* the connection is gone */
    VIP_ERROR_RECVQ_EMPTY = 2,    /* a message met an empty receive queue */
    VIP_ERROR_VI_OVERRUN = 3,     /* a completion queue was full */
    VIP_ERROR_RDMAW_PROT = 4,     /* the other side may not write there */
    VIP_ERROR_RDMAW_DATA = 5,     /* a write arrived damaged */
    VIP_ERROR_RDMAW_ABORT = 6,    /* a write was broken off */
    VIP_ERROR_RDMAR_PROT = 7,     /* the other side may not read there */
    VIP_ERROR_COMP_PROT = 8,      /* memory went away before the answer could be written */
    VIP_ERROR_RDMA_TRANSPORT = 9, /* the network could not carry it */
    VIP_ERROR_CATASTROPHIC = 10   /* the NIC does not work any more */
} VIP_ERROR_CODE;

typedef struct _VIP_ERROR_DESCRIPTOR {
    VIP_NIC_HANDLE NicHandle;
    VIP_VI_HANDLE ViHandle;          /* or NULL */
    VIP_CQ_HANDLE CQHandle;          /* or NULL */
    VIP_DESCRIPTOR *DescriptorPtr;   /* or NULL */
    VIP_ULONG OpCode;                /* VIP_STATUS_OP_... */
    VIP_RESOURCE_CODE ResourceCode;  /* which of the above it is about */
    VIP_ERROR_CODE ErrorCode;
} VIP_ERROR_DESCRIPTOR;

/* Called on a thread of the library; ErrorDesc lives until it returns. */
typedef void (*VIP_ERROR_HANDLER)(VIP_PVOID Context, VIP_ERROR_DESCRIPTOR *ErrorDesc);

/* Has Handler called for every such error of this NIC from now on, in place of the former. NULL: nobody is told.
 * VIP_SUCCESS; VIP_INVALID_PARAMETER; VIP_ERROR_RESOURCE: no thread. */
VIP_RETURN VipErrorCallback(IN VIP_NIC_HANDLE NicHandle, IN VIP_PVOID Context, IN VIP_ERROR_HANDLER Handler);

/* ------------------------------------------------------------------------------------------------------------------
 * Management
 * ------------------------------------------------------------------------------------------------------------------ */

#define VIP_SMI_AUTODISCOVERY ((VIP_ULONG)1)

/* Who can be reached, as far as is known: this NIC itself, then the hosts of the hosts file. In: ADAddrArray has
 * NumAdAddrs pointers, each to room for an address. Out: NumAdAddrs is how many were filled in. NumberOfHops is not
 * looked at. */
typedef struct _VIP_AUTODISCOVERY_LIST {
    VIP_ULONG NumberOfHops;
    VIP_NET_ADDRESS **ADAddrArray;
    VIP_ULONG NumAdAddrs;
} VIP_AUTODISCOVERY_LIST;

/* Asks for information of a type; VIP_SMI_AUTODISCOVERY takes a VIP_AUTODISCOVERY_LIST.
 * VIP_SUCCESS; VIP_INVALID_PARAMETER: also for an unknown type. */
VIP_RETURN VipQuerySystemManagementInfo(IN VIP_NIC_HANDLE NicHandle, IN VIP_ULONG InfoType, OUT VIP_PVOID SysManInfo);

/* ------------------------------------------------------------------------------------------------------------------
 * Giganet's additions
 * ------------------------------------------------------------------------------------------------------------------ */

/* A pointer of the program's own, kept with a VI. NULL for no such VI. */
VIP_PVOID VipGetUserData(IN VIP_VI_HANDLE ViHandle);
void VipSetUserData(IN VIP_VI_HANDLE ViHandle, IN VIP_PVOID Data);

/* Tags and deferred sends belong to cLAN's hardware: VIP_ERROR_NOT_SUPPORTED, or VIP_INVALID_PARAMETER. */
VIP_RETURN VipAddTagCQ(IN VIP_CQ_HANDLE CQHandle, IN OUT VIP_EVENT_HANDLE *Event, IN VIP_ULONG Tag,
                       IN VIP_ULONG Priority);
VIP_RETURN VipRemoveTagCQ(IN VIP_CQ_HANDLE CQHandle, IN VIP_EVENT_HANDLE Event, IN VIP_ULONG Tag);
VIP_RETURN VipPostDeferredSends(IN VIP_VI_HANDLE ViHandle, IN VIP_BOOLEAN EnableInterrupt,
                                IN OUT VIP_BOOLEAN *SendsDeferred);

/* ------------------------------------------------------------------------------------------------------------------
 * Layouts, checked by whoever includes this: an array of -1 elements does not compile.
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

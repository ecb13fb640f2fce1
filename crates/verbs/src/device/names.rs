//! Names of enum values (ibv_event_type_str(3), rdma_event_str(3)).
//!
//! Purpose   returns the same strings as rdma-core, because scripts search for them in the output of
//!           programs.

use crate::abi::*;
use core::ffi::{CStr, c_char};

/// Returns the name of a number, from a table that starts at the number `first`.
fn name<N: Into<i64>>(table: &[&'static CStr], first: N, number: N, unknown: &'static CStr) -> *const c_char {
    let place = number.into() - first.into();
    usize::try_from(place).ok().and_then(|place| table.get(place)).unwrap_or(&unknown).as_ptr()
}

const NODES: [&CStr; 7] = [
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

const PORT_STATES: [&CStr; 6] =
    [c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];

const EVENTS: [&CStr; 20] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

const COMPLETIONS: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

const CM_EVENTS: [&CStr; 16] = [
    c"RDMA_CM_EVENT_ADDR_RESOLVED",
    c"RDMA_CM_EVENT_ADDR_ERROR",
    c"RDMA_CM_EVENT_ROUTE_RESOLVED",
    c"RDMA_CM_EVENT_ROUTE_ERROR",
    c"RDMA_CM_EVENT_CONNECT_REQUEST",
    c"RDMA_CM_EVENT_CONNECT_RESPONSE",
    c"RDMA_CM_EVENT_CONNECT_ERROR",
    c"RDMA_CM_EVENT_UNREACHABLE",
    c"RDMA_CM_EVENT_REJECTED",
    c"RDMA_CM_EVENT_ESTABLISHED",
    c"RDMA_CM_EVENT_DISCONNECTED",
    c"RDMA_CM_EVENT_DEVICE_REMOVAL",
    c"RDMA_CM_EVENT_MULTICAST_JOIN",
    c"RDMA_CM_EVENT_MULTICAST_ERROR",
    c"RDMA_CM_EVENT_ADDR_CHANGE",
    c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
];

/// The opcodes defined by rdma-core 55; release 44 does not define 12 and 13.
const OPERATIONS: [&CStr; 16] = [
    c"rdma-write",
    c"rdma-write-with-imm",
    c"send",
    c"send-with-imm",
    c"rdma-read",
    c"atomic-cmp-and-swp",
    c"atomic-fetch-and-add",
    c"local-inv",
    c"bind-mw",
    c"send-with-inv",
    c"tso",
    c"driver1",
    c"unknown",
    c"unknown",
    c"flush",
    c"atomic-write",
];

#[unsafe(no_mangle)]
extern "C" fn ibv_wr_opcode_str(operation: ibv_wr_opcode) -> *const c_char {
    name(&OPERATIONS, IBV_WR_RDMA_WRITE, operation, c"unknown")
}

#[unsafe(no_mangle)]
extern "C" fn ibv_node_type_str(node: ibv_node_type) -> *const c_char {
    name(&NODES, IBV_NODE_CA, node, c"unknown")
}

#[unsafe(no_mangle)]
extern "C" fn ibv_port_state_str(state: ibv_port_state) -> *const c_char {
    name(&PORT_STATES, IBV_PORT_NOP, state, c"unknown")
}

#[unsafe(no_mangle)]
extern "C" fn ibv_event_type_str(event: ibv_event_type) -> *const c_char {
    name(&EVENTS, IBV_EVENT_CQ_ERR, event, c"unknown")
}

#[unsafe(no_mangle)]
extern "C" fn ibv_wc_status_str(status: ibv_wc_status) -> *const c_char {
    name(&COMPLETIONS, IBV_WC_SUCCESS, status, c"unknown")
}

#[unsafe(export_name = "kiban_rdma_event_str")]
extern "C" fn rdma_event_str(event: rdma_cm_event_type) -> *const c_char {
    name(&CM_EVENTS, RDMA_CM_EVENT_ADDR_RESOLVED, event, c"UNKNOWN EVENT")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference_library::{CM, RealLibrary, VERBS};
    use core::ffi::c_int;

    type Name = extern "C" fn(c_int) -> *const c_char;

    /// Compares the names that both libraries return, also for invalid numbers.
    fn check(library: &CStr, function: &CStr, names: usize, ours: &dyn Fn(c_int) -> *const c_char) {
        let real = RealLibrary::open(library);
        // SAFETY: C passes an enum as an int, and all these functions return a string.
        let theirs = unsafe { real.function::<Name>(function) };
        // Newer releases may define more numbers.
        let known = c_int::try_from(names).expect("a short table");
        let text = |at: *const c_char| {
            // SAFETY: both libraries return strings that are never freed.
            unsafe { CStr::from_ptr(at) }.to_owned()
        };
        for number in (-3..known).chain(1000..1003) {
            assert_eq!(text(ours(number)), text(theirs(number)), "{function:?} of {number}");
        }
    }

    #[test]
    fn names_match_rdma_core() {
        check(VERBS, c"ibv_node_type_str", NODES.len() + 1, &|number| ibv_node_type_str(number));
        check(VERBS, c"ibv_port_state_str", PORT_STATES.len(), &|number| {
            ibv_port_state_str(number.cast_unsigned())
        });
        check(VERBS, c"ibv_event_type_str", EVENTS.len(), &|number| {
            ibv_event_type_str(number.cast_unsigned())
        });
        check(VERBS, c"ibv_wc_status_str", COMPLETIONS.len(), &|number| {
            ibv_wc_status_str(number.cast_unsigned())
        });
        check(CM, c"rdma_event_str", CM_EVENTS.len(), &|number| rdma_event_str(number.cast_unsigned()));
    }

    #[test]
    fn operations_have_names() {
        let text = |operation| {
            // SAFETY: the result is a string in the table.
            unsafe { CStr::from_ptr(ibv_wr_opcode_str(operation)) }
        };
        assert_eq!(
            (text(IBV_WR_SEND_WITH_INV), text(IBV_WR_ATOMIC_WRITE)),
            (c"send-with-inv", c"atomic-write")
        );
        assert_eq!((text(12), text(16), text(u32::MAX)), (c"unknown", c"unknown", c"unknown"));
    }
}

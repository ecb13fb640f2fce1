//! The state changes of a queue pair, with the attributes that each requires and allows (IBTA 11.2.5.2, table
//! 96).
//!
//! Purpose   gives the same results as the Linux kernel with a device that follows the standard.
//! Reset     every state may change to Reset and Error, without other attributes.

use crate::abi::*;
use core::ffi::c_uint;
use kiban_rdma_runtime::verbs::Service;

const PATH: c_uint = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
const INIT_CONNECTED: c_uint = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
const INIT_UD: c_uint = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
/// The attributes that specify the peer.
const RTR_CONNECTED: c_uint = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
/// The attributes that a queue pair in operation accepts.
const AT_WORK_RC: c_uint = AT_WORK_UC | IBV_QP_MIN_RNR_TIMER;
const AT_WORK_UC: c_uint = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | PATH;
const AT_WORK_UD: c_uint = IBV_QP_CUR_STATE | IBV_QP_QKEY;

/// Returns the attributes that a state change requires and those that it allows, or `None` if there is no
/// such change.
fn masks(from: ibv_qp_state, to: ibv_qp_state, service: Service) -> Option<(c_uint, c_uint)> {
    let init = if service == Service::Datagrams { INIT_UD } else { INIT_CONNECTED };
    let at_work = match service {
        Service::Connected | Service::XrcTarget(_) => AT_WORK_RC,
        Service::Unreliable | Service::XrcInitiator => AT_WORK_UC,
        Service::Datagrams => AT_WORK_UD,
    };
    Some(match (from, to) {
        (IBV_QPS_RESET..=IBV_QPS_ERR, IBV_QPS_RESET | IBV_QPS_ERR) => (0, 0),
        (IBV_QPS_RESET, IBV_QPS_INIT) => (init, 0),
        (IBV_QPS_INIT, IBV_QPS_INIT) => (0, init),
        (IBV_QPS_INIT, IBV_QPS_RTR) => {
            let takes = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
            match service {
                Service::Connected | Service::XrcTarget(_) => {
                    (RTR_CONNECTED | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, takes)
                }
                Service::Unreliable | Service::XrcInitiator => (RTR_CONNECTED, takes),
                Service::Datagrams => (0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY),
            }
        }
        (IBV_QPS_RTR, IBV_QPS_RTS) => {
            let sends = match service {
                Service::Connected | Service::XrcInitiator => {
                    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                }
                Service::XrcTarget(_) => IBV_QP_TIMEOUT,
                Service::Unreliable | Service::Datagrams => 0,
            };
            (IBV_QP_SQ_PSN | sends, at_work)
        }
        (IBV_QPS_RTS, IBV_QPS_RTS) => (0, at_work),
        (IBV_QPS_RTS, IBV_QPS_SQD) => (0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
        (IBV_QPS_SQD, IBV_QPS_RTS) => (0, at_work),
        (IBV_QPS_SQE, IBV_QPS_RTS) if service == Service::Unreliable => {
            (0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS)
        }
        (IBV_QPS_SQE, IBV_QPS_RTS) if service == Service::Datagrams => (0, AT_WORK_UD),
        _ => return None,
    })
}

/// Returns whether a state change with these attributes is valid.
pub(crate) fn is_change(from: ibv_qp_state, to: ibv_qp_state, service: Service, mask: c_uint) -> bool {
    masks(from, to, service).is_some_and(|(needs, takes)| {
        // The attribute IBV_QP_STATE itself is always allowed.
        mask & needs == needs && mask & !(needs | takes | IBV_QP_STATE) == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RC: Service = Service::Connected;
    const UC: Service = Service::Unreliable;
    const UD: Service = Service::Datagrams;
    const INI: Service = Service::XrcInitiator;
    const TGT: Service = Service::XrcTarget(1);

    const RTR: c_uint = IBV_QP_STATE
        | IBV_QP_AV
        | IBV_QP_PATH_MTU
        | IBV_QP_DEST_QPN
        | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC
        | IBV_QP_MIN_RNR_TIMER;

    #[test]
    fn state_changes_require_exactly_the_attributes_of_the_standard() {
        let given = [
            (IBV_QPS_RESET, IBV_QPS_INIT, RC, IBV_QP_STATE | INIT_CONNECTED, true),
            (IBV_QPS_RESET, IBV_QPS_INIT, RC, IBV_QP_STATE | IBV_QP_PORT, false),
            (IBV_QPS_RESET, IBV_QPS_INIT, UD, IBV_QP_STATE | INIT_UD, true),
            (IBV_QPS_RESET, IBV_QPS_INIT, UD, IBV_QP_STATE | INIT_CONNECTED, false),
            (IBV_QPS_RESET, IBV_QPS_RTR, RC, RTR, false),
            (IBV_QPS_INIT, IBV_QPS_RTR, RC, RTR, true),
            (IBV_QPS_INIT, IBV_QPS_RTR, RC, RTR | IBV_QP_TIMEOUT, false),
            (IBV_QPS_INIT, IBV_QPS_RTR, RC, RTR & !IBV_QP_RQ_PSN, false),
            (IBV_QPS_INIT, IBV_QPS_RTR, UD, IBV_QP_STATE, true),
            (IBV_QPS_INIT, IBV_QPS_RTR, UC, IBV_QP_STATE | RTR_CONNECTED, true),
            (IBV_QPS_INIT, IBV_QPS_RTR, UC, RTR, false),
            (IBV_QPS_RTR, IBV_QPS_RTS, UC, IBV_QP_STATE | IBV_QP_SQ_PSN, true),
            (IBV_QPS_RTS, IBV_QPS_RTS, UC, IBV_QP_MIN_RNR_TIMER, false),
            (IBV_QPS_RTR, IBV_QPS_RTS, UD, IBV_QP_STATE | IBV_QP_SQ_PSN, true),
            (IBV_QPS_RTR, IBV_QPS_RTS, RC, IBV_QP_STATE | IBV_QP_SQ_PSN, false),
            (IBV_QPS_RTS, IBV_QPS_INIT, RC, IBV_QP_STATE | INIT_CONNECTED, false),
            (IBV_QPS_RTS, IBV_QPS_RESET, RC, IBV_QP_STATE, true),
            (IBV_QPS_ERR, IBV_QPS_RTS, RC, IBV_QP_STATE, false),
            (IBV_QPS_RTS, IBV_QPS_ERR, RC, IBV_QP_STATE | IBV_QP_PORT, false),
            (IBV_QPS_RTS, 99, RC, IBV_QP_STATE, false),
            (IBV_QPS_INIT, IBV_QPS_RTR, INI, IBV_QP_STATE | RTR_CONNECTED, true),
            (IBV_QPS_INIT, IBV_QPS_RTR, INI, RTR, false),
            (IBV_QPS_INIT, IBV_QPS_RTR, TGT, RTR, true),
            (IBV_QPS_RTR, IBV_QPS_RTS, TGT, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT, true),
            (IBV_QPS_RTR, IBV_QPS_RTS, INI, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT, false),
        ];
        for (from, to, service, mask, expected) in given {
            assert_eq!(is_change(from, to, service, mask), expected, "{from} to {to}, {mask:#x}");
        }
    }
}

//! kiban's extensions: waiting policies for queues, and wait statistics (`vipl_kiban.h`).

use crate::abi::{VIP_RETURN, VIP_ULONG, VIP_WAIT_REPORT, policy, wide};
use crate::border::Answer;
use crate::objects::nic::Nic;
use kiban_base::{Report, Wait};
use kiban_vi_runtime::Queue;
use std::time::Duration;

/// Converts a policy from the program.
pub(crate) fn named(number: u32, spin: VIP_ULONG) -> Answer<Wait> {
    match number {
        policy::ADAPTIVE => Ok(Wait::Adaptive),
        policy::POLL => Ok(Wait::Poll),
        policy::INTERRUPT => Ok(Wait::Interrupt),
        policy::HYBRID => Ok(hybrid(spin)),
        _ => Err(VIP_RETURN::INVALID_PARAMETER),
    }
}

/// Returns the policy that polls for `spin` microseconds and then sleeps.
pub(crate) fn hybrid(spin: VIP_ULONG) -> Wait {
    Wait::Hybrid { spin: Duration::from_micros(wide(spin)) }
}

pub(crate) fn report(nic: &Nic, queue: Queue) -> VIP_WAIT_REPORT {
    let nanos = |length: Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    let Report { waits, spin_hits, blocks, timed_sleeps, disturbances, spun, cost, optimum, .. } =
        nic.core.wait_report(queue).unwrap_or_default();
    let (number, spin) = match nic.core.wait_policy(queue) {
        Wait::Adaptive => (policy::ADAPTIVE, 0),
        Wait::Poll => (policy::POLL, u64::MAX),
        Wait::Interrupt => (policy::INTERRUPT, 0),
        Wait::Hybrid { spin } => (policy::HYBRID, nanos(spin)),
    };
    VIP_WAIT_REPORT {
        Waits: waits,
        SpinHits: spin_hits,
        Blocks: blocks,
        TimedSleeps: timed_sleeps,
        Disturbances: disturbances,
        SpunNs: nanos(spun),
        CostNs: nanos(cost),
        OptimumNs: nanos(optimum),
        BlockCostNs: kiban_os::costs().block(),
        SpinNs: spin,
        Policy: number,
        Reserved: 0,
    }
}

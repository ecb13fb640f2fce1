//! Plans: which fault is injected into which call, as a pure function of the call and its number.

use crate::calls::{Call, Family, File, Injection};
use libc::{EINTR, EMFILE, ENOMEM, ENOSPC, c_long};

/// A resource that is exhausted for a while, or a failure that persists for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// No descriptor is free (EMFILE).
    Descriptors,
    /// No memory can be mapped and no thread started (ENOMEM, EAGAIN).
    Memory,
    /// The disk is full (ENOSPC).
    Disk,
    /// Every blocking call is interrupted (EINTR).
    Interrupts,
    /// Every call transfers fewer bytes than requested.
    Short,
}

/// All kinds.
pub const KINDS: [Kind; 5] = [Kind::Descriptors, Kind::Memory, Kind::Disk, Kind::Interrupts, Kind::Short];

/// A plan. Calls are counted from 0, over all threads and children of the program, from
/// [`crate::Traced::arm`] on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// Calls are only counted.
    Watch,
    /// The first call, from the n-th on, that has legal faults fails with the one at index `choice`.
    Nth {
        /// The number of the call.
        call: u64,
        /// The variant of the fault.
        choice: u64,
    },
    /// The process ends at its n-th call.
    Kill {
        /// The number of the call.
        call: u64,
    },
    /// A resource is exhausted during a range of calls.
    Spell {
        /// The resource.
        kind: Kind,
        /// The number of the first call.
        from: u64,
        /// The number of calls.
        calls: u64,
    },
    /// Randomly chosen calls, on average one in `one_in`, fail, transfer fewer bytes, or are delayed.
    Sprinkle {
        /// The seed of the random numbers.
        seed: u64,
        /// The average distance between two chosen calls.
        one_in: u64,
        /// The number of calls among which the failing ones are chosen.
        calls: u64,
    },
}

/// Mixes a seed and a number into a number that looks random (SplitMix64's finaliser).
pub fn mix(seed: u64, number: u64) -> u64 {
    let mut bits = seed ^ number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

impl Plan {
    /// Returns a random plan for a run that makes about `calls` calls. It never kills the process.
    pub fn from_seed(seed: u64, calls: u64) -> Plan {
        let draw = |number| mix(seed, u64::MAX - number);
        let calls = calls.max(1);
        match draw(0) % 8 {
            0..3 => Plan::Nth { call: draw(1) % calls, choice: draw(2) },
            3..5 => Plan::Spell {
                kind: KINDS[(draw(1) % KINDS.len() as u64) as usize],
                from: draw(2) % calls,
                calls: 1 << (draw(3) % 10),
            },
            _ => Plan::Sprinkle { seed, one_in: 4 << (draw(1) % 7), calls },
        }
    }

    /// Returns whether the plan may affect the n-th call, whatever the call is.
    pub fn concerns(&self, index: u64) -> bool {
        match *self {
            Plan::Watch => false,
            Plan::Nth { call, .. } => index >= call,
            Plan::Kill { call } => index == call,
            Plan::Spell { from, calls, .. } => (from..from.saturating_add(calls)).contains(&index),
            Plan::Sprinkle { seed, one_in, calls } => {
                index < calls && mix(seed, index).is_multiple_of(one_in)
            }
        }
    }

    /// Decides what happens to the n-th call.
    pub fn decide(&self, index: u64, call: &Call) -> Option<Injection> {
        if !self.concerns(index) {
            return None;
        }
        let legal = call.legal();
        match *self {
            Plan::Watch => None,
            Plan::Nth { choice, .. } => pick(&legal, choice),
            Plan::Kill { .. } => Some(Injection::Kill),
            Plan::Spell { kind, .. } => legal.into_iter().find(|injection| kind.is_of(call, *injection)),
            Plan::Sprinkle { seed, .. } => {
                let choice = mix(!seed, index);
                match choice % 8 {
                    0 => Some(Injection::Stall((choice >> 8) as u32 % 200)),
                    _ => pick(&legal, choice >> 8),
                }
            }
        }
    }

    /// Returns whether the plan injects a single fault.
    pub fn is_single(&self) -> bool {
        matches!(self, Plan::Nth { .. } | Plan::Kill { .. })
    }
}

fn pick(legal: &[Injection], choice: u64) -> Option<Injection> {
    let count = legal.len() as u64;
    (count > 0).then(|| legal[(choice % count) as usize])
}

impl Kind {
    fn is_of(self, call: &Call, injection: Injection) -> bool {
        match self {
            Kind::Descriptors => injection == Injection::Errno(EMFILE),
            Kind::Memory => {
                matches!(call.family, Family::Memory | Family::Thread)
                    || injection == Injection::Errno(ENOMEM)
            }
            Kind::Disk => injection == Injection::Errno(ENOSPC) && call.file == File::Regular,
            Kind::Interrupts => injection == Injection::Errno(EINTR) && !is_endless(call.number),
            Kind::Short => injection == Injection::Short,
        }
    }
}

/// Returns whether programs retry this call after EINTR. If EINTR were injected every time, such a call would
/// never end.
fn is_endless(number: c_long) -> bool {
    number == libc::SYS_flock
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::find;

    fn call(number: c_long) -> Call {
        let (_, family) = find(number).expect("it is in the table");
        let file = File::Regular;
        Call { number, family, arguments: [0; 6], file, never_waits: false, by_edges: false, bytes: 100 }
    }

    #[test]
    fn the_same_plan_makes_the_same_choice() {
        for seed in 0..500 {
            let plan = Plan::from_seed(seed, 300);
            assert_eq!(plan, Plan::from_seed(seed, 300));
            for index in 0..300 {
                let injection = plan.decide(index, &call(libc::SYS_write));
                assert_eq!(injection, plan.decide(index, &call(libc::SYS_write)));
                assert!(injection != Some(Injection::Kill) && (injection.is_none() || plan.concerns(index)));
            }
        }
    }

    #[test]
    fn a_spell_has_one_kind_and_ends() {
        let plan = Plan::Spell { kind: Kind::Disk, from: 3, calls: 2 };
        let injections: Vec<_> = (0..6).map(|index| plan.decide(index, &call(libc::SYS_write))).collect();
        let full = Some(Injection::Errno(ENOSPC));
        assert_eq!(injections, [None, None, None, full, full, None]);
        assert_eq!(plan.decide(3, &call(libc::SYS_mmap)), None);
    }

    #[test]
    fn the_nth_call_fails_in_every_legal_way() {
        let given = call(libc::SYS_fsync);
        let injections: Vec<_> =
            (0..3).map(|choice| Plan::Nth { call: 2, choice }.decide(2, &given)).collect();
        assert_eq!(injections, given.legal().into_iter().map(Some).collect::<Vec<_>>());
        assert_eq!(Plan::Nth { call: 2, choice: 0 }.decide(1, &given), None);
        assert_eq!(Plan::Kill { call: 7 }.decide(7, &given), Some(Injection::Kill));
    }
}

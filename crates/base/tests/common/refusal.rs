//! Makes the n-th allocation of a page or block on a board fail, for every n that a run reaches. Shared by
//! the tests of several crates.

use kiban_base::Memory;

/// The kind of allocation that fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    TransmitPage,
    ReceivePage,
    Block,
}

const KINDS: [Kind; 3] = [Kind::TransmitPage, Kind::ReceivePage, Kind::Block];

/// An allocation that fails: the side, the kind, and its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) side: usize,
    kind: Kind,
    n: u64,
}

impl Refusal {
    /// Arms the failure in the memory of its side.
    pub(crate) fn arm(self, memory: &mut Memory) {
        match self.kind {
            Kind::TransmitPage => memory.transmit.fail_nth_take(self.n),
            Kind::ReceivePage => memory.receive.fail_nth_take(self.n),
            Kind::Block => memory.pdus.fail_nth_take(self.n),
        }
    }

    /// Returns whether the run reached the failure. Call it when all memory is free again. The function
    /// allocates once more: if the run made n - 1 allocations, this one is the n-th and fails. It then keeps
    /// allocating, because a run through kernel sockets may make slightly fewer allocations than the previous
    /// run.
    pub(crate) fn has_happened(self, memory: &mut Memory) -> bool {
        (0..1000).all(|_| match self.kind {
            Kind::TransmitPage => memory.transmit.take().is_some(),
            Kind::ReceivePage => memory.receive.take().is_some(),
            Kind::Block => memory.pdus.take().is_some(),
        })
    }
}

/// Calls `run` repeatedly, for each side and kind: first with the first allocation failing, then with the
/// second, and so on, until a run returns false because it did not reach the failing allocation. Runs must be
/// identical except for the failure.
pub(crate) fn each(mut run: impl FnMut(Refusal) -> bool) {
    let mut total = 0;
    for side in 0..2 {
        for kind in KINDS {
            let reached = (1..100_000).take_while(|&n| run(Refusal { side, kind, n })).count();
            assert!(reached < 99_999, "{kind:?} of side {side}: it never ends");
            println!("{kind:?} of side {side}: {reached} takes");
            total += reached;
        }
    }
    assert!(total > 0, "nothing was refused");
}

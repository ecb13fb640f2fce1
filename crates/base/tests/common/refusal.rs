//! Refuses the n-th page or block of a board, for every n that a run reaches; for tests of several crates.

use kiban_base::Memory;

/// What is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    TransmitPage,
    ReceivePage,
    Block,
}

const KINDS: [Kind; 3] = [Kind::TransmitPage, Kind::ReceivePage, Kind::Block];

/// A take that is refused: on which side, what, the how-manyth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) side: usize,
    kind: Kind,
    n: u64,
}

impl Refusal {
    /// Asks for it, of the memory of its side.
    pub(crate) fn arm(self, memory: &mut Memory) {
        match self.kind {
            Kind::TransmitPage => memory.transmit.fail_nth_take(self.n),
            Kind::ReceivePage => memory.receive.fail_nth_take(self.n),
            Kind::Block => memory.pdus.fail_nth_take(self.n),
        }
    }

    /// Returns whether the run reached the refusal; call it when all memory is free again. It takes once
    /// more: if the run took n - 1 times, that take is the n-th and is refused. It goes on taking, because a
    /// run through sockets of the kernel may take a little less often than the run before it.
    pub(crate) fn has_happened(self, memory: &mut Memory) -> bool {
        (0..1000).all(|_| match self.kind {
            Kind::TransmitPage => memory.transmit.take().is_some(),
            Kind::ReceivePage => memory.receive.take().is_some(),
            Kind::Block => memory.pdus.take().is_some(),
        })
    }
}

/// Calls `run` again and again, for each side and kind: first with the first take refused, then with the
/// second, and so on, until a run returns false because it did not reach its refusal. Runs must be the same
/// except for the refusal.
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

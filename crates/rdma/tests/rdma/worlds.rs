//! Two NICs perform random operations on each other; the results are compared with a model of memory and
//! completions ([`crate::model`]).
//!
//! Random       beside the operations: the segment lengths, the way in which segments reach memory, the times
//!              at which segments are built and confirmed.

use crate::fixture::pair::{Landing, Side, TRAITS};
use crate::model::Half;
use kiban_base::SimRng;

/// One side.
struct End {
    side: Side,
    half: Half,
}

impl End {
    fn new(seed: u64, segment_bytes: usize, rng: &mut SimRng) -> End {
        let mut side = Side::new(seed, segment_bytes);
        let half = Half::new(&mut side.nic, side.pd, false, rng);
        side.nic.connect(side.qp, TRAITS).expect("idle");
        End { side, half }
    }

    /// Posts a work request.
    fn post(&mut self, peer: &mut End, rng: &mut SimRng) {
        let work = self.half.draw(&mut peer.half, rng);
        peer.half.post_receives(&mut peer.side.nic, peer.side.qp);
        self.side.nic.post_send(self.side.qp, work).expect("there was room");
    }

    /// Builds some segments, and confirms some.
    fn make_some(&mut self, most: u64, rng: &mut SimRng) {
        let (side, mut left) = (&mut self.side, rng.below(most + 1));
        while left > 0
            && let Some(qp) = side.nic.pop_tx_queue()
        {
            while left > 0 && side.nic.next_segment(qp, &mut side.out) {
                left -= 1;
            }
            if left == 0 {
                side.nic.requeue(qp);
            }
        }
        let made = side.nic.segments_made(side.qp);
        side.nic.confirm(side.qp, made - rng.below(made.min(3) + 1));
    }

    /// Lets the peer receive some of the segments.
    fn deliver_some(&mut self, peer: &mut End, most: u64, rng: &mut SimRng) {
        for _ in 0..rng.below(most + 1) {
            let Some(segment) = self.side.out.segments.pop_front() else { break };
            let count = 1 + rng.below(2000) as usize;
            let landing =
                [Landing::Whole, Landing::Crumbs(count), Landing::Direct(count)][rng.below(3) as usize];
            assert!(peer.side.take(&segment, landing), "a receive was posted");
        }
    }

    /// Compares memory and completions with the model.
    fn check(&mut self, name: &str) {
        assert_eq!(self.side.nic.event(), None, "{name}");
        let completions = self.side.completions();
        self.half.check(&completions, name);
    }
}

fn world(seed: u64) {
    let mut rng = SimRng::from_seed(seed);
    let segment_bytes = match rng.below(3) {
        0 => 128 + rng.below(64) as usize,
        1 => 1458,
        _ => 128 + rng.below(65535 - 128) as usize,
    };
    let mut one = End::new(seed + 1, segment_bytes, &mut rng);
    let mut two = End::new(seed + 1000, segment_bytes, &mut rng);
    let name = format!("seed {seed}");
    for _ in 0..60 {
        let (from, to) = if rng.happens(0.5) { (&mut one, &mut two) } else { (&mut two, &mut one) };
        from.post(to, &mut rng);
        for _ in 0..rng.below(4) {
            one.make_some(6, &mut rng);
            two.make_some(6, &mut rng);
            one.deliver_some(&mut two, 5, &mut rng);
            two.deliver_some(&mut one, 5, &mut rng);
        }
    }
    // Run everything until nothing moves.
    loop {
        for End { side, .. } in [&mut one, &mut two] {
            side.nic.confirm(side.qp, side.nic.segments_made(side.qp));
            side.make();
        }
        if one.side.out.segments.len() + two.side.out.segments.len() == 0 {
            break;
        }
        one.deliver_some(&mut two, 50, &mut rng);
        two.deliver_some(&mut one, 50, &mut rng);
    }
    one.check(&name);
    two.check(&name);
}

#[test]
fn two_hundred_worlds_end_as_the_model_predicts() {
    (0..200).for_each(world);
}

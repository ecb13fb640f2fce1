//! Two boards through an ATM switch: a stream from one to the other, in virtual time.
//!
//! ```sh
//! cargo run --release -p kiban-sim --example two_boards
//! ```

use kiban_base::Instant;
use kiban_sim::program::{Receiver, Sender};
use kiban_sim::{Pair, Plan};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

fn main() {
    // Paper [1]'s boards with OC-3c lines, a TCP window of 64 KiB, and 1000 km of fibre each way.
    let plan = Plan { metres: 1e6, ..Plan::with_window(64 << 10) };
    let mut pair = Pair::new(&plan);

    let bytes = 10_000_000;
    let source = Box::new(|at: u64, buffer: &mut [u8]| buffer.fill(at as u8));
    let arrived = Rc::new(Cell::new(0));
    let count = arrived.clone();
    let make = move |_stream| -> kiban_sim::program::Sink {
        let count = count.clone();
        Box::new(move |_at, bytes| count.set(count.get() + bytes.len() as u64))
    };
    pair.world.run_program(pair.boards[1], Box::new(Receiver::new(5000, 1, Box::new(make))));
    pair.world
        .run_program(pair.boards[0], Box::new(Sender::new(Pair::socket(1, 5000), vec![(bytes, source)])));
    let done = pair.world.run(Instant::ZERO + Duration::from_secs(3600));

    let seconds = pair.world.now().as_secs_f64();
    let mbps = arrived.get() as f64 * 8.0 / seconds / 1e6;
    println!("done: {done}, {} bytes in {seconds:.3} virtual seconds: {mbps:.1} Mbit/s", arrived.get());
    println!("the limit is the 64 KiB window: one window per round trip over 4000 km of fibre");
}

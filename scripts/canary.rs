//! Deliberate errors. `scripts/sanitize` runs each under the tool that has to find it, before it trusts the
//! tool.

use std::hint::black_box;

/// One byte beyond an allocation.
fn overflow() {
    let bytes = black_box(vec![7u8; 8]);
    // SAFETY: none, on purpose.
    let beyond = unsafe { bytes.as_ptr().add(8).read() };
    println!("{}", black_box(beyond));
}

/// Memory that is neither freed nor reachable.
fn leak() {
    for size in 1..100 {
        black_box(Box::leak(vec![0u8; 100 * size].into_boxed_slice()).as_ptr());
    }
}

/// A branch on memory that nobody has written.
fn uninitialised() {
    let bytes = Vec::<u8>::with_capacity(64);
    // SAFETY: none, on purpose.
    let first = unsafe { black_box(bytes.as_ptr()).read() };
    if first == 7 {
        println!("seven");
    }
}

/// Two threads write to one place.
fn race() {
    struct Shared(*mut u64);
    // SAFETY: none, on purpose.
    unsafe impl Sync for Shared {}
    let mut count = 0u64;
    let shared = &Shared(&raw mut count);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(move || {
                let place = black_box(shared).0;
                for _ in 0..1000 {
                    // SAFETY: none, on purpose.
                    unsafe { *place += 1 };
                }
            });
        }
    });
    println!("{count}");
}

/// A write through a reference from which a pointer was made earlier ends the pointer's right to the place.
fn aliasing() {
    let whole = Box::leak(Box::new(1u64));
    let pointer = std::ptr::NonNull::from(&mut *whole);
    *whole = 2;
    // SAFETY: none, on purpose.
    println!("{}", unsafe { *pointer.as_ptr() });
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("overflow") => overflow(),
        Some("leak") => leak(),
        Some("uninitialised") => uninitialised(),
        Some("race") => race(),
        Some("aliasing") => aliasing(),
        other => panic!("which error? {other:?}"),
    }
}

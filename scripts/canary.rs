//! Deliberate memory errors. Before it trusts a tool, `scripts/sanitize` checks that the tool finds them.

use std::hint::black_box;

/// Reads one byte beyond an allocation.
fn overflow() {
    let bytes = black_box(vec![7u8; 8]);
    // SAFETY: deliberately unsound: the byte is out of bounds.
    let beyond = unsafe { bytes.as_ptr().add(8).read() };
    println!("{}", black_box(beyond));
}

/// Leaks memory: it is neither freed nor reachable.
fn leak() {
    for size in 1..100 {
        black_box(Box::leak(vec![0u8; 100 * size].into_boxed_slice()).as_ptr());
    }
}

/// Branches on uninitialised memory.
fn uninitialised() {
    let bytes = Vec::<u8>::with_capacity(64);
    // SAFETY: deliberately unsound: the byte was never written.
    let first = unsafe { black_box(bytes.as_ptr()).read() };
    if first == 7 {
        println!("seven");
    }
}

/// Writes to one variable from two threads without synchronisation.
fn race() {
    struct Shared(*mut u64);
    // SAFETY: deliberately unsound: the pointer is shared without synchronisation.
    unsafe impl Sync for Shared {}
    let mut count = 0u64;
    let shared = &Shared(&raw mut count);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(move || {
                let place = black_box(shared).0;
                for _ in 0..1000 {
                    // SAFETY: deliberately unsound: another thread writes at the same time.
                    unsafe { *place += 1 };
                }
            });
        }
    });
    println!("{count}");
}

/// Uses a pointer after a write through the reference that it was derived from. Under Stacked Borrows that
/// write invalidates the pointer.
fn aliasing() {
    let whole = Box::leak(Box::new(1u64));
    let pointer = std::ptr::NonNull::from(&mut *whole);
    *whole = 2;
    // SAFETY: deliberately unsound: the write above invalidated the pointer.
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

//! The checker's atomics; a canary can weaken one ordering.

pub(crate) use loom::thread::yield_now;
use std::cell::Cell;
pub(crate) use std::sync::atomic::Ordering;

thread_local! {
    static WEAKENED: Cell<Option<Ordering>> = const { Cell::new(None) };
}

/// Weakens one ordering (`Acquire`, `Release`, or `SeqCst` of fences) to `Relaxed` in all models that this
/// thread runs; these must then fail.
pub fn weaken(ordering: Ordering) {
    WEAKENED.set(Some(ordering));
}

/// A fence, or no fence if a canary removes `SeqCst`.
pub(crate) fn fence(asked: Ordering) {
    if WEAKENED.get() != Some(asked) {
        loom::sync::atomic::fence(asked);
    }
}

fn order(asked: Ordering) -> Ordering {
    match (WEAKENED.get(), asked) {
        (Some(weakened), asked) if weakened == asked => Ordering::Relaxed,
        (Some(Ordering::Acquire), Ordering::AcqRel) => Ordering::Release,
        (Some(Ordering::Release), Ordering::AcqRel) => Ordering::Acquire,
        (_, asked) => asked,
    }
}

macro_rules! watched {
    ($($name:ident, $number:ty);*) => {$(
        #[derive(Debug)]
        pub(crate) struct $name(loom::sync::atomic::$name);

        #[allow(dead_code, reason = "each structure uses only some operations and widths")]
        impl $name {
            pub(crate) fn new(value: $number) -> Self {
                Self(loom::sync::atomic::$name::new(value))
            }
            pub(crate) fn load(&self, asked: Ordering) -> $number {
                self.0.load(order(asked))
            }
            pub(crate) fn store(&self, value: $number, asked: Ordering) {
                self.0.store(value, order(asked));
            }
            pub(crate) fn swap(&self, value: $number, asked: Ordering) -> $number {
                self.0.swap(value, order(asked))
            }
            pub(crate) fn fetch_add(&self, value: $number, asked: Ordering) -> $number {
                self.0.fetch_add(value, order(asked))
            }
            pub(crate) fn fetch_sub(&self, value: $number, asked: Ordering) -> $number {
                self.0.fetch_sub(value, order(asked))
            }
            pub(crate) fn compare_exchange_weak(
                &self,
                current: $number,
                new: $number,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$number, $number> {
                self.0.compare_exchange_weak(current, new, order(success), order(failure))
            }
        }
    )*};
}
watched!(AtomicU32, u32; AtomicI64, i64; AtomicU64, u64; AtomicUsize, usize);

#[derive(Debug)]
pub(crate) struct AtomicBool(loom::sync::atomic::AtomicBool);

impl AtomicBool {
    pub(crate) fn new(value: bool) -> AtomicBool {
        AtomicBool(loom::sync::atomic::AtomicBool::new(value))
    }
    pub(crate) fn load(&self, asked: Ordering) -> bool {
        self.0.load(order(asked))
    }
    pub(crate) fn store(&self, value: bool, asked: Ordering) {
        self.0.store(value, order(asked));
    }
    pub(crate) fn swap(&self, value: bool, asked: Ordering) -> bool {
        self.0.swap(value, order(asked))
    }
    pub(crate) fn compare_exchange_weak(
        &self,
        current: bool,
        new: bool,
        success: Ordering,
        failure: Ordering,
    ) -> Result<bool, bool> {
        self.0.compare_exchange_weak(current, new, order(success), order(failure))
    }
}

pub(crate) struct AtomicPtr<T>(loom::sync::atomic::AtomicPtr<T>);

impl<T> AtomicPtr<T> {
    pub(crate) fn new(value: *mut T) -> AtomicPtr<T> {
        AtomicPtr(loom::sync::atomic::AtomicPtr::new(value))
    }
    pub(crate) fn load(&self, asked: Ordering) -> *mut T {
        self.0.load(order(asked))
    }
    pub(crate) fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.0.compare_exchange(current, new, order(success), order(failure))
    }
}

/// A cell whose accesses the checker watches. Taking the pointer counts as a write at that time.
pub(crate) struct UnsafeCell<T>(loom::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(loom::cell::UnsafeCell::new(value))
    }

    pub(crate) fn get(&self) -> *mut T {
        self.0.with_mut(|value| value)
    }
}

//! Locks whose holder may have panicked.
//!
//! A panic is a bug in kiban. It ends the session or thread in which it happens. If a lock stayed poisoned,
//! all other sessions and threads that share it would end too. So poison is ignored everywhere, and code that
//! holds a lock keeps the guarded data consistent at each step that can panic. Exceptions are documented
//! where the lock is declared.

use std::sync::{LockResult, Mutex, MutexGuard, PoisonError, TryLockError};

/// Locks a mutex, whether or not a previous holder panicked.
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    ignore_poison(mutex.lock())
}

/// Locks a mutex if it is free, whether or not a previous holder panicked.
#[inline]
pub fn try_lock<T: ?Sized>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Returns the value from a lock or condition variable, whether or not a previous holder panicked.
#[inline]
pub fn ignore_poison<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_under_a_lock_does_not_end_the_others() {
        let count = Mutex::new(1);
        let panicked = std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let _held = count.lock();
                panic!("while it holds the lock");
            });
            holder.join().is_err()
        });
        assert!(panicked && count.is_poisoned());
        *lock(&count) += 1;
        assert_eq!(try_lock(&count).as_deref(), Some(&2));
        assert_eq!(ignore_poison(count.into_inner()), 2);
    }
}

//! A value that is created on first use and then shared by all threads for the life of the process.
//!
//! Purpose   initialises a value lazily without a lock: in a forked child, a lock that another thread of the
//!           parent held would stay held forever.
//! Proof     `crates/model` model-checks this code under the memory model, within bounds.

use crate::atomic::{AtomicPtr, Ordering};

/// The value published last: null at first, and a leaked box after that. The field is public because the
/// model checker's atomics cannot be created in a `const fn`.
pub(crate) struct Published<T: 'static>(pub(crate) AtomicPtr<T>);

impl<T: Sync> Published<T> {
    /// Returns the value published last. Acquire: all writes that initialised it are visible.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null or a box that `publish` leaked, which is never freed.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Replaces `before` with a new value, or drops the new value if another thread has published one in the
    /// meantime. Returns the published value. Release: the value is initialised before other threads see it.
    /// Acquire: as in `get`.
    pub(crate) fn publish(&self, before: Option<&'static T>, made: T) -> &'static T {
        let before = before.map_or(core::ptr::null_mut(), |before| core::ptr::from_ref(before).cast_mut());
        let made = Box::into_raw(Box::new(made));
        match self.0.compare_exchange(before, made, Ordering::Release, Ordering::Acquire) {
            // SAFETY: the box was just leaked and is never freed.
            Ok(_) => unsafe { &*made },
            Err(other) => {
                // SAFETY: it was boxed above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: another thread leaked this box; a value is never replaced by null.
                unsafe { &*other }
            }
        }
    }

    /// Returns the value published last if `is_valid` accepts it. (In a forked child, it does not accept the
    /// parent's value.) Otherwise, creates and publishes a new one.
    ///
    /// # Errors
    /// Returns the error of `make`.
    pub(crate) fn get_or_make<E>(
        &self,
        is_valid: impl FnOnce(&T) -> bool,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&'static T, E> {
        let known = self.get();
        match known.filter(|known| is_valid(known)) {
            Some(known) => Ok(known),
            None => Ok(self.publish(known, make()?)),
        }
    }
}

//! Values that one thread publishes and all threads use, for as long as the process lives.
//!
//! Purpose   make something on first use without a lock: in a forked child, a lock of the parent may be held
//!           for ever.
//! Proof     `crates/model` runs this very code in every order that the memory model allows, within bounds.

use crate::atomic::{AtomicPtr, Ordering};

/// The value published last: null before the first, a leaked box from then on. The field is open since the
/// model checker's atomics are not made in constants, which a `const fn` here would ask for.
pub(crate) struct Published<T: 'static>(pub(crate) AtomicPtr<T>);

impl<T: Sync> Published<T> {
    /// Returns the value published last. Acquire: its maker's writes happened before.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null or a box that `publish` leaked, which is never freed.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Publishes a value in the place of `before`. Drops it if another thread has published one meanwhile.
    /// Returns the value that is published now. Release: the value's making happened before anybody gets it.
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

    /// Returns the value published last if it `is_valid` (a parent's is not, in a forked child), or else
    /// makes and publishes one.
    ///
    /// # Errors
    /// The errors of `make`.
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

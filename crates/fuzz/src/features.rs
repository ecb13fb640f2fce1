//! Features of what an input did.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Takes features of what an input did.
pub struct Features<'a> {
    see: &'a mut dyn FnMut(u64),
}

impl<'a> Features<'a> {
    /// Features go to `see`, each as a number.
    pub fn to(see: &'a mut dyn FnMut(u64)) -> Features<'a> {
        Features { see }
    }

    /// Shows one.
    pub(crate) fn show(&mut self, feature: impl Hash) {
        let mut hasher = DefaultHasher::new();
        feature.hash(&mut hasher);
        (self.see)(hasher.finish());
    }
}

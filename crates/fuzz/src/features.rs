//! Features: numbers that identify the behaviour that an input triggers.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Receives features.
pub struct Features<'a> {
    see: &'a mut dyn FnMut(u64),
}

impl<'a> Features<'a> {
    /// Passes features to `see`, each as a number.
    pub fn to(see: &'a mut dyn FnMut(u64)) -> Features<'a> {
        Features { see }
    }

    /// Reports one feature.
    pub(crate) fn show(&mut self, feature: impl Hash) {
        let mut hasher = DefaultHasher::new();
        feature.hash(&mut hasher);
        (self.see)(hasher.finish());
    }
}

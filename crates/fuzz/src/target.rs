//! Targets, and their stored inputs.

use crate::features::Features;
use std::path::PathBuf;

/// A function that receives hostile bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// The target's name; for a decoder, the name of its file in a family's `wire` folder.
    pub name: &'static str,
    /// Runs one input; panics when an invariant is violated.
    pub run: fn(&[u8], &mut Features<'_>),
    /// Initial inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Target {
    /// Returns the directory of the target's corpus.
    pub fn corpus_dir(&self) -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus")).join(self.name)
    }

    /// Returns the stored inputs with their names, sorted by name; none if there is no directory.
    ///
    /// # Panics
    /// If an input cannot be read.
    pub fn corpus(&self) -> Vec<(String, Vec<u8>)> {
        let Ok(entries) = std::fs::read_dir(self.corpus_dir()) else { return Vec::new() };
        let mut inputs: Vec<_> = entries
            .map(|entry| {
                let path = entry.expect("an entry of the corpus").path();
                let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
                (name, std::fs::read(&path).expect("an input of the corpus can be read"))
            })
            .collect();
        inputs.sort();
        inputs
    }
}

//! Targets, and the inputs that are stored for them.

use crate::features::Features;
use std::path::PathBuf;

/// Something that takes hostile bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name; that of a decoder is its file's in a family's `wire` folder.
    pub name: &'static str,
    /// Panics when a promise is broken.
    pub run: fn(&[u8], &mut Features<'_>),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Target {
    /// Returns the directory of its corpus.
    pub fn corpus_dir(&self) -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus")).join(self.name)
    }

    /// Its stored inputs with their names, in the order of the names; none where there is no directory.
    ///
    /// # Panics
    /// When an input cannot be read.
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

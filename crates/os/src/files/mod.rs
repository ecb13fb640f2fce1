//! Safe file access: regular files only, and private files kept out of a served directory.

pub mod exposure;
pub mod regular;

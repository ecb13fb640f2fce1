//! Safe file access: regular files only, private files kept out of a served directory, and one commit for a
//! file and its name. The limit of open files.

pub mod exposure;
pub mod journal;
pub mod limit;
pub mod regular;
